package temporalx

import (
	"cmp"
	"context"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/workflows/contract"
)

// Reconciles are the Schedules that have sites compared with what is known of
// them, one a site. Their ids name the task queue, as the sweeper's does.
type Reconciles struct {
	Client    client.Client
	TaskQueue string
}

// A pass that hangs ends by itself, so that the next is not skipped for ever.
// One that could not run at its time is made up for by the next.
const (
	reconcileRunLimit = time.Hour
	reconcileCatchUp  = 10 * time.Second
)

// withoutSite stands in an id for the nodes that belong to no site. No site's id is like it.
const withoutSite = "nodes-without-site"

// ID is the id of a site's Schedule and of its workflow. The site "" is the nodes without one.
func (r Reconciles) ID(siteID string) string {
	return "reconcile/" + r.TaskQueue + "/" + cmp.Or(siteID, withoutSite)
}

// Ensure makes a site's Schedule, or brings the one that is there to this
// program's settings; it stays paused when somebody paused it. Repeatable.
func (r Reconciles) Ensure(ctx context.Context, siteID string, every time.Duration) error {
	return ensureSchedule(ctx, r.Client, every, reconcileCatchUp, &client.ScheduleWorkflowAction{
		ID: r.ID(siteID), Workflow: contract.ReconcileWorkflow, TaskQueue: r.TaskQueue, WorkflowRunTimeout: reconcileRunLimit,
		Args: []any{contract.ReconcileInput{SiteID: siteID}}, StaticSummary: "compares a site with what is known of it",
	})
}

// Now has a pass made at once, unless one is at work.
func (r Reconciles) Now(ctx context.Context, siteID string) error {
	ctx, cancel := context.WithTimeout(ctx, scheduleMethod)
	defer cancel()
	return r.Client.ScheduleClient().GetHandle(ctx, r.ID(siteID)).Trigger(ctx, client.ScheduleTriggerOptions{})
}

// Remove deletes a site's Schedule; one that is not there is no error.
func (r Reconciles) Remove(ctx context.Context, siteID string) error {
	return removeSchedule(ctx, r.Client, r.ID(siteID))
}
