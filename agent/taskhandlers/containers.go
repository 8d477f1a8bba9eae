package taskhandlers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/task"
)

// KeepLabel is on containers of the platform; a drain leaves them.
const KeepLabel = "slipway.platform"

// container is one that runs, where id holds all that its engine needs to find
// it.
type container []string

// engine is how containers of one kind are listed and signalled.
type engine struct {
	name string // of the step
	tool string
	list func(ctx context.Context, h Host) ([]container, error)
	// stay keeps one from being started again; it may fail.
	stay func(ctx context.Context, h Host, c container) error
	kill func(ctx context.Context, h Host, c container, signal string) error
}

func dockerLike(tool string) engine {
	list := func(ctx context.Context, h Host, filter ...string) ([]string, error) {
		out, err := h.Tool(ctx, tool, append([]string{"ps", "--quiet", "--no-trunc"}, filter...)...)
		return strings.Fields(string(out)), err
	}
	return engine{
		name: "containers_" + tool, tool: tool,
		list: func(ctx context.Context, h Host) ([]container, error) {
			all, err := list(ctx, h)
			if err != nil || len(all) == 0 {
				return nil, err
			}
			keep, err := list(ctx, h, "--filter", "label="+KeepLabel)
			var out []container
			for _, id := range all {
				if !slices.Contains(keep, id) {
					out = append(out, container{id})
				}
			}
			return out, err
		},
		stay: func(ctx context.Context, h Host, c container) error {
			_, err := h.Tool(ctx, tool, "update", "--restart=no", c[0])
			return err
		},
		kill: func(ctx context.Context, h Host, c container, signal string) error {
			_, err := h.Tool(ctx, tool, "kill", "--signal", signal, c[0])
			return err
		},
	}
}

// containerd lists tasks of all namespaces but Docker's, which Docker ends.
func containerd() engine {
	return engine{
		name: "containers_containerd", tool: "ctr",
		list: func(ctx context.Context, h Host) ([]container, error) {
			spaces, err := h.Tool(ctx, "ctr", "namespaces", "list", "--quiet")
			if err != nil {
				return nil, err
			}
			var out []container
			for _, ns := range strings.Fields(string(spaces)) {
				if ns == "moby" {
					continue
				}
				tasks, err := h.Tool(ctx, "ctr", "--namespace", ns, "tasks", "list", "--quiet")
				if err != nil {
					return nil, err
				}
				for _, id := range strings.Fields(string(tasks)) {
					out = append(out, container{ns, id})
				}
			}
			return out, nil
		},
		stay: func(context.Context, Host, container) error { return nil },
		kill: func(ctx context.Context, h Host, c container, signal string) error {
			_, err := h.Tool(ctx, "ctr", "--namespace", c[0], "tasks", "kill", "--all", "--signal", signal, c[1])
			return err
		},
	}
}

// stopContainers ends what runs in an engine: TERM, and KILL after grace.
func (h Host) stopContainers(ctx context.Context, steps *task.Recorder, e engine, grace time.Duration) (string, error) {
	if !h.HasTool(e.tool) {
		return "", task.Skip(e.tool + " is not installed")
	}
	left, err := e.list(ctx, h)
	if err != nil {
		return "", fmt.Errorf("its containers cannot be listed; if it is installed but not in use, remove it or start it: %w", err)
	}
	if len(left) == 0 {
		return "no container ran", nil
	}
	begun := len(left)
	look := func() (bool, error) {
		left, err = e.list(ctx, h)
		return len(left) == 0, err
	}
	for _, c := range left {
		_ = e.stay(ctx, h, c)            // without it a restart policy shows below
		_ = e.kill(ctx, h, c, "SIGTERM") // one may end by itself meanwhile; the list decides
	}
	gone, err := h.poll(ctx, steps, grace, look)
	if err != nil {
		return "", err
	}
	if gone {
		return fmt.Sprintf("%d containers ended", begun), nil
	}
	killed := len(left)
	var last error
	gone, err = h.poll(ctx, steps, killWait, func() (bool, error) {
		for _, c := range left {
			last = e.kill(ctx, h, c, "SIGKILL")
		}
		return look()
	})
	switch {
	case err != nil:
		return "", err
	case !gone && last != nil:
		return "", fmt.Errorf("%d containers still run: %w", len(left), last)
	case !gone:
		return "", fmt.Errorf("%d containers still run after SIGKILL, or are started again by something", len(left))
	}
	return fmt.Sprintf("%d containers ended, %d of them by SIGKILL", begun, killed), nil
}
