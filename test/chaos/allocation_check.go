package chaos

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/slipway-cloud/slipway/contract"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/secretscan"
)

// checkProvision compares a provision that ended with what it may come to: the tenant has the node,
// or the node is free and nothing of him is left on it.
func (l letting) checkProvision(ctx context.Context, t *Target, end lifecycle.JobStatus) []Finding {
	f := &findings{}
	now, err := t.effects(ctx)
	if err != nil {
		f.add(WrongEnd, "%v", err)
		return f.list
	}
	did := now.since(t.before)
	f.exactly("BMC logins refused", 0, did.bmc.FailedLogins)
	if end == noExpectedEnd {
		f.atMost("installations", 1, did.machine.Installs)
		return f.list
	}
	if end == lifecycle.JobCancelled && !t.mayGiveUp() {
		j, _ := t.Store.Job(ctx, t.jobID())
		f.add(WrongEnd, "the provision gave up: %s %s", j.FailureClass, j.Message)
	}
	f.noSecrets(ctx, t, t.Case.Job, t.jobID())
	a, err := t.allocationEnds(ctx)
	if err == nil && a.Status == lifecycle.AllocationReleaseFailed && t.Case.Has(SiteCut) {
		a, err = t.retryRelease(ctx)
	}
	switch {
	case err != nil:
		f.add(WrongEnd, "%v", err)
	case a.Status == lifecycle.AllocationActive && (end != lifecycle.JobCompleted || t.wasGivenBack()):
		f.add(WrongEnd, "the job is %s, given back: %t, and the allocation is active", end, t.wasGivenBack())
	case a.Status == lifecycle.AllocationActive:
		f.changedOnlyMark(t, did)
		f.none("resets by the BMC", sum(did.bmc.Resets))
		f.none("installations", did.machine.Installs)
		l.lent(ctx, f, t, a)
	case lifecycle.Allocation.Terminal(a.Status):
		t.returned(ctx, f, a)
	default:
		j, _ := t.Store.LiveJobOfResource(ctx, allocationdb.Resource, a.ID)
		f.add(Stuck, "the allocation is %s after its job is %s; job %s is %s: %s %s", a.Status, end, j.ID, j.Status, j.FailureClass, j.Message)
	}
	return f.list
}

// mayGiveUp reports whether a provision of the case may end without its tenant having the node: he,
// or an operator, did not want it any more, an agent did not do what it was asked, or a worker died
// in the midst of a login to a BMC that locks its account.
func (t *Target) mayGiveUp() bool {
	return t.Case.Has(Cancel, ReleaseAsked, AgentKilled, WorkerKilled, PostgresKilled)
}

func (t *Target) wasGivenBack() bool { t.mu.Lock(); defer t.mu.Unlock(); return t.givenBack }

// changedOnlyMark: MAAS has the mark of the allocation, and nothing else was done there.
func (f *findings) changedOnlyMark(t *Target, did effects) {
	for what, n := range did.maas {
		if what != "annotations" {
			f.none("MAAS "+what, n)
		}
	}
	f.atMost("MAAS annotations", 1+t.Overlaps("MarkAllocation"), did.maas["annotations"])
}

// lent: the tenant, and nobody else, logs in with his own key, and is root where the SKU says so.
func (l letting) lent(ctx context.Context, f *findings, t *Target, a allocationdb.Allocation) {
	if a.Connection == nil || a.StartTime == nil || a.AccessGivenAt == nil || a.StartTime.Before(*a.AccessGivenAt) {
		f.add(WrongEnd, "the allocation is active without a connection, or was charged before its tenant had access")
		return
	}
	uid, err := t.tenant.Run(ctx, a.Connection, "id -u")
	if err != nil || uid == "0" {
		f.add(WrongEnd, "the tenant logs in with uid %q: %v", uid, err)
	}
	uid, err = t.tenant.Run(ctx, a.Connection, "sudo -n id -u")
	if root := err == nil && uid == "0"; root != l.root {
		f.add(WrongEnd, "the tenant becomes root: %t, should be %t", root, l.root)
	}
	keys, err := t.keyFiles(t.tenant)
	if want := filepath.Join("/home", a.Connection.User, ".ssh", "authorized_keys"); err != nil || len(keys) != 1 || keys[0].At != want {
		f.add(WrongEnd, "the tenant's key is in %v (%v), should be in %s alone", keys, errOrNone(err), want)
	}
	if n, err := t.Store.Node(ctx, t.NodeID); err != nil || n.AllocationID == nil || *n.AllocationID != a.ID {
		f.add(WrongEnd, "the node's occupant is %v (%v), should be %s", n.AllocationID, err, a.ID)
	}
	if mark := t.mark(); mark != a.ID {
		f.add(WrongEnd, "MAAS has the machine marked for %q, should be %s", mark, a.ID)
	}
}

// mark is the allocation that MAAS has the target's machine marked for, "" for none.
func (t *Target) mark() string { return t.markOf(t.before.systemID) }

func (t *Target) markOf(systemID string) string {
	v, _ := t.Stack.Sims.MAAS.Machine(systemID)
	return v.OwnerData[lifecycle.MAASAllocationMark]
}

// returned: an allocation that ended has no node, and its node is free and holds nothing of the
// tenant, or is quarantined.
func (t *Target) returned(ctx context.Context, f *findings, a allocationdb.Allocation) {
	n, err := t.Store.Node(ctx, t.NodeID)
	if err != nil {
		f.add(WrongEnd, "%v", err)
		return
	}
	if n.AllocationID != nil {
		f.add(WrongEnd, "the allocation is %s, and the node has allocation %s", a.Status, *n.AllocationID)
	}
	if a.StartTime != nil && (a.AccessEndedAt == nil || a.AccessEndedAt.Before(*a.StartTime)) {
		f.add(WrongEnd, "the tenant is charged from %s, and his access ended at %v", a.StartTime, a.AccessEndedAt)
	}
	if n.Status == lifecycle.NodeQuarantined {
		return // it is nobody's until an operator has looked
	}
	if n.TenantLeftAt != nil {
		f.add(WrongEnd, "the node is %s and is to be sanitized", n.Status)
	}
	if !t.becomes(ctx, lifecycle.NodeActive) {
		f.add(WrongEnd, "the node is %s, should become active", n.Status)
	}
	if mark := t.mark(); mark != "" {
		f.add(WrongEnd, "the node is free, and MAAS has its machine marked for %s", mark)
	}
	if keys, err := t.keyFiles(); err != nil || len(keys) > 0 {
		f.add(WrongEnd, "the node is free, and a tenant's key is in %v (%v)%s", keys, errOrNone(err), t.story(ctx))
	}
	admitted := true
	if !eventually(ctx, runenv.Patience(30*time.Second), func() bool {
		admitted, err = t.tenant.IsAdmitted(ctx, t.node().SSHAddress(), lifecycle.TenantAccount(a.ID))
		return err == nil
	}) || admitted {
		f.add(WrongEnd, "the node is free, and its former tenant is admitted: %t (%v)", admitted, err)
	}
	traces, err := t.traces()
	f.noTraces(ctx, t, "the node is free, and", traces, err)
}

// checkRelease compares a release that ended with what it should come to: the tenant is out and the
// node clean, or an operator removed the assignment of a node that nobody gets.
func (l letting) checkRelease(ctx context.Context, t *Target, end lifecycle.JobStatus) []Finding {
	f := &findings{}
	t.watched.end()
	now, err := t.effects(ctx)
	if err != nil {
		f.add(WrongEnd, "%v", err)
		return f.list
	}
	did := now.since(t.before)
	l.bounds(f, t, did)
	if end == noExpectedEnd {
		f.tasksOnce(ctx, t)
		f.certificates(ctx, t)
		return f.list
	}
	f.noSecrets(ctx, t, t.Case.Job, t.jobID())
	a, err := allocationdb.Get(ctx, t.Store, t.allocation)
	if err != nil {
		f.add(WrongEnd, "%v", err)
		return f.list
	}
	for _, wrong := range t.wrong {
		f.add(WrongEnd, "%s", wrong)
	}
	if l.operator != nil && !t.parkedOnce {
		f.add(WrongEnd, "the release did not fail, and the node's BMC was dead")
	}
	if last := t.watched.admitted(); a.Access == lifecycle.AccessRevoked && a.AccessEndedAt != nil && last.After(*a.AccessEndedAt) {
		f.add(WrongEnd, "the access is revoked since %s, and the node admitted the tenant at %s", a.AccessEndedAt, last)
	}
	if l.removed {
		l.assignmentRemoved(ctx, f, t, a)
		return f.list
	}
	l.released(ctx, f, t, a, did)
	t.returned(ctx, f, a)
	return f.list
}

// bounds is what no fault makes more of.
func (l letting) bounds(f *findings, t *Target, did effects) {
	storage, net := t.Overlaps("ConfigureStorage"), t.Overlaps("EnsurePXEInterfaceAuto")
	for what, most := range map[string]int{
		"creates": 0, "commissions": 0, "enlistments": 0, "releases": 1, "allocations": 1, "deploys": 1, "aborts": 0, "deletes": 0,
		"boot_disks": 1 + storage, "layouts": 1 + storage, "links": 2 + net,
	} {
		f.atMost("MAAS "+what, most, did.maas[what])
	}
	f.atMost("installations", 1, did.machine.Installs)
	// A change of the password whose outcome was lost is found by a login with the new one.
	f.atMost("BMC logins refused", one(l.root && len(t.Case.Faults) > 0), did.bmc.FailedLogins)
	f.atMost("BMC settings changed", one(l.root)*(1+t.Overlaps("ApplyRotation")), did.bmc.Patches+did.bmc.BMCResets)
	for disk, n := range did.erased {
		f.atMost("erasures of "+disk, 1+t.kills(), n)
	}
}

// released: the tenant is proven out, the node was installed again where he was root or nothing but
// the power proved it, and a certificate says that it is clean.
func (l letting) released(ctx context.Context, f *findings, t *Target, a allocationdb.Allocation, did effects) {
	if a.Status != lifecycle.AllocationReleased || a.Outcome != lifecycle.OutcomeReleased || a.Access != lifecycle.AccessRevoked || a.CertificateID == nil {
		f.add(WrongEnd, "the allocation is %s, %s, access %q, certificate %v; should be released, with its access revoked and a certificate",
			a.Status, a.Outcome, a.Access, a.CertificateID)
	}
	installs := did.machine.Installs
	switch {
	case l.root || l.trouble != nil:
		f.exactly("installations", 1, installs)
	case len(t.Case.Faults) == 0:
		f.exactly("installations", 0, installs)
	}
	if changed := did.password != t.before.password; changed != l.root {
		f.add(WrongEnd, "the BMC has another password: %t, should be %t", changed, l.root)
	}
	f.exactly("MAAS deploys", installs, did.maas["deploys"])
	f.exactly("new generations of the identity", installs, int(did.generation))
	f.tasksOnce(ctx, t)
	f.certificatesOfRun(ctx, t, 1)
}

// assignmentRemoved: nothing proves that the tenant is out, nobody says that it does, and nobody
// gets the node.
func (l letting) assignmentRemoved(ctx context.Context, f *findings, t *Target, a allocationdb.Allocation) {
	if a.Status != lifecycle.AllocationReleased || a.Outcome != lifecycle.OutcomeAssignmentRemoved || a.Access != lifecycle.AccessUnconfirmed {
		f.add(WrongEnd, "the allocation is %s, %s, access %q; should be released as assignment_removed, unconfirmed", a.Status, a.Outcome, a.Access)
	}
	n, err := t.Store.Node(ctx, t.NodeID)
	if err != nil || n.Status != lifecycle.NodeQuarantined || n.TenantLeftAt == nil || n.AllocationID != nil {
		f.add(WrongEnd, "the node is %s (%v), to be sanitized: %t, of allocation %v; should be quarantined, to be sanitized, and nobody's",
			n.Status, err, n.TenantLeftAt != nil, n.AllocationID)
	}
}

// noSecrets: the history of a job holds no private key and no password.
func (f *findings) noSecrets(ctx context.Context, t *Target, kind contract.JobKind, jobID string) {
	s := secretscan.New([]secretscan.Secret{
		{Kind: "a private key", Value: secretscan.PrivateKeyMark}, {Kind: "the tenant's private key", Value: string(t.tenant.Seed)},
		{Kind: "the BMC's password", Value: t.Machine.Spec().BMCPassword}, {Kind: "the BMC's former password", Value: t.before.password},
	}, nil)
	s.Payloads = t.Stack.App.Payloads
	id := contract.JobWorkflowID(kind, jobID)
	h := &historypb.History{}
	events := t.Stack.App.Temporal.GetWorkflowHistory(ctx, id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			f.add(WrongEnd, "read the history of %s: %v", id, err)
			return
		}
		h.Events = append(h.Events, event)
	}
	s.History("workflow "+id, h)
	for _, found := range s.Findings() {
		f.add(WrongEnd, "a secret is in a history: %s", found)
	}
}

// accessWatch tries the tenant's key again and again while his node is taken back.
type accessWatch struct {
	mu   sync.Mutex
	last time.Time // when the last try began that was admitted
	stop context.CancelFunc
	done chan struct{}
}

// triesKey is the pause between two tries.
const triesKey = time.Second

// watchAccess begins to try the tenant's key.
func (t *Target) watchAccess(ctx context.Context) {
	w := &accessWatch{done: make(chan struct{})}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	address, user := t.node().SSHAddress(), lifecycle.TenantAccount(t.allocation)
	go func() {
		defer close(w.done)
		for ctx.Err() == nil {
			began := time.Now()
			if in, err := t.tenant.IsAdmitted(ctx, address, user); err == nil && in {
				w.mu.Lock()
				w.last = began
				w.mu.Unlock()
			}
			pause(ctx, triesKey)
		}
	}()
	t.watched = w
}

// end ends the tries.
func (w *accessWatch) end() {
	w.stop()
	<-w.done
}

// admitted is when the last try began that was admitted, the zero time for none.
func (w *accessWatch) admitted() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.last }
