package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/db"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

// effects counts what was done outside so far. A case compares the counts at its end with those at
// its begin.
type effects struct {
	systemID   string
	maas       map[string]int
	machine    simhw.Counters
	bmc        redfishsim.Counters
	erased     map[string]int // by disk
	generation int64          // of the agent's identity
	password   string         // of the BMC
}

func (t *Target) effects(ctx context.Context) (effects, error) {
	n, err := t.Store.Node(ctx, t.NodeID)
	if err != nil {
		return effects{}, err
	}
	e := effects{machine: t.Machine.Counters(), bmc: t.Stack.Sims.BMCs[t.Machine.Spec().ID].Counters()}
	if n.MAASSystemID != nil {
		e.systemID = *n.MAASSystemID
	}
	if t.before.systemID != "" {
		e.systemID = t.before.systemID // a deleted node may have no machine any more
	}
	e.password = t.Machine.Spec().BMCPassword
	e.maas = maps.Clone(t.Stack.Sims.MAAS.Counters().Machines[e.systemID])
	if id, err := t.Store.AgentIdentity(ctx, t.NodeID); err == nil {
		e.generation = id.Generation
	}
	e.erased, err = t.node().Erasures()
	return e, err
}

func (t *Target) node() *simnode.Node { return t.Stack.Sims.Nodes[t.Machine.Spec().ID] }

// since returns the effects that came after before was counted.
func (e effects) since(before effects) effects {
	minus := func(a, b map[string]int) map[string]int {
		out := map[string]int{}
		for k, n := range a {
			out[k] = n - b[k]
		}
		return out
	}
	out := e
	out.maas, out.erased, out.generation = minus(e.maas, before.maas), minus(e.erased, before.erased), e.generation-before.generation
	out.machine.Installs -= before.machine.Installs
	out.bmc.Resets = minus(e.bmc.Resets, before.bmc.Resets)
	out.bmc.FailedLogins -= before.bmc.FailedLogins
	out.bmc.Patches -= before.bmc.Patches
	out.bmc.BMCResets -= before.bmc.BMCResets
	return out
}

// check compares the effects of a job that ended with what its mode does.
func (s modeScenario) check(ctx context.Context, t *Target, end lifecycle.JobStatus) []Finding {
	f := &findings{}
	now, err := t.effects(ctx)
	if err != nil {
		f.add(WrongEnd, "%v", err)
		return f.list
	}
	did := now.since(t.before)
	s.bounds(f, t, did)
	switch end {
	case noExpectedEnd:
		f.tasksOnce(ctx, t)
		f.certificates(ctx, t)
	case lifecycle.JobCompleted:
		s.completed(ctx, f, t, did)
	default:
		s.cancelled(ctx, f, t)
	}
	f.exactly("BMC logins refused", 0, did.bmc.FailedLogins)
	f.exactly("BMC settings changed", 0, did.bmc.Patches+did.bmc.BMCResets)
	return f.list
}

// bounds checks the effects that no fault may multiply, whatever the end of the job.
func (s modeScenario) bounds(f *findings, t *Target, did effects) {
	full, reimage := one(s.Mode == lifecycle.ModeFull), one(s.Mode == lifecycle.ModeReimage)
	storage, net := t.Overlaps("ConfigureStorage"), t.Overlaps("EnsurePXEInterfaceAuto")
	undone := one(t.Case.Has(Cancel)) * reimage // the new deployment is released again
	for what, most := range map[string]int{
		"creates": 0, "commissions": 0, "enlistments": 0, "releases": full + reimage + undone, "allocations": reimage, "deploys": reimage,
		"aborts": undone, "deletes": full, "boot_disks": reimage * (1 + storage), "layouts": reimage * (1 + storage),
		"links": reimage * (2 + net),
		// MAAS switches on to erase and to install, and off to release.
		"power_ons": full + 2*reimage, "power_offs": 2*full + reimage + undone,
	} {
		f.atMost("MAAS "+what, most, did.maas[what])
	}
	f.atMost("installations", reimage, did.machine.Installs)
	// A power cycle whose answer was lost is made again, unless the agent has reported a new boot
	// by then. The node is drained, erased and not yet proven clean, so one more cold start does no
	// harm. One too few would leave the node without a proven boot.
	cycles := t.Executions("PowerCycleByBMC")
	f.atMost("BMC switched off", cycles+full*one(t.Executions("PowerOffByBMC") > 0), did.bmc.Resets["ForceOff"])
	f.atMost("BMC switched on", cycles, did.bmc.Resets["On"])
	f.atMost("BMC resets", did.bmc.Resets["ForceOff"]+did.bmc.Resets["On"], sum(did.bmc.Resets))
	// An agent that is killed while a tool erases a disk finds the disk in its journal. It erases
	// the disk again where the tool cannot say how the first erasure ended.
	for disk, n := range did.erased {
		f.atMost("erasures of "+disk, 1+t.kills(), n)
	}
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

// kills is how often the case kills the agent.
func (t *Target) kills() int {
	n := 0
	for _, h := range t.Case.Faults {
		n += one(h.Kind == AgentKilled)
	}
	return n
}

// completed checks what a mode must have done when its job is completed.
func (s modeScenario) completed(ctx context.Context, f *findings, t *Target, did effects) {
	full, reimage := one(s.Mode == lifecycle.ModeFull), one(s.Mode == lifecycle.ModeReimage)
	for what, want := range map[string]int{"releases": full + reimage, "deploys": reimage, "allocations": reimage, "deletes": full} {
		f.exactly("MAAS "+what, want, did.maas[what])
	}
	f.exactly("installations", reimage, did.machine.Installs)
	f.exactly("new generations of the identity", reimage, int(did.generation))
	s.tasks(ctx, f, t)
	f.certificatesOfRun(ctx, t, one(!s.Operation))
	s.clean(ctx, f, t, did)
	if s.root {
		s.tenantGone(ctx, f, t)
	}
	n, err := t.Store.Node(ctx, t.NodeID)
	if want := s.ends(); err != nil || !slices.Contains(want, n.Status) {
		f.add(WrongEnd, "the node is %s (%v), should be %v", n.Status, err, want)
	}
	if err == nil && n.AllocationID != nil {
		f.add(WrongEnd, "the node still has allocation %s", *n.AllocationID)
	}
	if s.Mode == lifecycle.ModeFull && !eventually(ctx, 10*time.Second, func() bool { return t.Machine.Power() == simhw.Off }) {
		f.add(WrongEnd, "the machine is %s, should be off", t.Machine.Power())
	}
}

// ends lists the states that the node may have after the mode. A heartbeat leads from offline to
// active.
func (s modeScenario) ends() []lifecycle.NodeStatus {
	if s.Ends == lifecycle.NodeOffline {
		return []lifecycle.NodeStatus{lifecycle.NodeOffline, lifecycle.NodeActive}
	}
	return []lifecycle.NodeStatus{s.Ends}
}

// askedIn returns the kind of task that a stage gives to the agent.
func askedIn(stage string) lifecycle.TaskKind {
	return map[string]lifecycle.TaskKind{
		lifecycle.StageForceRelease: lifecycle.TaskKindRevokeUser, lifecycle.StageDrainNode: lifecycle.TaskKindDrain,
		lifecycle.StageCleanupStorage: lifecycle.TaskKindScrub, lifecycle.StageScrubGPU: lifecycle.TaskKindScrub,
		lifecycle.StageValidateClean: lifecycle.TaskKindValidate, lifecycle.StageRemoveNode: lifecycle.TaskKindUninstall,
		lifecycle.StageUpdateAgent: lifecycle.TaskKindUpdate,
	}[stage]
}

// asks lists the tasks that the mode gives to the agent, in the order of its stages.
func (s modeScenario) asks() []string {
	var out []string
	for _, stage := range s.Stages {
		if slices.Contains(s.activities(stage), runTask) {
			out = append(out, fmt.Sprintf("%s/%s succeeded", stage, askedIn(stage)))
		}
	}
	return out
}

// tasksOnce checks that a stage gives the agent at most one task of a kind, whatever the end of the
// job.
func (f *findings) tasksOnce(ctx context.Context, t *Target) {
	rows, err := t.Store.ListTasks(ctx, db.TaskFilter{JobID: t.jobID()}, "", pageOfTasks)
	if err != nil {
		f.add(WrongEnd, "%v", err)
	}
	asked := map[string]int{}
	for _, r := range rows {
		if r.Kind == lifecycle.TaskKindRevokeUser && r.Status == lifecycle.TaskFailed {
			continue // one more attempt of a release asks again
		}
		asked[fmt.Sprintf("%s/%s", strings.Split(r.IdempotencyKey, "/")[1], r.Kind)]++
	}
	for what, n := range asked {
		f.atMost("tasks "+what, 1, n)
	}
}

// tasks checks that the agent got each task of the mode once, under one key, and that each
// succeeded.
func (s modeScenario) tasks(ctx context.Context, f *findings, t *Target) {
	rows, err := t.Store.ListTasks(ctx, db.TaskFilter{JobID: t.jobID()}, "", pageOfTasks)
	if err != nil {
		f.add(WrongEnd, "%v", err)
		return
	}
	var got []string
	for _, r := range slices.Backward(rows) {
		stage := strings.Split(r.IdempotencyKey, "/")[1]
		got = append(got, fmt.Sprintf("%s/%s %s", stage, r.Kind, r.Status))
	}
	if want := s.asks(); !slices.Equal(want, got) {
		v := WrongEnd
		if len(got) > len(want) {
			v = Duplicate
		}
		f.add(v, "tasks of the agent: %v, should be %v", got, want)
	}
}

// certificatesOfRun checks how many certificates the job has issued.
func (f *findings) certificatesOfRun(ctx context.Context, t *Target, want int) {
	rows, err := evidencedb.CertificatesOfNode(ctx, t.Store, t.NodeID)
	if err != nil {
		f.add(WrongEnd, "%v", err)
		return
	}
	got := 0
	for _, r := range rows {
		got += one(r.RunID == t.jobID())
	}
	f.exactly("certificates of the run", want, got)
}

// clean checks that the scrub erased every disk but the system's, and that none of them holds data
// of the tenant.
func (s modeScenario) clean(ctx context.Context, f *findings, t *Target, did effects) {
	if s.Operation || s.root {
		return
	}
	disks := t.Machine.Spec().Disks
	for _, d := range disks[:len(disks)-1] { // the last is the system's
		if did.erased[d.Name] < 1 {
			f.add(WrongEnd, "erasures of %s: %d, should be 1", d.Name, did.erased[d.Name])
		}
	}
	system := "/dev/" + disks[len(disks)-1].Name
	traces, err := t.diskTraces()
	f.noTraces(ctx, t, "the node", slices.DeleteFunc(traces, func(one simnode.Trace) bool { return one.At == system }), err)
}

// tenantGone checks that MAAS has erased every disk. The agent of a node with a root tenant is not
// asked to erase any.
func (s modeScenario) tenantGone(ctx context.Context, f *findings, t *Target) {
	traces, err := t.diskTraces()
	f.noTraces(ctx, t, "the node", traces, err)
}

// cancelled checks that the node is not left between two states, that no task is open, and that a
// node that is in service again is clean.
func (s modeScenario) cancelled(ctx context.Context, f *findings, t *Target) {
	n, err := t.Store.Node(ctx, t.NodeID)
	may := []lifecycle.NodeStatus{lifecycle.NodeOffline, lifecycle.NodeActive, lifecycle.NodeQuarantined, lifecycle.NodeRetired}
	if err != nil || !slices.Contains(may, n.Status) {
		f.add(WrongEnd, "the node is %s (%v) after the cancellation, should be one of %v", n.Status, err, may)
	}
	if err == nil {
		s.requireClean(ctx, f, t, n)
	}
	var open string
	if !eventually(ctx, 20*time.Second, func() bool {
		rows, err := t.Store.ListTasks(ctx, db.TaskFilter{JobID: t.jobID()}, "", pageOfTasks)
		i := slices.IndexFunc(rows, func(r db.NodeTask) bool {
			return r.Status == lifecycle.TaskQueued || r.Status == lifecycle.TaskDispatched
		})
		if open = ""; i >= 0 {
			open = fmt.Sprintf("task %s (%s) is %s", rows[i].ID, rows[i].Kind, rows[i].Status)
		}
		return err == nil && i < 0
	}) {
		f.add(WrongEnd, "after the cancellation %s", open)
	}
}

// requireClean checks a node whose tenant is gone. If it is active, it became active before the
// tenant left, or no disk holds a tenant's data. A cancelled job that has ended a tenant's access
// leaves the node quarantined or retired, and not offline.
func (s modeScenario) requireClean(ctx context.Context, f *findings, t *Target, n db.Node) {
	if n.AllocationID != nil || !s.occupied {
		return // the tenant was not ended
	}
	switch {
	case n.Status == lifecycle.NodeActive && n.TenantLeftAt != nil && n.StateChangedAt.After(*n.TenantLeftAt):
		f.add(WrongEnd, "the node became active at %s after its tenant had left at %s, and nothing proves it clean", n.StateChangedAt, *n.TenantLeftAt)
	case n.Status == lifecycle.NodeActive && n.TenantLeftAt == nil:
		traces, err := t.diskTraces()
		f.noTraces(ctx, t, "the node is active, and", traces, err)
	case n.Status == lifecycle.NodeOffline && n.TenantLeftAt != nil && s.Mode != lifecycle.ModeDrain: // whose tenant leaves when it likes
		f.add(WrongEnd, "the node is offline after its tenant was ended, should be quarantined")
	}
}
