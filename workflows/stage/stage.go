// Package stage runs staged jobs: one workflow that runs an ordered list of stages for one
// resource. Every job in Slipway uses it, so that all have the same states, operator actions,
// retries, parking, projection, compensation and progress. The package of a job supplies only a Job
// value.
package stage

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Job describes a kind of job over its own state S. S is plain data: it is
// checkpointed with every projection and restored when a run is started again.
type Job[S any] struct {
	Kind   contract.JobKind
	Stages []Stage[S]
	// Init fills the state from the accepted request.
	Init func(s *S, input []byte) error
	// Choose names the stages of this request in their order, for a kind whose requests run
	// different stages. Nil runs all. It depends only on what Init has read.
	Choose func(s *S) []string
	// Build returns the stages of this request, for a kind whose requests define their own stages.
	// It replaces Stages and depends only on what Init has read.
	Build func(s *S) ([]Stage[S], error)
	// Deadline returns how long a stage may take. It gets the default of the stage.
	Deadline func(s *S, stage string, dflt time.Duration) time.Duration
	// Observed returns the state of the outside system as it was last read.
	Observed func(s *S) lifecycle.Observed
	// Metadata returns what the action log stores of a try when it begins, without secrets. Nil
	// stores nothing. The results of its activities add what the try does (see Do).
	Metadata func(s *S) lifecycle.ActionMetadata
	// Started, Succeeded, Blocked and Cancelled return the move that is made with that change of
	// the job's status. Nil moves nothing.
	Started, Succeeded, Blocked, Cancelled func(s *S) *contract.Move
	// Parked replaces Blocked where it is set, and is called for every failure class. Resumed
	// returns the move when an operator resumes a parked job.
	Parked  func(s *S, f contract.Failure) *contract.Move
	Resumed func(s *S) *contract.Move
	// Reset clears what compensation has undone, before starting from the top.
	Reset func(s *S)

	// NodeID names the node of a job that finds its node while it runs. Nil stands for the node of
	// the input.
	NodeID func(s *S) string
	// Moves returns the move of the job's subject that each projection makes, nil for none.
	Moves func(s *S, at contract.Step) *contract.Move
	// Attempts returns how often a stage is tried for a failure class. It gets the default of the
	// class.
	Attempts func(s *S, class lifecycle.FailureClass, dflt int) int
	// GivesUp reports whether the job ends at a failure instead of parking. It is then compensated
	// and ends as a cancelled job does, with the failure in its row. The state keeps what is
	// reported of the failure later.
	GivesUp func(s *S, f contract.Failure) bool
	// Subject returns the facts by which the kind of the job refuses an action that the matrix
	// allows (contract.Kind). It is called at the safe point at which the action would be carried
	// out. Nil is for a kind that needs none.
	Subject func(ctx workflow.Context, s *S, a lifecycle.Action) contract.SubjectFacts
}

// Chosen returns the stages of a job in their order: those that Build makes or Choose names, or
// all.
func (j Job[S]) Chosen(s *S) ([]Stage[S], error) {
	if j.Build != nil {
		built, err := j.Build(s)
		if err == nil && len(built) == 0 {
			err = errors.New("the job has no stages")
		}
		return built, err
	}
	if j.Choose == nil {
		return j.Stages, nil
	}
	var chosen []Stage[S]
	for _, name := range j.Choose(s) {
		i := slices.IndexFunc(j.Stages, func(st Stage[S]) bool { return st.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no stage %s", name)
		}
		chosen = append(chosen, j.Stages[i])
	}
	if len(chosen) == 0 {
		return nil, errors.New("the job has no stages")
	}
	return chosen, nil
}

// Restore reads the state of a job from its checkpoint, or from the request of a job that has none.
func (j Job[S]) Restore(s *S, snap contract.Snapshot) error {
	_, err := j.restore(s, snap)
	return err
}

func (j Job[S]) restore(s *S, snap contract.Snapshot) (checkpoint[S], error) {
	cp := checkpoint[S]{State: s}
	if len(snap.Checkpoint) == 0 {
		if err := j.Init(s, snap.Input); err != nil {
			return cp, fmt.Errorf("read the request: %w", err)
		}
		return cp, nil
	}
	if err := json.Unmarshal(snap.Checkpoint, &cp); err != nil {
		return cp, fmt.Errorf("read the checkpoint: %w", err)
	}
	return cp, nil
}

// Stage is one step. Run must be repeatable: it re-reads before it changes
// anything outside.
type Stage[S any] struct {
	Name string // one of lifecycle's stage names
	Doc  string
	// Weight is the stage's share of the progress, unless Percent says what the
	// job has reached when the stage is done.
	Weight, Percent int
	// ActionType names the stage in the action log; "" is its name.
	ActionType string
	// Deadline is the default; what happens then is DeadlineClass.
	Deadline      time.Duration
	DeadlineClass lifecycle.FailureClass
	// Waits marks a stage that waits on the outside world and can be
	// interrupted at any moment by cancel, freeze and adopt.
	Waits bool
	// Skip returns why the stage is not needed; "" runs it.
	Skip func(s *S) string
	Run  func(ctx workflow.Context, s *S) error
	// Observe reads whether the outcome is already there. Nil means that repeating Run is cheap and
	// harmless.
	Observe func(ctx workflow.Context, s *S) (Observation, error)
	// Adoptable lists the observed states that adopt_observed_state may
	// accept at this stage without accept_risk.
	Adoptable []string
	// Adopt carries out what an operator has decided with adopt_observed_state, before the stage
	// counts as adopted. An error refuses the action. It must be repeatable. Nil needs no decision,
	// and refuses an action that has one.
	Adopt func(ctx workflow.Context, s *S, entry contract.ActionEntry) error
	// Retries says how often the stage is repeated after its own failures that may be repeated,
	// whatever their class. Nil leaves that to the failure classes.
	Retries *int
	// Undo compensates; nil means there is nothing to undo.
	Undo func(ctx workflow.Context, s *S) error
	// VerifyUndo proves the Undo. It reads the outside system again and names what the stage has
	// left there, or returns "" for nothing. It changes nothing.
	VerifyUndo func(ctx workflow.Context, s *S) (string, error)
	// HasUndo reports whether there is something to undo. Nil means always. A stage without
	// anything to undo keeps its state.
	HasUndo func(s *S, row lifecycle.StageRow) bool
}

// Observation is what a stage found without changing anything.
type Observation struct {
	Done  bool
	State string // e.g. the MAAS label
	Note  string
	// Refused says why the observed state may not be adopted, even by an operator who accepts the
	// risk. It is empty when it may.
	Refused string
}

// StageError is a failure that the workflow itself has decided. The typed error of an activity is a
// failure that an outside system has caused.
type StageError struct {
	Class   lifecycle.FailureClass
	Message string
}

func (f *StageError) Error() string { return fmt.Sprintf("%s: %s", f.Class, f.Message) }

// Fail returns a StageError.
func Fail(c lifecycle.FailureClass, format string, args ...any) error {
	return &StageError{Class: c, Message: fmt.Sprintf(format, args...)}
}

type cancelJob struct{ why string }

func (c *cancelJob) Error() string { return "the job is not needed any more: " + c.why }

// Cancel ends the job when a stage's Run returns it, as an operator's cancel does: completed stages
// are compensated.
func Cancel(why string) error { return &cancelJob{why} }

type goToStage struct{ stage string }

func (b *goToStage) Error() string { return "go back to " + b.stage }

// GoTo continues the job at an earlier stage when a stage's Run returns it. The stages in between
// run again.
func GoTo(to string) error { return &goToStage{to} }

// GoesTo returns the stage at which an error of GoTo continues.
func GoesTo(err error) (string, bool) {
	var to *goToStage
	if errors.As(err, &to) {
		return to.stage, true
	}
	return "", false
}
