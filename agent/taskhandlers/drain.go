package taskhandlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// DrainMarker is the file of the state directory that says that this node takes
// no new work; whoever starts tenants' work on the node looks for it.
const DrainMarker = "drained.json"

// Marker is what the drain marker holds.
type Marker struct {
	TaskID string    `json:"task_id"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

// Drain is the handler of node.drain: it marks the node as drained, ends what
// tenants run in containers, user units and sessions, and looks whether any of
// their processes is left.
func (h Host) Drain(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	args, ok := r.Args.(*spec.DrainArgs)
	if !ok {
		return task.Fail(task.CodeInternal, "the arguments are not those of a drain")
	}
	grace := time.Duration(args.GraceSeconds) * time.Second
	return steps.End(h.drain(ctx, steps, grace, Marker{r.Task.ID, args.Reason, time.Now().UTC()}))
}

func (h Host) drain(ctx context.Context, steps *task.Recorder, grace time.Duration, m Marker) error {
	err := steps.Do(ctx, "refuse_new", func(context.Context) (string, error) { return h.mark(m) })
	// All kinds of work are tried even when one of them fails, so that a retry
	// has less to do; but none begins without a lease.
	for _, engine := range []engine{dockerLike("docker"), dockerLike("podman"), containerd()} {
		err = errors.Join(err, steps.Do(ctx, engine.name, func(ctx context.Context) (string, error) {
			return h.stopContainers(ctx, steps, engine, grace)
		}))
	}
	err = errors.Join(err, steps.Do(ctx, "user_sessions", h.endSessions))
	err = errors.Join(err, steps.Do(ctx, "user_processes", func(ctx context.Context) (string, error) {
		kept, err := h.kept()
		if err != nil {
			return "", err
		}
		return h.end(ctx, steps, grace, func(uid int) bool { return h.tenant(uid, kept) })
	}))
	return err
}

func (h Host) mark(m Marker) (string, error) {
	p := filepath.Join(h.StateDir, DrainMarker)
	old, err := h.read(p)
	var there Marker
	if err == nil && json.Unmarshal(old, &there) == nil && there.TaskID == m.TaskID {
		return "marked before", nil
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	return "the node is marked in " + p, h.replace(p, append(raw, '\n'), 0o644)
}

// Unmark drops the mark of the drain with this task id, for good. It gives the
// id of the mark that is there afterwards, "" for none. It may be repeated, and
// must not run beside a drain.
func (h Host) Unmark(drain string) (string, error) {
	p := filepath.Join(h.StateDir, DrainMarker)
	raw, err := h.read(p)
	if err != nil || len(raw) == 0 {
		return "", err
	}
	var there Marker
	if err := json.Unmarshal(raw, &there); err != nil || there.TaskID == "" {
		return "", fmt.Errorf("%s is damaged; remove it when the node is to take work again", h.path(p))
	}
	if there.TaskID != drain {
		return there.TaskID, nil
	}
	if _, err := h.remove(p); err != nil {
		return there.TaskID, err
	}
	return "", atomicfile.SyncDir(filepath.Dir(h.path(p)))
}

// endSessions asks logind to end tenants' sessions and user units.
func (h Host) endSessions(ctx context.Context) (string, error) {
	if !h.HasTool("loginctl") {
		return "", task.Skip("loginctl is not installed; what is left is ended process by process")
	}
	out, err := h.Tool(ctx, "loginctl", "list-users", "--no-legend", "--no-pager")
	if err != nil {
		return "", task.Skip("logind does not answer; what is left is ended process by process: " + err.Error())
	}
	kept, err := h.kept()
	if err != nil {
		return "", err
	}
	var ended []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		uid, err := strconv.Atoi(f[0])
		if err != nil || !h.tenant(uid, kept) {
			continue
		}
		// A user may go by himself meanwhile; who stays is met in the next step.
		if _, err := h.Tool(ctx, "loginctl", "terminate-user", f[0]); err == nil {
			ended = append(ended, f[0])
		}
	}
	if len(ended) == 0 {
		return "no tenant was logged in", nil
	}
	return fmt.Sprintf("sessions of uid %s ended", strings.Join(ended, ", ")), nil
}
