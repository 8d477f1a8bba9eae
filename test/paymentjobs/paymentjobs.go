// Package paymentjobs runs the jobs of payments in tests that have no Temporal: the real
// activities, in the order of the stages, with the projections of the job between them. It stands
// in for the stage runner alone, whose own tests are in workflows/paymentjob.
package paymentjobs

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"

	paymentsact "github.com/slipway-cloud/slipway/activities/payments"
	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Runner runs jobs of payments.
type Runner struct {
	Store *db.Store
	Acts  *paymentsact.Activities
}

// Due runs every job of a payment that is pending or running, as far as it comes. A job that an
// error without a failure class interrupts, or one of an unavailable provider, is left running: the
// next call continues it, as the stage runner does. A job that fails otherwise is parked.
func (r Runner) Due(ctx context.Context) error {
	for _, status := range []lifecycle.JobStatus{lifecycle.JobPending, lifecycle.JobRunning} {
		jobs, err := r.Store.ListJobs(ctx, db.JobFilter{Kind: string(contract.KindPaymentReconcile), Status: string(status)}, "", 200)
		if err != nil {
			return err
		}
		for _, j := range jobs {
			if err := r.Run(ctx, j.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// Run runs one job from its first stage. A parked job is taken up as retry_stage does.
func (r Runner) Run(ctx context.Context, jobID string) error {
	job, err := r.Store.TakeJob(ctx, jobID)
	if err != nil || lifecycle.Job.Terminal(job.Status) {
		return err
	}
	run := &running{Runner: r, ctx: ctx, job: job, seq: job.Seq}
	stages := []struct {
		name string
		act  func(context.Context, contract.JobRef) (contract.PaymentFacts, error)
	}{
		{lifecycle.StageReadSession, r.Acts.ReadPayment}, {lifecycle.StageMatchAmount, r.Acts.MatchPayment},
		{lifecycle.StagePostCredit, r.Acts.CreditPayment}, {lifecycle.StageConfirm, r.Acts.ConfirmPayment},
	}
	ref := contract.JobRef{JobID: job.ID, ResourceID: job.ResourceID}
	for i, st := range stages {
		if err := run.project(i, lifecycle.JobRunning, nil); err != nil {
			return err
		}
		facts, err := st.act(ctx, ref.At(st.name))
		for try := 1; classOf(err) == lifecycle.FailPaymentCredit && try < r.Acts.Sync.Policy.CreditMaxAttempts; try++ {
			facts, err = st.act(ctx, ref.At(st.name))
		}
		if err != nil {
			return run.failAt(i, err)
		}
		if !facts.Paid {
			break
		}
	}
	return run.project(len(stages)-1, lifecycle.JobCompleted, nil)
}

type running struct {
	Runner
	ctx context.Context
	job db.Job
	seq int64
}

func classOf(err error) lifecycle.FailureClass {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return ""
	}
	return lifecycle.FailureClass(app.Type())
}

func (r *running) failAt(at int, err error) error {
	again := []lifecycle.FailureClass{"", lifecycle.FailPaymentsUnavailable, lifecycle.FailPaymentsRejected, lifecycle.FailStoreUnavailable, lifecycle.FailInternal}
	if slices.Contains(again, classOf(err)) {
		return err
	}
	var app *temporal.ApplicationError
	errors.As(err, &app)
	f := &contract.Failure{Class: classOf(err), Stage: contract.Stages(contract.KindPaymentReconcile)[at], Message: app.Message()}
	return r.project(at, lifecycle.Failure(f.Class).ParkStatus(), f)
}

// project stores a step. at is the stage that runs.
func (r *running) project(at int, status lifecycle.JobStatus, f *contract.Failure) error {
	var rows []lifecycle.StageRow
	names := contract.Stages(contract.KindPaymentReconcile)
	for i, name := range names {
		state := lifecycle.StagePending
		switch {
		case i < at || status == lifecycle.JobCompleted:
			state = lifecycle.StageSucceeded
		case i == at && f != nil:
			state = lifecycle.StageFailed
		case i == at:
			state = lifecycle.StageRunning
		}
		rows = append(rows, lifecycle.StageRow{Ordinal: i + 1, Name: name, State: state, Attempts: 1})
	}
	r.seq++
	now := time.Now()
	_, err := projection.NewDatabase(r.Store).ProjectJob(r.ctx, contract.Projection{
		JobID: r.job.ID, Kind: contract.KindPaymentReconcile, RunID: "run-" + r.job.ID, Seq: r.seq, Status: status, Stage: names[at], StageOrdinal: at + 1,
		Attempt: 1, Stages: rows, Failure: f, At: &now, Moves: []contract.Move{*contract.PaymentMove{}.Move(r.job.ResourceID)},
	})
	return err
}
