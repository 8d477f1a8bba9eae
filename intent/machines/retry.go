package machines

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// Retry is what an operator does with a run that failed.
type Retry struct {
	RunID, RequestID string
	Action           lifecycle.Action
	Reason           string
	AcceptRisk       bool
	// Offers returns the capabilities of a provider, nothing of one that does not exist.
	Offers func(provider string) []runplan.Capability
	// LogsIn is that of Start.
	LogsIn func(provider string) bool
}

const maxReason = 500

// RetryRun writes a run in the place of one that FAILED, with its job. ActionRetryStage and
// ActionResume carry out the steps from the first one that has not succeeded; they are refused when
// the machine had another run since, which may have undone what those before it did. ActionRerun
// and ActionRestartClean carry out all steps. The steps are those that the failed run stored. A
// repeated request returns the run that it has made.
func RetryRun(ctx context.Context, tx *db.Tx, in Retry, actor db.Actor) (machinesdb.Run, error) {
	failed, err := machinesdb.GetRun(ctx, tx, in.RunID)
	if err != nil {
		return machinesdb.Run{}, err
	}
	m, err := machinesdb.Lock(ctx, tx, failed.MachineID)
	if err != nil {
		return machinesdb.Run{}, err
	}
	if err := checkRequestID(in.RequestID, ""); err != nil {
		return machinesdb.Run{}, err
	}
	if len(in.Reason) > maxReason {
		return machinesdb.Run{}, invalid("reason", fmt.Sprintf("must be at most %d bytes", maxReason))
	}
	first, err := machinesdb.FindRunOfRequest(ctx, tx, m.ID, in.RequestID)
	if !errors.Is(err, db.ErrNotFound) {
		if err == nil && (first.RetryOf == nil || *first.RetryOf != failed.ID) {
			err = invalid("request_id", fmt.Sprintf("was used for run %s, which is no retry of this one; send another one", first.ID))
		}
		return first, err
	}
	if text(failed.ProjectID) != text(m.ProjectID) {
		return machinesdb.Run{}, &intent.Refusal{
			Kind: intent.ActionRefused, Existing: failed.ID, Detail: "the machine was in another project when the run failed; start a run with a plan of its own",
		}
	}
	steps, err := stepsOfRetry(ctx, tx, in.Action, failed)
	if err != nil {
		return machinesdb.Run{}, err
	}
	actor.Comment = string(in.Action) + " of run " + failed.ID
	if in.Reason != "" {
		actor.Comment += ": " + in.Reason
	}
	start := Start{RequestID: in.RequestID, MachineID: m.ID, Type: failed.Type, PlanID: failed.PlanID, AcceptRisk: in.AcceptRisk, Offers: in.Offers, LogsIn: in.LogsIn, retryOf: failed.ID}
	return begin(ctx, tx, start, m, runplan.Plan{ID: failed.PlanID, Steps: steps}, actor)
}

// stepsOfRetry returns the steps that an action carries out.
func stepsOfRetry(ctx context.Context, tx *db.Tx, a lifecycle.Action, failed machinesdb.Run) ([]runplan.Step, error) {
	refuse := func(format string, args ...any) error {
		return &intent.Refusal{Kind: intent.ActionRefused, Existing: failed.ID, Detail: fmt.Sprintf(format, args...)}
	}
	switch a {
	case lifecycle.ActionRetryStage, lifecycle.ActionResume, lifecycle.ActionRerun, lifecycle.ActionRestartClean:
	case lifecycle.ActionAdopt:
		return nil, refuse("nothing that is seen of a machine proves that a step of a plan has run; use retry_stage, or rerun for all steps")
	case lifecycle.ActionCancel, lifecycle.ActionMarkManual:
		return nil, invalid("action", "a run that has ended takes retry_stage, resume, rerun or restart_clean")
	default:
		return nil, invalid("action", "must be retry_stage, resume, rerun or restart_clean")
	}
	if failed.Status != lifecycle.RunFailed {
		return nil, refuse("run %s is %s; only one that FAILED is retried", failed.ID, failed.Status)
	}
	if a == lifecycle.ActionRerun || a == lifecycle.ActionRestartClean {
		return failed.Steps, nil
	}
	last, err := machinesdb.LastRun(ctx, tx, failed.MachineID)
	if err != nil {
		return nil, err
	}
	if last != failed.ID {
		return nil, refuse("the machine had run %s since, which may have undone what the steps did; use rerun for all steps", last)
	}
	from := slices.IndexFunc(machinesdb.ViewOf(failed).Steps, func(row lifecycle.StageRow) bool {
		return lifecycle.StepStateOf(row.State) != lifecycle.StepSucceeded || row.State == lifecycle.StageUndone
	})
	if from < 0 {
		from = 0
	}
	return failed.Steps[from:], nil
}
