package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// times is how often a path has a machine commissioned and deployed.
type times struct{ commissions, deploys int }

// onboarded checks what an onboarding did outside.
func onboarded(n times) func(context.Context, *Target, lifecycle.JobStatus) []Finding {
	return func(ctx context.Context, t *Target, end lifecycle.JobStatus) []Finding {
		f := &findings{}
		id, err := t.SystemID(ctx)
		if err != nil {
			f.add(WrongEnd, "%v", err)
			return f.list
		}
		switch end {
		case noExpectedEnd:
			f.bounds(t, id, n)
			f.enrolment(ctx, t, end)
		case lifecycle.JobCancelled:
			f.cancelled(ctx, t, id, n)
		default:
			f.completed(ctx, t, id, n)
		}
		f.bmc(t, end)
		return f.list
	}
}

type findings struct{ list []Finding }

func (f *findings) add(v Verdict, format string, args ...any) {
	f.list = append(f.list, Finding{Verdict: v, Text: fmt.Sprintf(format, args...)})
}

// exactly finds a count that is not as it should be: too many is a duplicate,
// too few an effect that the job only believes in.
func (f *findings) exactly(what string, want, got int) {
	switch {
	case got > want:
		f.add(Duplicate, "%s: %d, should be %d", what, got, want)
	case got < want:
		f.add(WrongEnd, "%s: %d, should be %d", what, got, want)
	}
}

func (f *findings) atMost(what string, most, got int) {
	if got > most {
		f.add(Duplicate, "%s: %d, should be %d at most", what, got, most)
	}
}

// none finds what should be gone.
func (f *findings) none(what string, got int) {
	if got > 0 {
		f.add(WrongEnd, "%s: %d, should be none", what, got)
	}
}

func (f *findings) completed(ctx context.Context, t *Target, id string, n times) {
	c := t.Stack.Sims.MAAS.Counters().Machines[id]
	for what, want := range map[string]int{
		"creates": 1, "commissions": n.commissions, "enlistments": 0, "allocations": n.deploys, "deploys": n.deploys, "releases": n.deploys - 1,
		"aborts": 0, "deletes": 0,
	} {
		f.exactly("MAAS "+what, want, c[what])
	}
	f.settings(t, c, 1)
	f.exactly("MAAS links that are left", 2, c["links"]-c["unlinks"])
	f.exactly("installations", n.deploys, t.Machine.Counters().Installs)
	node, err := t.Store.Node(ctx, *t.Job.NodeID)
	if err != nil || node.Status != lifecycle.NodeActive {
		f.add(WrongEnd, "the node is %s (%v), should be active", node.Status, err)
	}
	f.enrolment(ctx, t, lifecycle.JobCompleted)
}

// settings are made once, and once more for each time that two executions ran at
// a time: neither could read what the other was about to set. To set the same
// again is harmless; a link too many has to be taken away again.
func (f *findings) settings(t *Target, c map[string]int, least int) {
	storage, net := t.Overlaps("ConfigureStorage"), t.Overlaps("EnsurePXEInterfaceAuto")
	for what, most := range map[string]int{"boot_disks": 1 + storage, "layouts": 1 + storage, "links": 2 + net, "unlinks": net} {
		f.atMost("MAAS "+what, most, c[what])
	}
	for _, what := range []string{"boot_disks", "layouts"} {
		if c[what] < least {
			f.add(WrongEnd, "MAAS %s: %d, should be %d", what, c[what], least)
		}
	}
}

// bounds is how often each effect may be made, whatever the end.
func (f *findings) bounds(t *Target, id string, n times) {
	c := t.Stack.Sims.MAAS.Counters().Machines[id]
	for what, most := range map[string]int{
		"creates": 1, "commissions": n.commissions, "enlistments": 0, "allocations": n.deploys, "deploys": n.deploys, "releases": n.deploys,
		"aborts": 1, "deletes": 1,
	} {
		f.atMost("MAAS "+what, most, c[what])
	}
	f.settings(t, c, 0)
	f.atMost("installations", n.deploys, t.Machine.Counters().Installs)
}

func (f *findings) cancelled(ctx context.Context, t *Target, id string, n times) {
	f.bounds(t, id, n)
	c := t.Stack.Sims.MAAS.Counters().Machines[id]
	f.exactly("MAAS deletes of what was created", c["creates"], c["deletes"])
	f.exactly("MAAS releases of what was allocated", c["allocations"], c["releases"])
	if !eventually(ctx, 10*time.Second, func() bool { return t.Machine.Power() == simhw.Off }) {
		f.add(WrongEnd, "the machine is %s after the cancellation, should be off", t.Machine.Power())
	}
	node, err := t.Store.Node(ctx, *t.Job.NodeID)
	if err != nil || (node.Status != lifecycle.NodeQuarantined && node.Status != lifecycle.NodeBootstrapIssued) {
		f.add(WrongEnd, "the node is %s (%v) after the cancellation", node.Status, err)
	}
	f.enrolment(ctx, t, lifecycle.JobCancelled)
}

// enrolment counts tokens and identities.
func (f *findings) enrolment(ctx context.Context, t *Target, end lifecycle.JobStatus) {
	c, err := pgx.Connect(ctx, t.DSN)
	if err != nil {
		f.add(WrongEnd, "%v", err)
		return
	}
	defer c.Close(ctx) //nolint:errcheck // a connection of the harness
	var used, good, certs, unlocked int
	err = c.QueryRow(ctx, `SELECT
		(SELECT count(*) FROM enrollment_tokens WHERE node_id = $1 AND used_at IS NOT NULL),
		(SELECT count(*) FROM enrollment_tokens WHERE node_id = $1 AND used_at IS NULL AND revoked_at IS NULL),
		(SELECT count(*) FROM agent_certificates WHERE node_id = $1),
		(SELECT count(*) FROM agent_identities WHERE node_id = $1 AND locked_at IS NULL)`, *t.Job.NodeID).Scan(&used, &good, &certs, &unlocked)
	if err != nil {
		f.add(WrongEnd, "%v", err)
		return
	}
	switch end {
	case noExpectedEnd:
		f.atMost("tokens redeemed", 1, used)
		return
	case lifecycle.JobCancelled:
		f.atMost("tokens redeemed", 1, used)
		f.none("agents that may still speak", unlocked)
	default:
		f.exactly("tokens redeemed", 1, used)
		f.exactly("agent identities", 1, unlocked)
	}
	f.exactly("certificates for redeemed tokens", used, certs)
	f.none("tokens that are still good", good)
}

// bmc: Slipway logs in to identify, and changes nothing. A job without its expected end may have a
// session open, and may have logged in more often.
func (f *findings) bmc(t *Target, end lifecycle.JobStatus) {
	c := t.Stack.Sims.BMCs[t.Machine.Spec().ID].Counters()
	f.exactly("BMC power cycles by Slipway", 0, c.PowerCycles)
	f.exactly("BMC resets by Slipway", 0, len(c.Resets)+c.BMCResets)
	f.exactly("BMC writes by Slipway", 0, c.Patches)
	f.exactly("BMC logins refused", 0, c.FailedLogins)
	if end == noExpectedEnd {
		return
	}
	f.atMost("BMC logins", 1+3*len(t.Case.Faults)+t.waits(), c.Logins)
	f.atMost("BMC sessions left open", 3*len(t.Case.Faults), c.Sessions)
}

// eventually polls until ok, for at most d, and for longer when the machine becomes slower
// meanwhile.
func eventually(ctx context.Context, d time.Duration, ok func() bool) bool {
	began, limit := time.Now(), stretching(d)
	for !ok() {
		if ctx.Err() != nil || time.Since(began) > limit() {
			return false
		}
		pause(ctx, 50*time.Millisecond)
	}
	return true
}

// stretching returns a function that returns d, or longer by as much as the machine has become
// slower since.
func stretching(d time.Duration) func() time.Duration { return stretchingBy(d, runenv.Patience) }

func stretchingBy(d time.Duration, patience func(time.Duration) time.Duration) func() time.Duration {
	before := patience(time.Second)
	return func() time.Duration {
		return time.Duration(float64(d) * float64(patience(time.Second)) / float64(before))
	}
}
