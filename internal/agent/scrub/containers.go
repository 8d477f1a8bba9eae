package scrub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// engine is a container engine: how its containers are listed, removed, and how
// what remains of them (images, volumes) is removed.
type engine struct {
	name         string
	list, remove []string
	prune        []string
}

func engines() []engine {
	return []engine{
		{"docker", []string{"ps", "-aq"}, []string{"rm", "-f", "-v"}, []string{"system", "prune", "-a", "-f", "--volumes"}},
		{"podman", []string{"ps", "-aq"}, []string{"rm", "-f", "-v"}, []string{"system", "prune", "-a", "-f", "--volumes"}},
		{"crictl", []string{"pods", "-q"}, []string{"rmp", "-f"}, []string{"rmi", "--prune"}},
	}
}

// containerIDs lists an engine's containers. An engine that is installed and
// does not answer is unknown, not empty.
func (r *run) containerIDs(ctx context.Context, e engine) ([]string, error) {
	out, err := r.run(ctx, time.Minute, e.name, e.list...)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, id := range strings.Fields(string(out)) {
		if r.concerns("container", id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// containers removes all containers of all engines with their volumes and
// images.
func (r *run) containers(ctx context.Context) (string, error) {
	var errs []error
	var said []string
	for _, e := range engines() {
		ids, err := r.containerIDs(ctx, e)
		if errors.Is(err, ErrNoTool) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is installed and its containers are unknown: %w", e.name, err))
			continue
		}
		if len(ids) > 0 {
			if _, err := r.run(ctx, 5*time.Minute, e.name, append(e.remove, ids...)...); err != nil {
				errs = append(errs, err)
			}
		}
		if r.only == nil {
			if _, err := r.run(ctx, 10*time.Minute, e.name, e.prune...); err != nil {
				errs = append(errs, err)
			}
		}
		left, err := r.containerIDs(ctx, e)
		switch {
		case err != nil:
			errs = append(errs, err)
		case len(left) > 0:
			errs = append(errs, fmt.Errorf("%d containers of %s are still there: %s", len(left), e.name, list(left)))
		}
		said = append(said, fmt.Sprintf("%s: %d removed", e.name, len(ids)-len(left)))
	}
	if len(errs) == 0 && len(said) == 0 {
		return "", skipped("no container engine is installed")
	}
	return strings.Join(said, ", "), errors.Join(errs...)
}
