package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/task"
)

// session holds the present identity, for the parts of the agent beside the heartbeats.
type session struct {
	ready chan struct{} // closed when there is one

	mu      sync.Mutex
	id      *identity
	client  *client
	changed chan struct{} // closed by the next change
}

func (s *session) set(id *identity, c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == nil {
		close(s.ready)
	}
	s.id, s.client = id, c
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// knows returns whether the session has a key, and a channel that is closed when that may have
// changed.
func (s *session) knows(keyID string) (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return slices.Contains(keyIDs(s.id.TaskKeys), keyID), s.changed
}

func (s *session) get() (*identity, *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.client
}

// taskServer is the control plane as the task loop calls it. It can be used when the session is
// ready.
type taskServer struct {
	a        *Agent
	executor task.Executor
	trusted  []protocol.TaskKey
}

// Claim implements task.Server.
func (s *taskServer) Claim(ctx context.Context, r protocol.ClaimRequest) (protocol.ClaimResponse, int64, error) {
	id, c := s.a.session.get()
	s.trust(ctx)
	var out protocol.ClaimResponse
	err := c.post(ctx, protocol.PathTaskClaim, r, &out)
	if err == nil && out.Task != nil {
		s.a.learnKey(ctx, out.Task.KeyID)
		s.trust(ctx)
	}
	return out, id.Generation, taskError(err)
}

// trust passes new keys on to the executor.
func (s *taskServer) trust(ctx context.Context) {
	id, _ := s.a.session.get()
	if len(id.TaskKeys) == 0 || reflect.DeepEqual(s.trusted, id.TaskKeys) {
		return
	}
	if err := s.executor.Trust(ctx, id.TaskKeys); err != nil { // tasks with keys that it knows are still done
		s.a.log.Error("the privileged process does not take the keys of tasks", "error", err)
	}
	s.trusted = id.TaskKeys
}

// learnTime is how long a task waits for its key, which is a part of its lease.
const learnTime = 10 * time.Second

// learnKey sends a heartbeat at once to learn keys of tasks. It is called for a task with an
// unknown key, since the control plane may have a new one.
func (a *Agent) learnKey(ctx context.Context, keyID string) {
	over := time.NewTimer(learnTime)
	defer over.Stop()
	for {
		known, changed := a.session.knows(keyID)
		if known {
			return
		}
		select {
		case a.nudge <- struct{}{}:
		default: // asked already
		}
		select {
		case <-ctx.Done():
			return
		case <-over.C: // the executor refuses the task and gives the reason
			return
		case <-changed:
		}
	}
}

// Renew implements task.Server.
func (s *taskServer) Renew(ctx context.Context, r protocol.RenewTaskRequest) (out protocol.RenewTaskResponse, err error) {
	_, c := s.a.session.get()
	return out, taskError(c.post(ctx, protocol.PathTaskRenew, r, &out))
}

// Result implements task.Server.
func (s *taskServer) Result(ctx context.Context, r protocol.ResultRequest) (out protocol.ResultResponse, err error) {
	_, c := s.a.session.get()
	return out, taskError(c.post(ctx, protocol.PathTaskResult, r, &out))
}

// taskError returns what a refusal of the server means for a task. A superseded generation means
// nothing for the task: the next generation may be under way, and if it is not, the lease ends by
// itself.
func taskError(err error) error {
	var r *refused
	if !errors.As(err, &r) {
		return err
	}
	kind := map[string]error{
		protocol.ProblemLeaseLost: task.ErrLeaseLost, protocol.ProblemTaskEnded: task.ErrTaskEnded,
		protocol.ProblemLocked: task.ErrShutOut, protocol.ProblemNodeRemoved: task.ErrShutOut, protocol.ProblemCertificate: task.ErrShutOut,
		protocol.ProblemFormer: task.ErrShutOut, protocol.ProblemDenied: task.ErrShutOut,
		protocol.ProblemInvalid: task.ErrRejected, protocol.ProblemTooLarge: task.ErrRejected,
	}[r.problem.Type]
	if kind == nil && r.problem.Status == http.StatusNotFound {
		kind = task.ErrNotServed
	}
	if kind == nil {
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}
