package scrub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/toolrunner"
)

// engine is a container engine: how its containers are listed, removed, and how
// what remains of them (images, volumes) is removed.
type engine struct {
	name         string
	store        []string // where it keeps what it holds
	list, remove []string
	prune        []string
}

func engines() []engine {
	return []engine{
		{"docker", []string{"/var/lib/docker", "/var/lib/containerd"}, []string{"ps", "-aq"}, []string{"rm", "-f", "-v"}, []string{"system", "prune", "-a", "-f", "--volumes"}},
		{"podman", []string{"/var/lib/containers"}, []string{"ps", "-aq"}, []string{"rm", "-f", "-v"}, []string{"system", "prune", "-a", "-f", "--volumes"}},
		{"crictl", []string{"/var/lib/containerd", "/var/lib/containers", "/var/lib/rancher", "/var/snap/microk8s"}, []string{"pods", "-q"}, []string{"rmp", "-f"}, []string{"rmi", "--prune"}},
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
	there := map[string]bool{}
	for _, e := range engines() {
		ids, err := r.containerIDs(ctx, e)
		if errors.Is(err, toolrunner.ErrNotInstalled) {
			continue
		}
		there[e.name] = true
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is installed and its containers are unknown: %w", e.name, err))
			continue
		}
		removed, err := r.removeContainers(ctx, e, ids)
		errs = append(errs, err)
		said = append(said, fmt.Sprintf("%s: %d removed", e.name, removed))
	}
	found, err := r.eachContainerd(ctx, there["crictl"], func(socket string) error {
		permitted, err := r.permitStorage(ctx, containerdDirs(socket)...)
		if err != nil {
			return err
		}
		removed, err := r.emptyContainerd(permitted, socket, there["docker"])
		if !errors.Is(err, toolrunner.ErrNotInstalled) {
			said = append(said, fmt.Sprintf("containerd: %d removed", removed))
		}
		return err
	}, func(dir string) error {
		removed, err := r.emptyIdle(ctx, dir)
		said = append(said, fmt.Sprintf("containerd does not run: %d entries of %s removed", removed, dir))
		return err
	})
	errs = append(errs, err)
	if len(there) == 0 && found == 0 {
		return "", skipped("no container engine is installed")
	}
	return strings.Join(said, ", "), errors.Join(errs...)
}

// removeContainers removes an engine's containers and what remains of them, and
// counts those that are gone.
func (r *run) removeContainers(ctx context.Context, e engine, ids []string) (int, error) {
	permitted, err := r.permitStorage(ctx, e.store...)
	if err != nil {
		return 0, fmt.Errorf("%s keeps its containers: %w", e.name, err)
	}
	var errs []error
	if len(ids) > 0 {
		if _, err := r.run(permitted, 5*time.Minute, e.name, append(e.remove, ids...)...); err != nil {
			errs = append(errs, err)
		}
	}
	if r.only == nil {
		if _, err := r.run(permitted, 10*time.Minute, e.name, e.prune...); err != nil {
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
	return len(ids) - len(left), errors.Join(errs...)
}

// noContainers looks for what containers removes.
func (v validation) noContainers(ctx context.Context) (string, error) {
	var errs []error
	there := map[string]bool{}
	for _, e := range engines() {
		ids, err := v.containerIDs(ctx, e)
		if errors.Is(err, toolrunner.ErrNotInstalled) {
			continue
		}
		there[e.name] = true
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is installed and its containers are unknown: %w", e.name, err))
		} else if len(ids) > 0 {
			errs = append(errs, fmt.Errorf("%s has %d containers: %s", e.name, len(ids), list(ids)))
		}
	}
	found, err := v.eachContainerd(ctx, there["crictl"], func(socket string) error {
		all, err := v.allHeld(ctx, socket, there["docker"])
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("it holds %d: %s", len(all), list(heldNames(all)))
		}
		return err
	}, func(dir string) error {
		return fmt.Errorf("%s holds what a containerd left that does not run", dir)
	})
	errs = append(errs, err)
	if len(there) == 0 && found == 0 {
		return "", skipped("no container engine is installed")
	}
	return "no container", errors.Join(errs...)
}
