package redfish

import (
	"context"
	"net/http"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/providers"
)

// change sends a mutation and follows the task of a 202 answer. An error of
// KindUncertain means that the outcome is unknown.
func (b *BMC) change(ctx context.Context, op *operation, method, link string, payload any, header map[string]string) error {
	a, err := b.conn.send(ctx, op, method, link, payload, header)
	if err != nil {
		return err
	}
	if a.Status != http.StatusAccepted {
		return nil
	}
	return b.followTask(ctx, op, a)
}

// followTask polls a task until it ends or TaskTimeout passes. A task that
// cannot be followed is no failure: the caller reads the state it asked for.
func (b *BMC) followTask(ctx context.Context, op *operation, a *answer) error {
	monitor := a.Header.Get("Location")
	if monitor == "" {
		d, err := parseDoc(a.Body)
		if err != nil {
			return nil
		}
		if monitor = d.text("TaskMonitor"); monitor == "" {
			monitor = d.text("@odata.id")
		}
	}
	if monitor == "" {
		return nil
	}
	path, err := b.base.path(monitor)
	if err != nil {
		return renamed(op, err)
	}
	deadline := time.Now().Add(b.opts.TaskTimeout)
	for pause := b.opts.PollMin; time.Now().Before(deadline); pause = b.longer(pause) {
		if poll.Sleep(ctx, pause) != nil {
			return nil // the caller's own re-read reports the end of the context
		}
		t, err := b.conn.send(ctx, op, http.MethodGet, path, nil, nil)
		switch {
		case providers.IsKind(err, providers.KindNotFound):
			return nil // ended and already forgotten
		case err != nil && (t == nil || t.Status >= 500):
			continue
		case err != nil:
			return err // the monitor answers with the outcome of the request itself
		}
		if done, err := b.taskOutcome(op, t); done {
			return err
		}
	}
	return nil
}

// taskOutcome reads a task or a task monitor's answer.
func (b *BMC) taskOutcome(op *operation, a *answer) (bool, error) {
	d, err := parseDoc(a.Body)
	if err != nil {
		return a.Status != http.StatusAccepted, nil
	}
	switch schemas.TaskState(d.text("TaskState")) {
	case "":
		return a.Status != http.StatusAccepted, nil
	case schemas.CompletedTaskState:
		return true, nil
	case schemas.ExceptionTaskState, schemas.KilledTaskState, schemas.CancelledTaskState, schemas.InterruptedTaskState:
		kind := providers.KindStateConflict
		if anyMessage(a.Body, postWords) {
			kind = providers.KindBusy
		}
		return true, &providers.Error{Kind: kind, Op: op.name,
			Message: "the BMC accepted the request, but its task ended in " + d.text("TaskState") + b.secrets.ids(a.Body)}
	default: // still on its way
		return false, nil
	}
}

func (b *BMC) longer(pause time.Duration) time.Duration {
	return min(pause+pause/2, b.opts.PollMax)
}
