// Package subject has what the jobs are about: nodes, allocations, instances, runs and payments.
// Projections, the sweeper and the actions of operators change a subject through this table alone.
package subject

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Subject is one kind of subject. Its functions run in the transaction of the caller.
type Subject struct {
	Kind contract.SubjectKind
	// Lock locks the rows that a move of the job changes, before the job is locked. It returns what
	// makes the move.
	Lock func(ctx context.Context, tx *db.Tx, ref Ref) (Apply, error)
	// Park shows that the job was parked while no workflow ran it. It reports whether it has ended
	// the job, because nobody has to decide anything.
	Park func(ctx context.Context, tx *db.Tx, job db.Job, class lifecycle.FailureClass, actor db.Actor) (ended bool, err error)
	// EndUnstarted takes back what was written with a job that was cancelled before it began.
	EndUnstarted func(ctx context.Context, tx *db.Tx, job db.Job, actor db.Actor) error
	// Cancelled writes an accepted cancellation of the job into the audit log of the subject's
	// project. It is nil for a subject whose cancellations are audited where they are requested.
	Cancelled func(ctx context.Context, tx *db.Tx, jobID string, actor db.Actor) error
}

// Ref names a subject: by its id, or by the job or the node where it has none.
type Ref struct{ JobID, NodeID, ID string }

// Apply makes a move for a step of the job that is stored. data is what the move carries.
type Apply func(ctx context.Context, tx *db.Tx, p contract.Projection, data json.RawMessage) error

// all is the table of subjects, in the order in which they are locked. Moves are made in the
// opposite order: what becomes of an allocation may depend on where its node is.
var all = []Subject{allocations, instances, runs, paymentSessions, nodes}

// Of returns the subject of a kind of job. That of an unknown kind is a node.
func Of(k contract.JobKind) Subject {
	row, _ := contract.KindOf(k)
	if i := place(row.Subject); i >= 0 {
		return all[i]
	}
	return nodes
}

// Moves are the moves of a projection whose subjects are locked.
type Moves struct {
	p    contract.Projection
	made []made
}

type made struct {
	apply Apply
	data  json.RawMessage
}

// Lock locks the subjects of a projection's moves.
func Lock(ctx context.Context, tx *db.Tx, p contract.Projection) (Moves, error) {
	sorted := slices.Clone(p.Moves)
	slices.SortStableFunc(sorted, func(a, b contract.Move) int {
		return cmp.Or(cmp.Compare(place(a.Subject), place(b.Subject)), cmp.Compare(a.ID, b.ID))
	})
	out := Moves{p: p}
	for _, m := range sorted {
		i := place(m.Subject)
		if i < 0 {
			return out, fmt.Errorf("move of a %q: %w", m.Subject, db.ErrInvalid)
		}
		apply, err := all[i].Lock(ctx, tx, Ref{JobID: p.JobID, NodeID: p.NodeID, ID: m.ID})
		if err != nil {
			return out, err
		}
		out.made = append(out.made, made{apply, m.Data})
	}
	return out, nil
}

// Apply makes the moves.
func (m Moves) Apply(ctx context.Context, tx *db.Tx) error {
	for _, one := range slices.Backward(m.made) {
		if err := one.apply(ctx, tx, m.p, one.data); err != nil {
			return err
		}
	}
	return nil
}

func place(k contract.SubjectKind) int {
	return slices.IndexFunc(all, func(s Subject) bool { return s.Kind == k })
}

// decode reads what a move carries.
func decode[T any](data json.RawMessage) (T, error) {
	var out T
	if err := json.Unmarshal(data, &out); err != nil {
		return out, fmt.Errorf("read a move: %w: %w", err, db.ErrInvalid)
	}
	return out, nil
}

// by returns the actor of a move: the job, for the operator whose action has caused the step.
func by(p contract.Projection) db.Actor {
	return db.Actor{Owner: lifecycle.OwnerJob, ID: p.By, WorkflowID: contract.JobWorkflowID(p.Kind, p.JobID)}
}

func never(context.Context, *db.Tx, db.Job, lifecycle.FailureClass, db.Actor) (bool, error) {
	return false, nil
}
