package contract

import "time"

// Pass is a row of the table of passes: periodic work that a Schedule starts. A pass that could not
// run at its time is not made up for later, since the next one does what is due. While a pass runs,
// the next one does not start.
type Pass struct {
	// Workflow is the name of the workflow, registered explicitly so that a Go rename cannot change
	// it.
	Workflow string
	// ID is the first part of the id of the Schedule. The task queue follows, so that installations
	// that share a namespace have a Schedule each.
	ID      string
	Summary string // for the Temporal Web UI
	// Every is the time between two passes. It is 0 where a setting says that.
	Every time.Duration
	// RunLimit ends a pass whose worker is gone, so that the next one is not skipped for ever.
	RunLimit time.Duration
	// Pinned passes stay on the build that they began with. Every other pass is short and starts
	// from the beginning each time, so that it may change its build.
	Pinned bool
}

// The passes.
var (
	SweepPass    = Pass{Workflow: "Sweep", ID: "sweep", Summary: "looks for jobs that are stuck", RunLimit: time.Minute}
	BillPass     = Pass{Workflow: "Bill", ID: "bill", Summary: "charges what runs", Every: time.Minute, RunLimit: 6 * time.Minute}
	PaymentsPass = Pass{
		Workflow: "Payments", ID: "payments", Summary: "compares payments with the payment provider", Every: time.Minute, RunLimit: time.Hour,
	}
	InstancesPass = Pass{
		Workflow: "Instances", ID: "instances", Summary: "compares instances with their providers", Every: time.Minute, RunLimit: 40 * time.Minute,
	}
	// ReconcilePass has a Schedule for each site.
	ReconcilePass = Pass{Workflow: "Reconcile", ID: "reconcile", Summary: "compares a site with what is known of it", RunLimit: time.Hour, Pinned: true}
)

// Passes is the table of passes.
var Passes = []Pass{SweepPass, BillPass, PaymentsPass, InstancesPass, ReconcilePass}
