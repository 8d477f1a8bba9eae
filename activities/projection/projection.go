// Package projection writes a job's visible state (job, stages, node, audit,
// events) from its workflow into Postgres, and reads it back when a run starts.
// Both activities are local: one short transaction each, repeated without harm.
package projection

import (
	"context"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/docs"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Store is where projections go: the database, or a test's memory.
type Store interface {
	// LoadJob reads the last projected state.
	LoadJob(ctx context.Context, in contract.JobInput) (contract.Snapshot, error)
	// TakeJob reads it for the run that takes the job up, and marks it as taken
	// up: nobody acts on it as unstarted any more.
	TakeJob(ctx context.Context, in contract.JobInput) (contract.Snapshot, error)
	// ProjectJob applies a projection in one transaction if its sequence
	// number is higher than the stored one.
	ProjectJob(ctx context.Context, p contract.Projection) (contract.ProjectResult, error)
	// VerifyAction returns why an action is not proven, "" when it is.
	VerifyAction(ctx context.Context, in contract.ActionCheck) (unproven string, err error)
}

// Activities is what these activities need.
type Activities struct {
	Store Store
	// PublicURL is how people reach the API; runbooks are served below it.
	PublicURL string
}

// LoadJob returns the last projected state of a job.
func (a *Activities) LoadJob(ctx context.Context, in contract.JobInput) (contract.Snapshot, error) {
	snap, err := a.Store.LoadJob(ctx, in)
	return snap, fault.Projection(ctx, err)
}

// TakeJob returns the last projected state to the run that goes on from it.
func (a *Activities) TakeJob(ctx context.Context, in contract.JobInput) (contract.Snapshot, error) {
	snap, err := a.Store.TakeJob(ctx, in)
	return snap, fault.Projection(ctx, err)
}

// ProjectJob writes one step of a job. A late or repeated step changes nothing. The result has the
// URL of the runbook while the job has a failure.
func (a *Activities) ProjectJob(ctx context.Context, p contract.Projection) (contract.ProjectResult, error) {
	res, err := a.Store.ProjectJob(ctx, p)
	if p.Failure != nil {
		res.Runbook = docs.URL(a.PublicURL, lifecycle.Failure(p.Failure.Class).Runbook())
	}
	return res, fault.Projection(ctx, err)
}
