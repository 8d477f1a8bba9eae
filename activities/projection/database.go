package projection

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// Database is the Store of production.
type Database struct {
	Store *db.Store
	past  *pastDurations
}

// NewDatabase makes a Database.
func NewDatabase(s *db.Store) *Database { return &Database{Store: s, past: &pastDurations{}} }

// LoadJob implements Store.
func (d *Database) LoadJob(ctx context.Context, in contract.JobInput) (contract.Snapshot, error) {
	return d.snapshot(ctx, in, d.Store.Job)
}

// TakeJob implements Store.
func (d *Database) TakeJob(ctx context.Context, in contract.JobInput) (contract.Snapshot, error) {
	return d.snapshot(ctx, in, d.Store.TakeJob)
}

func (d *Database) snapshot(ctx context.Context, in contract.JobInput, read func(context.Context, string) (db.Job, error)) (contract.Snapshot, error) {
	job, err := read(ctx, in.JobID)
	if err != nil {
		return contract.Snapshot{}, final(err)
	}
	rows, err := d.Store.JobStages(ctx, in.JobID)
	if err != nil {
		return contract.Snapshot{}, final(err)
	}
	s := contract.Snapshot{
		Seq: job.Seq, Status: job.Status, Stage: job.Stage, Reached: job.ReachedPercent, Frozen: job.Frozen,
		Adopted: job.Adopted, Stages: rows, Checkpoint: job.Checkpoint, Input: job.Input,
	}
	if job.FailureClass != "" {
		s.Failure = &contract.Failure{Class: job.FailureClass, Stage: job.FailedStage, Message: job.Message}
	}
	return s, nil
}

// ProjectJob implements Store.
func (d *Database) ProjectJob(ctx context.Context, p contract.Projection) (contract.ProjectResult, error) {
	row := d.row(ctx, p)
	var res contract.ProjectResult
	err := d.Store.Tx(ctx, func(tx *db.Tx) error {
		var err error
		if row.NodeMove, err = nodeMove(ctx, tx, p); err != nil {
			return err
		}
		unproven, err := verify(ctx, tx, p)
		if err != nil {
			return err
		}
		step := row // a transaction may run again
		step.Entries = nil
		res.Unproven = attribute(&step, p, unproven)
		if res.Applied, err = tx.ProjectJob(ctx, step); err != nil {
			return err
		}
		res.StoredSeq = p.Seq
		if res.Applied {
			return nil
		}
		job, err := tx.Job(ctx, p.JobID)
		if err != nil {
			return err
		}
		// A repeated write finds its own number and its own run: it is done.
		res.StoredSeq = job.Seq
		if job.Seq == p.Seq && job.RunID == p.RunID {
			res.Applied = true
		}
		return nil
	})
	return res, final(err)
}

// nodeMove drops a soft move that the node's present state has no edge for, or
// none that such a job may take: a quarantined node that is onboarded again is
// not moved to enrolling, and one that somebody else has put to use meanwhile
// does not keep a job from ending.
func nodeMove(ctx context.Context, tx *db.Tx, p contract.Projection) (*db.NodeMove, error) {
	if p.Node == nil || p.NodeID == "" {
		return nil, nil
	}
	node, err := tx.LockNode(ctx, p.NodeID)
	if err != nil {
		return nil, err
	}
	owner := p.Node.Owner
	if owner == "" {
		owner = lifecycle.Owner(p.Kind)
	}
	path := lifecycle.NodePath(node.Lifecycle, node.Status, p.Node.To, p.Node.Via, owner)
	if p.Node.Soft && (len(path) == 0 || path[0] == node.Status) {
		return nil, nil
	}
	move := &db.NodeMove{To: p.Node.To, Proof: p.Node.Proof, Comment: p.Node.Note, Owner: owner}
	if len(path) > 1 {
		move.Via = path[:len(path)-1]
	}
	return move, nil
}

func (d *Database) row(ctx context.Context, p contract.Projection) db.Projection {
	row := db.Projection{
		JobID: p.JobID, Seq: p.Seq, RunID: p.RunID, Status: p.Status, Stage: p.Stage, StageOrdinal: p.StageOrdinal, Attempt: p.Attempt,
		WaitingOutside: p.WaitingOut, Frozen: p.Frozen, Adopted: p.Adopted, ProgressPercent: p.Progress, ReachedPercent: p.Reached,
		StageDeadline: p.StageDeadline, Observed: p.Observed, Stages: p.Stages, Checkpoint: p.Checkpoint, Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: p.By},
		ETA: d.estimate(ctx, p),
	}
	if f := p.Failure; f != nil {
		info := lifecycle.Failure(f.Class)
		row.FailureClass, row.FailedStage, row.Message = f.Class, f.Stage, f.Message
		row.RecommendedAction, row.NextStep = info.Recommended, info.Next
		row.Actor.Comment = f.Message
		row.Actor.Metadata = map[string]any{"failure_class": string(f.Class), "stage": f.Stage}
	}
	return row
}

// estimate is the time that the stages still to do took in past jobs.
func (d *Database) estimate(ctx context.Context, p contract.Projection) json.RawMessage {
	if d.past == nil || p.Status != lifecycle.JobRunning {
		return nil
	}
	past := d.past.of(ctx, d.Store, string(p.Kind))
	var todo [][]float64
	for _, s := range p.Stages {
		if s.State == lifecycle.StagePending || s.State == lifecycle.StageRunning {
			if took := past[s.Name]; len(took) > 0 { // a stage never run before, such as recovery, is not expected
				todo = append(todo, took)
			}
		}
	}
	e := lifecycle.EstimateRemaining(todo)
	if e.Samples == 0 {
		return nil
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return nil
	}
	return raw
}

// pastDurations caches how long stages took, a minute at a time.
type pastDurations struct {
	mu    sync.Mutex
	kinds map[string]pastKind
}

type pastKind struct {
	until  time.Time
	stages map[string][]float64
}

const (
	pastFor  = time.Minute
	pastJobs = 100
)

func (c *pastDurations) of(ctx context.Context, s *db.Store, kind string) map[string][]float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.kinds[kind]; ok && time.Now().Before(k.until) {
		return k.stages
	}
	if c.kinds == nil {
		c.kinds = map[string]pastKind{}
	}
	k := pastKind{until: time.Now().Add(pastFor), stages: map[string][]float64{}}
	durations, err := s.StageDurations(ctx, kind, pastJobs)
	if err == nil {
		for name, list := range durations {
			for _, d := range list {
				k.stages[name] = append(k.stages[name], d.Seconds())
			}
		}
	}
	c.kinds[kind] = k
	return k.stages
}

// final marks what no repetition mends: a missing row, a refused value.
func final(err error) error {
	if err == nil {
		return nil
	}
	if db.Permanent(err) {
		return fmt.Errorf("%w: %w", fault.ErrFinal, err)
	}
	return err
}
