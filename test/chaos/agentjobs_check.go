package chaos

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// checkAgentJob compares a job that ended with what it may do: it touches neither MAAS nor the BMC,
// erases nothing, and leaves a node in service whose agent speaks.
func checkAgentJob(check agentCheck) func(context.Context, *Target, lifecycle.JobStatus) []Finding {
	return func(ctx context.Context, t *Target, end lifecycle.JobStatus) []Finding {
		f := &findings{}
		now, err := t.effects(ctx)
		if err != nil {
			f.add(WrongEnd, "%v", err)
			return f.list
		}
		did := now.since(t.before)
		f.none("changes at MAAS", sum(did.maas))
		f.none("resets by the BMC", sum(did.bmc.Resets))
		f.none("erasures", sum(did.erased))
		f.none("installations", did.machine.Installs)
		check(ctx, f, t, did, end)
		if end != noExpectedEnd {
			f.serves(ctx, t)
		}
		return f.list
	}
}

// speaks is how long the agent of a node in service may be silent: it may be starting again.
const speaks = 30 * time.Second

// serves: the node is in service, and its agent sends a heartbeat after the end of the job.
func (f *findings) serves(ctx context.Context, t *Target) {
	n, err := t.Store.Node(ctx, t.NodeID)
	if err != nil || n.Status != lifecycle.NodeActive {
		f.add(WrongEnd, "the node is %s (%v), should be active", n.Status, err)
	}
	now, err := t.Store.Clock(ctx)
	if err != nil || !eventually(ctx, speaks, func() bool {
		last, err := t.Store.LatestHeartbeat(ctx, t.NodeID)
		return err == nil && last.ReceivedAt.After(now)
	}) {
		f.add(WrongEnd, "the agent is silent after the end of the job (%v)", err)
	}
}

// reissued: one new generation of the identity, or none after a cancellation, and no token is left.
func reissued(ctx context.Context, f *findings, t *Target, did effects, end lifecycle.JobStatus) {
	if end == lifecycle.JobCompleted {
		f.exactly("new generations of the identity", 1, int(did.generation))
	}
	f.atMost("new generations of the identity", 1, int(did.generation))
	if end == noExpectedEnd {
		return
	}
	if left, err := t.Store.OpenTokensOfJob(ctx, t.jobID()); err != nil || left > 0 {
		f.add(WrongEnd, "%d enrolment tokens of the job can still be used (%v)", left, err)
	}
}

// updated: the agent was asked once, reports the release, and keeps its identity. After a
// cancellation it is what it was, or the release.
func updated(ctx context.Context, f *findings, t *Target, did effects, end lifecycle.JobStatus) {
	f.none("new generations of the identity", int(did.generation))
	rows, err := t.Store.ListTasks(ctx, db.TaskFilter{JobID: t.jobID()}, "", pageOfTasks)
	if err != nil {
		f.add(WrongEnd, "%v", err)
	}
	f.atMost("tasks of the job", 1, len(rows))
	switch end {
	case noExpectedEnd:
	case lifecycle.JobCompleted:
		f.exactly("tasks of the job", 1, len(rows))
		if last, err := t.Store.LatestHeartbeat(ctx, t.NodeID); err != nil || last.AgentVersion != t.release() {
			f.add(WrongEnd, "the agent reports %s (%v), should be %s", last.AgentVersion, err, t.release())
		}
	default:
		for _, r := range rows {
			if !lifecycle.NodeTask.Terminal(r.Status) {
				f.add(WrongEnd, "after the cancellation task %s (%s) is %s", r.ID, r.Kind, r.Status)
			}
		}
	}
}
