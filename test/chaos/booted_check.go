package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/db"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
)

// check compares a job that ended with what its mode does. The machine is the
// case's own: what is counted is counted from its first boot.
func (b booted) check(ctx context.Context, t *Target, end lifecycle.JobStatus) []Finding {
	f := &findings{}
	f.exactly("installations of the old hardware", 1, t.Machine.Counters().Installs)
	f.exactly("BMC logins refused", 0, t.Booted.BMC.Counters().FailedLogins)
	erased, err := t.Booted.Disk.Erasures()
	if err != nil {
		f.add(WrongEnd, "%v", err)
	}
	// An agent that is killed finds what was under way in its notes; a live system
	// that was restarted has none, and is asked once more.
	for disk, n := range erased {
		f.atMost("erasures of "+disk, max(1, b.scrubs(ctx, f, t))+t.kills(), n)
	}
	switch end {
	case noExpectedEnd:
		f.certificates(ctx, t)
		if t.Fresh != nil {
			f.atMost("installations of the new hardware", 1, t.Fresh.Hardware.Counters().Installs)
		}
	case lifecycle.JobCompleted:
		b.completed(ctx, f, t)
	default:
		b.cancelled(ctx, f, t)
	}
	return f.list
}

// scrubs is how often a scrub was asked for.
func (b booted) scrubs(ctx context.Context, f *findings, t *Target) int {
	rows, err := t.Store.ListTasks(ctx, db.TaskFilter{JobID: t.jobID()}, "", pageOfTasks)
	if err != nil {
		f.add(WrongEnd, "%v", err)
	}
	n := 0
	for _, r := range rows {
		n += one(r.Kind == lifecycle.TaskKindScrub)
	}
	return n
}

// certificates: a run has one at most, whatever its end.
func (f *findings) certificates(ctx context.Context, t *Target) {
	rows, err := evidencedb.CertificatesOfNode(ctx, t.Store, t.NodeID)
	if err != nil {
		f.add(WrongEnd, "%v", err)
	}
	n := 0
	for _, r := range rows {
		n += one(r.RunID == t.jobID())
	}
	f.atMost("certificates of the run", 1, n)
}

func (b booted) completed(ctx context.Context, f *findings, t *Target) {
	n, err := t.Store.Node(ctx, t.NodeID)
	if err != nil || n.Status != b.Ends || n.AllocationID != nil {
		f.add(WrongEnd, "the node is %s (%v), should be %s and nobody's", n.Status, err, b.Ends)
	}
	b.clean(f, t)
	if !eventually(ctx, 10*time.Second, func() bool { return t.Machine.Power() == simhw.Off }) {
		f.add(WrongEnd, "the old machine is %s, should be off", t.Machine.Power())
	}
	rows, err := evidencedb.CertificatesOfNode(ctx, t.Store, t.NodeID)
	if err != nil {
		f.add(WrongEnd, "%v", err)
	}
	f.exactly("certificates of the run", 1, len(rows))
	b.disarmed(ctx, f, t)
	if t.Fresh != nil {
		f.exactly("installations of the new hardware", 1, t.Fresh.Hardware.Counters().Installs)
		if !t.Fresh.Hardware.OSUp() || !slices.Equal(n.MACs, []string{t.Fresh.MAC()}) {
			f.add(WrongEnd, "the node has %v, and the system of the new hardware is up: %t", n.MACs, t.Fresh.Hardware.OSUp())
		}
	}
}

// clean: nothing of the tenant or the system is on any disk.
func (b booted) clean(f *findings, t *Target) {
	for _, d := range t.Machine.Spec().Disks {
		for _, mark := range []string{simnode.TenantMark, simnode.SystemMark} {
			if held, err := t.Booted.Disk.DiskHolds(d.Name, mark); err != nil || held {
				f.add(WrongEnd, "%s is still on %s (%v)", mark, d.Name, err)
			}
		}
	}
}

func (b booted) disarmed(ctx context.Context, f *findings, t *Target) {
	if p, err := t.Store.PXENode(ctx, t.NodeID); err != nil || db.Armed(p) {
		f.add(WrongEnd, "a netboot is still armed (%v)", err)
	}
}

// cancelled: the node stays in the state of the job, or is retired already; its
// netboot is taken back, and no task goes on.
func (b booted) cancelled(ctx context.Context, f *findings, t *Target) {
	n, err := t.Store.Node(ctx, t.NodeID)
	switch {
	case err == nil && n.Status == b.Enters:
	case err == nil && b.Mode == lifecycle.ModeDeprovision && n.Status == b.Ends: // it came when all was done but the rest
		b.clean(f, t)
	default:
		f.add(WrongEnd, "the node is %s (%v) after the cancellation, should be %s", n.Status, err, b.Enters)
	}
	b.disarmed(ctx, f, t)
	var open string
	if !eventually(ctx, 20*time.Second, func() bool {
		rows, err := t.Store.ListTasks(ctx, db.TaskFilter{JobID: t.jobID()}, "", pageOfTasks)
		var live []string
		for _, r := range rows {
			if r.Status == lifecycle.TaskQueued || r.Status == lifecycle.TaskDispatched {
				live = append(live, fmt.Sprintf("%s (%s) is %s", r.ID, r.Kind, r.Status))
			}
		}
		open = strings.Join(live, ", ")
		return err == nil && open == ""
	}) {
		f.add(WrongEnd, "after the cancellation %s", open)
	}
}
