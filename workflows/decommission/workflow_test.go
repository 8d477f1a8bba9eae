package decommission_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/decommission"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// stories are what each mode does outside, in order, when nothing goes wrong.
var stories = map[lifecycle.DecommissionMode]struct {
	calls  string
	states []lifecycle.NodeStatus
}{
	lifecycle.ModeSoftReset: {"config node.drain gpu.scrub gpu.scrub bmc:on fresh node.validate certify", []lifecycle.NodeStatus{lifecycle.NodeOffline}},
	lifecycle.ModeReimage: {"config node.drain gpu.scrub gpu.scrub site before release storage pxe render deploy deployed agent discard node.validate certify",
		[]lifecycle.NodeStatus{lifecycle.NodeOffline}},
	lifecycle.ModeFull: {"config node.drain gpu.scrub gpu.scrub bmc:on fresh node.validate probe before release certify maas:off bmc:off move:retired move:removing identity secrets record",
		[]lifecycle.NodeStatus{lifecycle.NodeRetired, lifecycle.NodeRemoving, lifecycle.NodeDeleted}},
	lifecycle.ModeStorageCleanup: {"config node.drain gpu.scrub bmc:on fresh node.validate certify", []lifecycle.NodeStatus{lifecycle.NodeOffline}},
	lifecycle.ModeDrain:          {"config node.drain move:retired", []lifecycle.NodeStatus{lifecycle.NodeRetired}},
	lifecycle.ModeRetire:         {"config node.drain move:retired", []lifecycle.NodeStatus{lifecycle.NodeRetired}},
	lifecycle.ModeDeprovision: {"config node.drain arm:erase bmc:on system:erase gpu.scrub bmc:on system:erase node.validate certify bmc:off identity move:retired secrets",
		[]lifecycle.NodeStatus{lifecycle.NodeRetired}},
	lifecycle.ModeMigrate: {"config node.drain arm:erase bmc:on system:erase gpu.scrub bmc:on system:erase node.validate certify bmc:off hardware arm:install bmc:on system:install",
		[]lifecycle.NodeStatus{lifecycle.NodeActive}},
	lifecycle.ModeRemove: {"config move:removing node.uninstall identity secrets", []lifecycle.NodeStatus{lifecycle.NodeDeleted}},
}

func TestEachMode_StagesAndEndState(t *testing.T) {
	t.Parallel()
	for _, info := range lifecycle.DecommissionModes() {
		t.Run(string(info.Mode), func(t *testing.T) {
			t.Parallel()
			b := setup(t, info.Mode)
			require.Equal(t, lifecycle.JobCompleted, b.run())
			require.Equal(t, stories[info.Mode].calls, b.calls())
			require.Equal(t, stories[info.Mode].states, b.site.states)
			require.Equal(t, info.Ends, b.site.facts.Status)
			var names []string
			for _, row := range b.Store.Last().Stages {
				names = append(names, row.Name)
			}
			require.Equal(t, info.Stages, names, "only the mode's stages, in its order")
			require.Equal(t, 100, b.Store.Last().Progress)
		})
	}
}

func TestStages_MatchLifecycle(t *testing.T) {
	t.Parallel()
	var names []string
	for _, st := range decommission.Job(contract.JobInput{}).Stages {
		names = append(names, st.Name)
		require.NotEmpty(t, st.Doc, st.Name)
		require.Positive(t, st.Weight, st.Name)
		require.Positive(t, st.Deadline, st.Name)
	}
	require.ElementsMatch(t, lifecycle.DecommissionStages(), names)
}

func TestRequest_InvalidIsNotRun(t *testing.T) {
	t.Parallel()
	for says, input := range map[string]string{
		"there is no mode": `{"mode": "burn"}`, "is not run as decommission": `{"mode": "drain"}`, "decommission request": `[]`,
	} {
		b := setup(t, lifecycle.ModeSoftReset)
		b.SetRequest(json.RawMessage(input))
		require.ErrorContains(t, b.Execute(), says)
	}
}

// TestOccupiedNode: the tenant is ended by force, or waited for where the
// operation is drain.
func TestOccupiedNode(t *testing.T) {
	t.Parallel()
	for mode, want := range map[lifecycle.DecommissionMode]string{
		lifecycle.ModeRetire: "config allocation.revoke_user free node.drain move:retired",
		lifecycle.ModeDrain:  "config allocation.wait node.drain move:retired",
	} {
		b := setup(t, mode)
		b.site.facts.AllocationID = "alloc_1"
		require.Equal(t, lifecycle.JobCompleted, b.run())
		require.Equal(t, want, b.calls())
	}
}

// TestOccupiedNode_TenantReleases frees the node of a tenant whose release waits for the drain.
func TestOccupiedNode_TenantReleases(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeDrain)
	b.site.facts.AllocationID, b.site.releasing = "alc_1", true
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, "config allocation.wait allocation.revoke_user free node.drain move:retired", b.calls())
}

// TestOccupiedNode_RootTenant ends the access of a tenant who is root by the power alone, whatever
// the agent on his system would say.
func TestOccupiedNode_RootTenant(t *testing.T) {
	t.Parallel()
	for mode, first := range map[lifecycle.DecommissionMode]string{
		lifecycle.ModeRetire: "maas:off bmc:off free",
		lifecycle.ModeFull:   "maas:off bmc:off free",
		lifecycle.ModeDrain:  "allocation.wait maas:off bmc:off free",
	} {
		b := setup(t, mode)
		b.site.facts.AllocationID, b.site.facts.TenantRoot, b.site.releasing = "alc_1", true, true
		require.Equal(t, lifecycle.JobCompleted, b.run())
		require.Contains(t, b.calls(), first)
		require.True(t, b.site.ended.PoweredOff)
		require.False(t, b.site.ended.ByAgent)
		for _, asked := range []string{"allocation.revoke_user", "node.drain", "gpu.scrub"} {
			require.Zero(t, b.count(asked), "%s: his system is not asked", mode)
		}
	}
	b := setup(t, lifecycle.ModeRetire)
	b.site.facts.AllocationID, b.site.facts.TenantRoot, b.site.facts.SystemID, b.site.facts.BMCID = "alc_1", true, "", ""
	p := b.parkedAt(time.Hour)
	b.at(2*time.Hour, lifecycle.ActionCancel)
	require.Equal(t, lifecycle.JobCancelled, b.run())
	require.Equal(t, lifecycle.StageForceRelease, p.Failure.Stage)
	require.Zero(t, b.count("free"), "nobody can read its power")
	b = setup(t, lifecycle.ModeReimage)
	b.site.facts.AllocationID, b.site.facts.TenantRoot = "alc_1", true
	p = b.parkedAt(time.Hour)
	b.at(2*time.Hour, lifecycle.ActionCancel)
	require.Equal(t, lifecycle.JobCancelled, b.run())
	require.Contains(t, p.Failure.Message, "release allocation alc_1")
	require.Empty(t, b.site.ended.AllocationID)
}

// TestDirtyNode_RootTenantsSystemIsNotAsked cleans a node that a root tenant left, whatever the
// agent on his system would say: it is switched off, and only the next system is asked for a scrub.
func TestDirtyNode_RootTenantsSystemIsNotAsked(t *testing.T) {
	t.Parallel()
	left := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for mode, want := range map[lifecycle.DecommissionMode]string{
		lifecycle.ModeReimage: "config maas:off bmc:off site before release storage pxe render deploy deployed agent discard gpu.scrub site bmc:on fresh node.validate compare:alc_9 prepare apply verify login commit certify",
		lifecycle.ModeFull:    "config maas:off bmc:off probe before release certify maas:off bmc:off move:retired move:removing identity secrets record",
	} {
		b := setup(t, mode)
		b.site.facts.TenantRoot, b.site.facts.TenantLeft, b.site.facts.LastTenancy = true, &left, "alc_9"
		require.Equal(t, lifecycle.JobCompleted, b.run())
		require.Equal(t, want, b.calls(), mode)
	}
	b := setup(t, lifecycle.ModeReimage)
	b.site.facts.TenantRoot, b.site.facts.TenantLeft, b.site.facts.LastTenancy = false, &left, "alc_9"
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, stories[lifecycle.ModeReimage].calls, b.calls(), "he was not root")
}

// TestSoftReset_TakesOffTheMarkOfItsTenantAlone: MAAS forgets the tenant of whom the database knows
// that he has left. A mark of anybody else is that of a tenant whom the database has forgotten.
func TestSoftReset_TakesOffTheMarkOfItsTenantAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeSoftReset)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Empty(t, b.site.unmarked)
	left := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b = setup(t, lifecycle.ModeSoftReset)
	b.site.facts.TenantLeft, b.site.facts.LastTenancy = &left, "alc_9"
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, []string{"alc_9"}, b.site.unmarked)
}

// TestRestartClean_TellsLateTasks: what is asked of the agent carries the job's pass, which is
// another after the job was taken back.
func TestRestartClean_TellsLateTasks(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeSoftReset)
	b.site.fail["node.validate"] = []error{stagetest.Failure(lifecycle.FailNodeTask)}
	b.at(time.Hour, lifecycle.ActionRestartClean)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, []int{1, 1, 1, 1, 2, 2, 2, 2}, b.site.passes)
}

// An unverified node is quarantined by the stage that found it, by way of offline in one step. It
// is certified as unverified, and drains again when an operator retries.
func TestUnverifiedNode_IsQuarantined(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call  string
		class lifecycle.FailureClass
		stage string
	}{
		"scrub":    {"gpu.scrub", lifecycle.FailScrubUnverified, lifecycle.StageCleanupStorage},
		"hardware": {"node.validate", lifecycle.FailNodeUnhealthy, lifecycle.StageValidateClean},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, lifecycle.ModeSoftReset)
			b.site.fail[c.call] = []error{stagetest.Failure(c.class)}
			p := b.parkedAt(time.Hour)
			b.at(2*time.Hour, lifecycle.ActionRetryStage)
			require.Equal(t, lifecycle.JobCompleted, b.run())
			require.Equal(t, c.stage, p.Failure.Stage)
			require.Equal(t, c.class, p.Failure.Class)
			require.Equal(t, lifecycle.NodeQuarantined, p.node)
			require.Equal(t, []lifecycle.NodeStatus{
				lifecycle.NodeOffline, lifecycle.NodeQuarantined, lifecycle.NodeDraining, lifecycle.NodeOffline,
			}, b.site.states)
			require.Equal(t, 2, b.site.certs, "the failure is certified too")
		})
	}
}

// TestUncleanNode_IsScrubbedAgain: to look once more would find the same.
func TestUncleanNode_IsScrubbedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeSoftReset)
	b.site.fail["node.validate"] = []error{stagetest.Failure(lifecycle.FailNodeUnhealthy)}
	b.site.unproven = []string{"step node.validate/mounts: unknown mounts: /mnt/x"}
	p := b.parkedAt(time.Hour)
	b.After(time.Hour, func() { b.site.unproven = nil })
	b.at(2*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.FailScrubUnverified, p.Failure.Class)
	require.Contains(t, p.Failure.Message, "/mnt/x")
	require.Equal(t, 4, b.count("gpu.scrub"), "storage and GPUs, twice")

	b = setup(t, lifecycle.ModeReimage)
	b.site.fail["node.validate"] = []error{stagetest.Failure(lifecycle.FailNodeUnhealthy)}
	b.site.unproven = []string{"step node.validate/keys: unknown keys"}
	b.After(time.Hour, func() { b.site.unproven = nil })
	b.at(2*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, 2, b.count("release"), "and a machine that was installed since is installed once more")
	require.Equal(t, 2, b.count("deploy"))
}

// Evidence that does not prove the node clean parks the job although every task succeeded. An
// operator may accept the risk.
func TestEvidenceThatDoesNotProveTheNodeClean(t *testing.T) {
	t.Parallel()
	for mode, at := range map[lifecycle.DecommissionMode]string{
		lifecycle.ModeSoftReset: lifecycle.StageValidateClean, lifecycle.ModeReimage: lifecycle.StageValidateClean, lifecycle.ModeFull: lifecycle.StageReleaseMAAS,
	} {
		b := setup(t, mode)
		b.site.unproven = []string{"disk sda S1: not erased"}
		p := b.parkedAt(time.Hour)
		refused := b.at(2*time.Hour, lifecycle.ActionAdopt)
		b.at(3*time.Hour, lifecycle.ActionAdopt, true)
		require.Equal(t, lifecycle.JobReconciled, b.run())
		require.Equal(t, at, p.Failure.Stage)
		require.Equal(t, lifecycle.FailScrubUnverified, p.Failure.Class)
		require.Contains(t, p.Failure.Message, "disk sda S1")
		require.Equal(t, lifecycle.NodeQuarantined, p.node)
		require.ErrorContains(t, refused.Err, "may be adopted")
		if mode != lifecycle.ModeFull {
			require.Contains(t, stagetest.NodeMove(b.Store.Last()).Note, "has not proved the node clean")
		}
	}
}

// TestRemove_FailureLeavesNodeRetired, retryable,
// and is taken up again from there.
func TestRemove_FailureLeavesNodeRetired(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeRemove)
	b.site.fail["node.uninstall"] = []error{stagetest.Failure(lifecycle.FailNodeTask)}
	p := b.parkedAt(time.Hour)
	b.at(2*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.JobFailedRetryable, p.Status)
	require.Equal(t, lifecycle.NodeRetired, p.node)
	require.Contains(t, p.calls, "node.uninstall")
	require.NotContains(t, p.calls, "identity", "the identity is kept while the agent is not uninstalled")
	require.NotContains(t, p.calls, "secrets")
	require.Contains(t, b.site.calls, "identity")
	require.Equal(t, []lifecycle.NodeStatus{lifecycle.NodeRetired, lifecycle.NodeRemoving, lifecycle.NodeDeleted}, b.site.states)
}

// TestDelete_IsTheLastStep: the record in MAAS is the last stage,
// and the node is deleted with the job's completion.
func TestDelete_IsTheLastStep(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeFull)
	b.site.fail["record"] = []error{stagetest.Failure(lifecycle.FailStateDisagreement)}
	p := b.parkedAt(time.Hour)
	b.at(2*time.Hour, lifecycle.ActionResume)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.NodeRemoving, p.node)
	require.Equal(t, lifecycle.NodeDeleted, b.site.facts.Status)
}
