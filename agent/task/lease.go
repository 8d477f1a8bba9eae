package task

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
)

const minLease = 20 * time.Millisecond

// lease keeps a task's lease while it runs. Halt is closed when the server says
// that it is lost, or when it was not renewed for its whole length.
type lease struct {
	halt chan struct{}
	once sync.Once
	step atomic.Pointer[string]
}

func (l *lease) lost() { l.once.Do(func() { close(l.halt) }) }

func (l *lease) progress(step string) { l.step.Store(&step) }

// keep renews each quarter until ctx ends.
func (l *lease) keep(ctx context.Context, s Server, t protocol.Task, report func(string, error)) {
	length := max(time.Duration(t.LeaseSeconds*float64(time.Second)), minLease)
	over := time.AfterFunc(length, func() {
		report("a task's lease could not be renewed in time; no new step begins", nil)
		l.lost()
	})
	defer over.Stop()
	tick := time.NewTimer(length / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		req := protocol.RenewTaskRequest{TaskID: t.ID, LeaseID: t.LeaseID, Attempt: t.Attempt}
		if s := l.step.Load(); s != nil {
			req.Progress = *s
		}
		sent := time.Now()
		// A try that hangs must leave time for another one.
		call, cancel := context.WithTimeout(ctx, max(length/3, minLease))
		out, err := s.Renew(call, req)
		cancel()
		switch {
		case err == nil:
			if d := time.Duration(out.LeaseSeconds * float64(time.Second)); d >= minLease {
				length = d
			}
			if left := length - time.Since(sent); left > 0 && over.Stop() {
				over.Reset(left)
			}
		case errors.Is(err, ErrLeaseLost), errors.Is(err, ErrTaskEnded), errors.Is(err, ErrShutOut):
			report("a task's lease is lost; no new step begins", err)
			l.lost()
			return
		case ctx.Err() == nil:
			report("a task's lease could not be renewed yet", err)
		}
		tick.Reset(length / 4)
	}
}
