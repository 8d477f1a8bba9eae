package agentapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/signing"
)

const (
	mostWait      = 30 * time.Second // that a claim may ask for
	resultBody    = 512 << 10        // bytes
	maxUnfinished = 64
	maxTaskID     = 100
	handBackTime  = 5 * time.Second
)

// serveLong extends the deadline of an answer by the time that a claim may wait.
func (s *Server) serveLong(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		until := time.Now().Add(mostWait + s.cfg.RequestTimeout)
		if err := http.NewResponseController(w).SetWriteDeadline(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
			s.cfg.Log.DebugContext(r.Context(), "the deadline of a claim was not moved", "error", err)
		}
		next(w, r)
	}
}

// claimTask returns the node's next task, and waits when there is none. It sends no query while it
// waits: taskWaiters wakes it.
func (s *Server) claimTask(r *http.Request) (any, error) {
	c, err := s.caller(r)
	if err != nil {
		return nil, err
	}
	var in protocol.ClaimRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if err := checkClaim(in); err != nil {
		return nil, err
	}
	wake, leave, err := s.tasks.enter(c.NodeID)
	if err != nil {
		return nil, err
	}
	defer leave()
	over := time.NewTimer(time.Duration(in.WaitSeconds * float64(time.Second)))
	defer over.Stop()
	for {
		out, err := s.nextTask(r.Context(), c, in)
		if err != nil || out.Task != nil || len(out.Dropped) > 0 {
			return out, err
		}
		select {
		case <-r.Context().Done():
			return nil, refuse(http.StatusServiceUnavailable, protocol.ProblemBusy, "gone", "The claim was given up.")
		case <-s.tasks.closing:
			return protocol.ClaimResponse{}, nil
		case <-over.C:
			return protocol.ClaimResponse{}, nil
		case <-wake:
		}
		// The certificate may have been replaced or revoked during the wait.
		if c, err = s.caller(r); err != nil {
			return nil, err
		}
	}
}

func checkClaim(in protocol.ClaimRequest) error {
	switch {
	case in.BootID == "" || len(in.BootID) > 64:
		return invalid("boot_id must be the node's boot id, 1 to 64 characters.")
	case in.WaitSeconds < 0 || in.WaitSeconds > mostWait.Seconds():
		return invalid("wait_seconds must be 0 to %.0f.", mostWait.Seconds())
	case len(in.ClaimID) > 64:
		return invalid("claim_id must be at most 64 characters.")
	case len(in.Unfinished) > maxUnfinished:
		return invalid("unfinished must name at most %d tasks.", maxUnfinished)
	case strings.ContainsRune(in.BootID+in.ClaimID, 0):
		return invalid("text must not hold NUL characters.")
	}
	for _, id := range in.Unfinished {
		if id == "" || len(id) > maxTaskID || strings.ContainsRune(id, 0) {
			return invalid("unfinished must hold ids of tasks.")
		}
	}
	return nil
}

// nextTask claims the node's next task once. It returns an empty response when there is none, which
// takes one cheap query.
func (s *Server) nextTask(ctx context.Context, c caller, in protocol.ClaimRequest) (protocol.ClaimResponse, error) {
	var out protocol.ClaimResponse
	if len(in.Unfinished) == 0 {
		open, err := s.cfg.Tasks.HasOpenTasks(ctx, c.NodeID)
		if err != nil || !open {
			return out, err
		}
	}
	// Without keys the task could not be signed.
	if _, err := s.tasks.publicKeys(ctx); err != nil {
		return out, err
	}
	got, err := s.cfg.Tasks.ClaimTask(ctx, db.TaskClaim{
		NodeID: c.NodeID, BootID: in.BootID, Generation: c.Generation, ClaimID: in.ClaimID, Unfinished: in.Unfinished, Lease: s.cfg.TaskLease,
	})
	if errors.Is(err, db.ErrIdentityMoved) {
		return out, superseded()
	}
	if err != nil {
		return out, err
	}
	out.Dropped = got.Dropped
	if got.Task == nil {
		return out, nil
	}
	out.Task, err = s.signed(ctx, *got.Task)
	if err == nil {
		s.cfg.Log.InfoContext(ctx, "task handed out", "node", c.NodeID, "task", got.Task.ID, "kind", got.Task.Kind, "attempt", got.Task.Attempt)
		return out, nil
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), handBackTime)
	defer cancel()
	f := db.TaskFence{NodeID: c.NodeID, TaskID: got.Task.ID, LeaseID: got.Task.LeaseID, Attempt: got.Task.Attempt}
	return protocol.ClaimResponse{}, errors.Join(err, s.cfg.Tasks.UnclaimTask(back, f))
}

// signed returns one delivery of a task, signed.
func (s *Server) signed(ctx context.Context, t db.NodeTask) (*protocol.SignedTask, error) {
	payload, err := json.Marshal(protocol.Task{
		ID: t.ID, Kind: t.Kind, SchemaVersion: t.SchemaVersion, Args: t.Args, NodeID: t.NodeID, BootID: t.BootID, Generation: t.Generation,
		Attempt: t.Attempt, LeaseID: t.LeaseID, LeaseSeconds: s.cfg.TaskLease.Seconds(), IssuedAt: s.cfg.Now().UTC(), Deadline: t.DeadlineAt.UTC(),
		IdempotencyKey: t.IdempotencyKey,
	})
	if err != nil {
		return nil, fmt.Errorf("encode task %s: %w", t.ID, err)
	}
	sig, err := s.cfg.TaskKeys.Sign(ctx, signing.Tasks, append([]byte(protocol.TaskContext), payload...))
	if err != nil {
		return nil, fmt.Errorf("sign task %s: %w", t.ID, err)
	}
	s.tasks.signedBy(sig.KeyID)
	return &protocol.SignedTask{Payload: payload, KeyID: sig.KeyID, Signature: sig.Bytes}, nil
}

// renewTask extends a lease.
func (s *Server) renewTask(r *http.Request) (any, error) {
	c, err := s.caller(r)
	if err != nil {
		return nil, err
	}
	var in protocol.RenewTaskRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	f, err := fenceOf(c.NodeID, in.TaskID, in.LeaseID, in.Attempt)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Tasks.RenewTask(r.Context(), f, in.Progress, s.cfg.TaskLease); err != nil {
		return nil, taskRefusal(err)
	}
	return protocol.RenewTaskResponse{LeaseSeconds: s.cfg.TaskLease.Seconds()}, nil
}

// finishTask stores the result of a task. Storing the same result again succeeds.
func (s *Server) finishTask(r *http.Request) (any, error) {
	c, err := s.caller(r)
	if err != nil {
		return nil, err
	}
	var in protocol.ResultRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	f, err := fenceOf(c.NodeID, in.TaskID, in.LeaseID, in.Attempt)
	if err != nil {
		return nil, err
	}
	status, err := s.cfg.Tasks.FinishTask(r.Context(), f, in.Result)
	if err != nil {
		return nil, taskRefusal(err)
	}
	s.cfg.Log.InfoContext(r.Context(), "task result taken", "node", c.NodeID, "task", in.TaskID, "attempt", in.Attempt, "ok", in.Result.OK, "status", status)
	return protocol.ResultResponse{Status: status}, nil
}

func fenceOf(node, task, lease string, attempt int) (db.TaskFence, error) {
	if task == "" || lease == "" || len(task) > maxTaskID || len(lease) > maxTaskID || attempt < 1 || attempt > 1<<30 || strings.ContainsRune(task+lease, 0) {
		return db.TaskFence{}, invalid("task_id, lease_id and attempt must be those of the delivery.")
	}
	return db.TaskFence{NodeID: node, TaskID: task, LeaseID: lease, Attempt: attempt}, nil
}

// taskRefusal returns the agent API's refusal for an error of db, or the error itself.
func taskRefusal(err error) error {
	switch {
	case errors.Is(err, db.ErrLeaseLost):
		return refuse(http.StatusConflict, protocol.ProblemLeaseLost, "lease_lost",
			"This delivery no longer holds the task: begin no further step, and report what was done.")
	case errors.Is(err, db.ErrTaskEnded):
		return refuse(http.StatusConflict, protocol.ProblemTaskEnded, "task_ended", "Nobody waits for this task any more; drop it.")
	case errors.Is(err, db.ErrInvalid):
		return invalid("the result holds text that cannot be stored.")
	}
	return err
}
