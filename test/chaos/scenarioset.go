package chaos

import (
	"context"
	"slices"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// ScenarioSet is a job kind as the harness knows it.
type ScenarioSet struct {
	// Name tells the scenario set from another of the same job kind.
	Name string
	Kind contract.JobKind
	// Stages are all stages of the kind; each meets each kind of fault.
	Stages []string
	// Strata are the kinds of fault that are required on the set; none stands for all.
	Strata []Kind
	// Paths are the ways that a job may take.
	Paths []Path
	// Also are boundaries that jobs meet only after some faults.
	Also []Point
	// Start accepts a job for a target, under the id t.Job.ID or one of its own, in one
	// transaction.
	Start func(ctx context.Context, tx *db.Tx, t *Target) (db.Job, error)
}

// Path is one way that a job of a kind takes through its stages.
type Path struct {
	Name string
	// From is the state of the node that a case of the path begins with; "" for
	// none, which is a bare machine. Keeps is the state in which a job that
	// completes leaves it for another case, "" where it does not. Mode is what
	// is done with it.
	From, Keeps lifecycle.NodeStatus
	Mode        lifecycle.DecommissionMode
	// Boots: the case begins with a machine of its own that boots from the
	// network, in service.
	Boots bool
	// Cloud: the case is about an instance at the simulated cloud provider, and
	// has no machine.
	Cloud bool
	// Points are the boundaries that this path is sure to meet.
	Points []Point
	// First comes before the generated faults of every case of the path: the
	// cancellation whose compensation gets the faults.
	First []Fault
	// NoCancel keeps cancellations out of the generated faults.
	NoCancel bool
	// Ends are the ends that a job of the path may come to beside those that its faults allow; none
	// stands for completed.
	Ends []lifecycle.JobStatus
	// Parked does what an operator would do for a job that is parked. It returns false when that is
	// no job of his; nil stands for never.
	Parked func(ctx context.Context, t *Target, job db.Job) bool
	// Prepare makes the outside such that the job takes this path.
	Prepare func(ctx context.Context, t *Target) error
	// Check returns what is wrong with a job that ended as expected. With end noExpectedEnd it
	// returns only the effects that the job had more often than it should.
	Check func(ctx context.Context, t *Target, end lifecycle.JobStatus) []Finding
}

// noExpectedEnd tells a check that the job has not ended, or not as expected.
const noExpectedEnd lifecycle.JobStatus = ""

func (p *ScenarioSet) path(name string) *Path {
	for i := range p.Paths {
		if p.Paths[i].Name == name {
			return &p.Paths[i]
		}
	}
	return nil
}

// requires reports whether a kind of fault is required on the set.
func (p *ScenarioSet) requires(k Kind) bool {
	return len(p.Strata) == 0 || slices.Contains(p.Strata, k)
}

// beginsInService reports whether cases of a path begin with a node in service.
func (p *ScenarioSet) beginsInService() bool {
	return slices.ContainsFunc(p.Paths, func(path Path) bool { return path.From != "" })
}

// Plays reports whether a case is one of the set's.
func (p *ScenarioSet) Plays(c Case) bool { return p.Kind == c.Job && p.path(c.Path) != nil }

func (p *ScenarioSet) pathNames() []string {
	var names []string
	for _, one := range p.Paths {
		names = append(names, one.Name)
	}
	return names
}

// Verdict is what a case may be found to have done wrong.
type Verdict string

// The verdicts.
const (
	Duplicate  Verdict = "duplicate"   // something outside happened more often than it should
	Stuck      Verdict = "stuck"       // the job did not end in time
	WrongEnd   Verdict = "wrong end"   // it ended, or parked, otherwise than it should
	Invariant  Verdict = "invariant"   // the database holds what it must not hold
	NotReached Verdict = "not reached" // a fault was never injected: the harness itself is wrong
)

// Verdicts lists them in the order of the report.
func Verdicts() []Verdict { return []Verdict{Duplicate, Stuck, WrongEnd, Invariant, NotReached} }

// Finding is one thing that is wrong.
type Finding struct {
	Verdict Verdict
	Text    string
}
