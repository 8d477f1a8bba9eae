// Package stagetest runs the workflow of a job in a test, on a job store in memory that refuses
// what the database refuses. Every kind of job uses it; nothing but tests may import it.
package stagetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Store is a projection.Store that holds one job. It applies a projection only when its sequence
// number is higher than the stored one, and refuses a status that no transition leads to.
type Store struct {
	// MoveNode applies the node move of a projection, whose owner is set. Its error refuses the
	// projection. Nil accepts every move.
	MoveNode func(contract.NodeMove) error
	// Refuse returns the error that a projection is answered with; nil stores it.
	Refuse func(contract.Projection) error
	// OnProject is called after a projection was stored.
	OnProject func(contract.Projection)
	// NamesUnproven answers a projection with the indices of its actions that are not proven.
	NamesUnproven bool
	// FailReads and FailWrites are how many of the next calls find the database unavailable, and
	// LoseRaces how many of the next projections find that another run has stored one before them.
	FailReads, FailWrites, LoseRaces int

	mu    sync.Mutex
	snap  contract.Snapshot
	runID string
	// compensations counts how often the job was taken back.
	compensations int
	steps         []contract.Projection
	taken         int
}

// Clone returns a store with the same state and without hooks and pending failures.
func (s *Store) Clone() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Store{snap: s.snap, runID: s.runID, steps: slices.Clone(s.steps)}
}

// LoadJob implements projection.Store.
func (s *Store) LoadJob(context.Context, contract.JobInput) (contract.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.FailReads > 0 {
		s.FailReads--
		return contract.Snapshot{}, errUnavailable
	}
	return s.snap, nil
}

var errUnavailable = errors.New("the database is unavailable")

// TakeJob implements projection.Store.
func (s *Store) TakeJob(ctx context.Context, in contract.JobInput) (contract.Snapshot, error) {
	s.mu.Lock()
	s.taken++
	s.mu.Unlock()
	return s.LoadJob(ctx, in)
}

// TestKey is the key of the proofs that the store takes for proven.
const TestKey = "stagetest"

// VerifyAction implements projection.Store.
func (s *Store) VerifyAction(_ context.Context, in contract.ActionCheck) (string, error) {
	if !proven(in.Entry) {
		return "it is not signed by the API", nil
	}
	return "", nil
}

func proven(e contract.ActionEntry) bool { return e.Proof != nil && e.Proof.KeyID == TestKey }

// ProjectJob implements projection.Store.
func (s *Store) ProjectJob(_ context.Context, p contract.Projection) (contract.ProjectResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.FailWrites > 0 {
		s.FailWrites--
		return contract.ProjectResult{}, errUnavailable
	}
	if s.Refuse != nil {
		if err := s.Refuse(p); err != nil {
			return contract.ProjectResult{}, err
		}
	}
	if s.LoseRaces > 0 {
		s.LoseRaces--
		s.snap.Seq, s.runID = p.Seq+1, "another run"
	}
	if p.Seq <= s.snap.Seq {
		repeated := p.RunID == s.runID && slices.ContainsFunc(s.steps, func(stored contract.Projection) bool {
			return stored.RunID == p.RunID && stored.Seq == p.Seq && stored.Fingerprint() == p.Fingerprint()
		})
		return contract.ProjectResult{Applied: repeated, StoredSeq: s.snap.Seq}, nil
	}
	if lifecycle.Job.Terminal(s.snap.Status) && (p.Status != s.snap.Status || p.MovesOnce()) {
		return contract.ProjectResult{Ended: s.snap.Status, StoredSeq: s.snap.Seq}, nil
	}
	if err := s.check(p); err != nil {
		return contract.ProjectResult{}, fmt.Errorf("%w: %w", fault.ErrFinal, err)
	}
	checkpoint := p.Checkpoint
	if len(checkpoint) == 0 {
		checkpoint = s.snap.Checkpoint
	}
	if p.Status == lifecycle.JobCompensating && s.snap.Status != p.Status {
		s.compensations++
	}
	s.runID = p.RunID
	s.snap = contract.Snapshot{
		Seq: p.Seq, Status: p.Status, Stage: p.Stage, Failure: p.Failure, Stages: p.Stages, Reached: p.Reached,
		Frozen: p.Frozen, Adopted: p.Adopted, Checkpoint: checkpoint, Input: s.snap.Input,
	}
	s.steps = append(s.steps, p)
	if s.OnProject != nil {
		s.OnProject(p)
	}
	res := contract.ProjectResult{Applied: true, StoredSeq: p.Seq, Pass: 1 + s.compensations}
	for i, a := range p.Actions {
		if s.NamesUnproven && !proven(a) {
			res.Unproven = append(res.Unproven, i)
		}
	}
	return res, nil
}

// check applies the guards of the job's status and of its node.
func (s *Store) check(p contract.Projection) error {
	if p.Status != s.snap.Status {
		if _, err := lifecycle.JobTransition(s.snap.Status, p.Status); err != nil {
			return err
		}
	}
	node := NodeMove(p)
	if node == nil || s.MoveNode == nil {
		return nil
	}
	move := *node
	if move.Owner == "" {
		move.Owner = lifecycle.Owner(p.Kind)
	}
	return s.MoveNode(move)
}

// MoveNode returns the states that a move leads a node through, checked as the database checks
// them. It returns none for a soft move that the node's state has no transition for.
func MoveNode(kind string, from lifecycle.NodeStatus, m contract.NodeMove) ([]lifecycle.NodeStatus, error) {
	path := lifecycle.NodePath(kind, from, m.To, m.Via, m.Owner)
	if len(path) == 0 {
		if m.Soft {
			return nil, nil
		}
		return nil, &lifecycle.IllegalTransitionError{Resource: "node", From: string(from), To: string(m.To)}
	}
	machine, _ := lifecycle.NodeMachine(kind)
	var passed []lifecycle.NodeStatus
	for _, to := range path {
		if edge, ok := lifecycle.NodeEdge(kind, from, to, m.Owner); ok {
			if err := machine.Check(edge, from, m.Owner, m.Proof); err != nil {
				return nil, err
			}
			passed = append(passed, to)
		}
		from = to
	}
	return passed, nil
}

// Snapshot returns the stored state.
func (s *Store) Snapshot() contract.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snap
}

// Update changes the stored state, as another writer does.
func (s *Store) Update(change func(*contract.Snapshot)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.snap)
}

// Steps returns the projections that were stored, oldest first.
func (s *Store) Steps() []contract.Projection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.steps)
}

// Taken returns how often a run took the job up.
func (s *Store) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// Last returns the newest projection; it is empty before the first.
func (s *Store) Last() contract.Projection {
	steps := s.Steps()
	if len(steps) == 0 {
		return contract.Projection{}
	}
	return steps[len(steps)-1]
}

// Statuses returns the statuses that the job was projected in, each change once.
func (s *Store) Statuses() []lifecycle.JobStatus {
	var out []lifecycle.JobStatus
	for _, p := range s.Steps() {
		if len(out) == 0 || out[len(out)-1] != p.Status {
			out = append(out, p.Status)
		}
	}
	return out
}

// NodeMove returns the move of the node that a projection asks for, nil for none.
func NodeMove(p contract.Projection) *contract.NodeMove {
	return MoveOf[contract.NodeMove](p, contract.SubjectNode)
}

// MoveOf returns what a projection asks of its subject of a kind, nil for nothing.
func MoveOf[T any](p contract.Projection, kind contract.SubjectKind) *T {
	for _, m := range p.Moves {
		if m.Subject == kind {
			var out T
			if json.Unmarshal(m.Data, &out) == nil {
				return &out
			}
		}
	}
	return nil
}

// Moves returns the node moves that were asked for.
func (s *Store) Moves() []contract.NodeMove {
	var out []contract.NodeMove
	for _, p := range s.Steps() {
		if m := NodeMove(p); m != nil {
			out = append(out, *m)
		}
	}
	return out
}

// Audit returns the audit rows about actions.
func (s *Store) Audit() []contract.ActionEntry {
	var out []contract.ActionEntry
	for _, p := range s.Steps() {
		out = append(out, p.Actions...)
	}
	return out
}

// AuditOf returns the audit rows of one actor, and the index of the step that stored each.
func (s *Store) AuditOf(actor string) (entries []contract.ActionEntry, steps []int) {
	for i, p := range s.Steps() {
		for _, e := range p.Actions {
			if e.Actor == actor {
				entries, steps = append(entries, e), append(steps, i)
			}
		}
	}
	return entries, steps
}
