package lifecycle_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// instanceEdges is the table of transitions that the code must equal, written by hand.
var instanceEdges = map[lifecycle.InstanceStatus][]string{
	"provisioning":        {"booting", "provisioning_failed", "terminating"},
	"booting":             {"ready", "startup_failed", "failed", "terminating", "terminated"},
	"ready":               {"draining", "failed", "terminated"},
	"draining":            {"terminating", "terminated"},
	"terminating":         {"terminated", "failed"},
	"terminated":          {"archived"},
	"archived":            {},
	"provisioning_failed": {"terminating"},
	"startup_failed":      {"booting", "terminating"},
	"failed":              {"terminating"},
}

func TestInstance_Edges(t *testing.T) {
	t.Parallel()
	require.Len(t, lifecycle.Instance.States, len(instanceEdges))
	for _, s := range lifecycle.Instance.States {
		want, known := instanceEdges[s.State]
		require.True(t, known, s.State)
		require.ElementsMatch(t, want, lifecycle.Instance.Reachable(s.State), "from %s", s.State)
	}
	for _, tr := range lifecycle.Instance.Transitions {
		require.NotEmpty(t, tr.Owners, tr.Name)
		require.NotEmpty(t, tr.Doc, tr.Name)
	}
}

// TestInstance_OnlyTheProviderEndsWork: of a server that works, nothing leads to the end but a
// drain or a server that is gone, and only the reconciler says that.
func TestInstance_OnlyTheProviderEndsWork(t *testing.T) {
	t.Parallel()
	for _, o := range []lifecycle.Owner{lifecycle.OwnerAdmin, lifecycle.OwnerCustomer, lifecycle.OwnerJob, lifecycle.OwnerSystem} {
		require.Error(t, lifecycle.Instance.Check(lifecycle.InstanceMarkDeleted, lifecycle.InstanceReady, o, nil), o)
	}
	require.NoError(t, lifecycle.Instance.Check(lifecycle.InstanceMarkDeleted, lifecycle.InstanceReady, lifecycle.OwnerReconciler, nil))
	require.Error(t, lifecycle.Instance.Check(lifecycle.InstanceTerminate, lifecycle.InstanceReady, lifecycle.OwnerAdmin, nil))
}

// instancePercents is the percentage that an instance shows when an action has succeeded. The
// actions without one are between two others.
var instancePercents = map[string]int{
	"REQUEST_CREATE": 5, "PROVIDER_CREATE": 20, "PROVIDER_VOLUME_RESIZE": 25, "PROVIDER_START": 30, "PROVIDER_GET_IP": 40, "PROVIDER_SECURITY_GROUP": 45,
	"WORKER_SSH_ACCESSIBLE": 50, "WORKER_SSH_INSTALL": 60, "WORKER_VLLM_HTTP_OK": 70, "WORKER_MODEL_LOADED": 80, "WORKER_VLLM_WARMUP": 90, "HEALTH_CHECK": 95,
	"INSTANCE_READY": 100,
}

func createShares(done int, skipped ...string) []lifecycle.StageShare {
	var out []lifecycle.StageShare
	for i, step := range lifecycle.InstanceCreateSteps() {
		share := lifecycle.StageShare{State: lifecycle.StagePending, Percent: step.Percent}
		switch {
		case slices.Contains(skipped, step.ActionType) && i < done:
			share.State = lifecycle.StageSkipped
		case i < done:
			share.State = lifecycle.StageSucceeded
		}
		out = append(out, share)
	}
	return out
}

func TestInstance_PercentOfEachAction(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i, step := range lifecycle.InstanceCreateSteps() {
		seen[step.ActionType] = true
		want, fixed := instancePercents[step.ActionType]
		for _, skipped := range [][]string{nil, {lifecycle.ActProviderCreateVolume, lifecycle.ActProviderVolumeResize}} {
			_, got := lifecycle.Progress(lifecycle.JobRunning, 0, createShares(i+1, skipped...))
			if fixed {
				require.Equal(t, want, got, step.ActionType)
			}
			require.Equal(t, got, lifecycle.InstancePercent(lifecycle.InstanceBooting, got))
		}
	}
	for name := range instancePercents {
		require.True(t, seen[name], "no stage has the action type %s", name)
	}
	// A provider that has no volume to grow: 20 when the server is there, 25 when the instance
	// boots.
	_, created := lifecycle.Progress(lifecycle.JobRunning, 0, createShares(3))
	_, boots := lifecycle.Progress(lifecycle.JobRunning, created, createShares(7, lifecycle.ActProviderCreateVolume, lifecycle.ActProviderVolumeResize))
	require.Equal(t, []int{20, 25}, []int{created, boots})
}

// TestInstance_PercentOfEachState: success and draining show 100, every failure and every end 0.
func TestInstance_PercentOfEachState(t *testing.T) {
	t.Parallel()
	want := map[lifecycle.InstanceStatus]int{
		"provisioning": 62, "booting": 62, "ready": 100, "draining": 100, "terminating": 0, "terminated": 0, "archived": 0,
		"provisioning_failed": 0, "startup_failed": 0, "failed": 0,
	}
	require.Len(t, want, len(lifecycle.Instance.States))
	for s, percent := range want {
		require.Equal(t, percent, lifecycle.InstancePercent(s, 62), s)
		require.Equal(t, s == "provisioning_failed" || s == "startup_failed" || s == "failed", s.Failed(), s)
		require.Equal(t, s != "terminated" && s != "archived", s.Live(), s)
	}
}

// TestInstance_PercentIsMonotone: within an attempt the percentage of an instance never goes back,
// however often stages fail, are skipped or run again.
func TestInstance_PercentIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		reached, done := 0, 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			done = min(done+rapid.IntRange(-1, 1).Draw(t, "moves"), len(lifecycle.InstanceCreateSteps()))
			done = max(done, 0)
			_, now := lifecycle.Progress(lifecycle.JobRunning, reached, createShares(done))
			require.GreaterOrEqual(t, now, reached)
			reached = now
		}
	})
}

// TestInstance_ActionTypes compares the action types with the list that this test has by hand.
func TestInstance_ActionTypes(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, []string{
		"REQUEST_CREATE", "EXECUTE_CREATE", "PROVIDER_CREATE", "PERSIST_PROVIDER_ID", "PROVIDER_CREATE_VOLUME", "PROVIDER_VOLUME_RESIZE", "PROVIDER_START",
		"PROVIDER_GET_IP", "PROVIDER_SECURITY_GROUP", "WORKER_SSH_ACCESSIBLE", "INSTANCE_CREATED", "WORKER_SSH_INSTALL", "WORKER_VLLM_HTTP_OK",
		"WORKER_MODEL_LOADED", "WORKER_VLLM_WARMUP", "HEALTH_CHECK", "INSTANCE_READY", "REQUEST_TERMINATE", "PROVIDER_STOP", "PROVIDER_DELETE_VOLUME",
		"PROVIDER_DELETE", "INSTANCE_TERMINATED", "INSTANCE_STARTUP_FAILED", "PROVIDER_DELETED_DETECTED",
	}, lifecycle.InstanceActionTypes())
	logged := []string{lifecycle.ActInstanceStartupFailed, lifecycle.ActProviderDeletedByOther}
	for _, step := range slices.Concat(lifecycle.InstanceCreateSteps(), lifecycle.InstanceTerminateSteps()) {
		if step.ActionType != "" {
			logged = append(logged, step.ActionType)
		}
	}
	require.ElementsMatch(t, lifecycle.InstanceActionTypes(), logged, "each action type is logged by exactly one stage or event")
}

// TestInstance_FollowsItsJob is the table of what the two jobs do to an instance.
func TestInstance_FollowsItsJob(t *testing.T) {
	t.Parallel()
	const creates, ends = true, false
	for _, tc := range []struct {
		job    bool
		now    lifecycle.InstanceStatus
		status lifecycle.JobStatus
		class  lifecycle.FailureClass
		want   lifecycle.InstanceStatus // "" stays
	}{
		{creates, "booting", lifecycle.JobCompleted, "", "ready"},
		{creates, "booting", lifecycle.JobFailedRetryable, lifecycle.FailInstanceStartup, "startup_failed"},
		{creates, "booting", lifecycle.JobFailedManual, lifecycle.FailAgentChecksum, "startup_failed"},
		{creates, "booting", lifecycle.JobFailedManual, lifecycle.FailFrozen, ""},
		{creates, "booting", lifecycle.JobFailedRetryable, lifecycle.FailStoreUnavailable, ""},
		{creates, "provisioning", lifecycle.JobFailedManual, lifecycle.FailCloudUncertain, ""},
		{creates, "provisioning", lifecycle.JobCompensating, "", ""},
		{creates, "provisioning", lifecycle.JobCancelled, "", "provisioning_failed"},
		{creates, "booting", lifecycle.JobCancelled, "", "failed"},
		{creates, "startup_failed", lifecycle.JobRunning, "", "booting"},
		{creates, "startup_failed", lifecycle.JobCompensating, "", "terminating"},
		{creates, "terminating", lifecycle.JobCompensating, "", ""},
		{creates, "terminating", lifecycle.JobFailedManual, lifecycle.FailCompensation, "failed"},
		{creates, "failed", lifecycle.JobCompensating, "", "terminating"},
		{creates, "terminating", lifecycle.JobCancelled, "", "terminated"},
		{creates, "terminated", lifecycle.JobCancelled, "", ""},
		{ends, "draining", lifecycle.JobRunning, "", ""},
		{ends, "terminating", lifecycle.JobFailedRetryable, lifecycle.FailCloudUnavailable, "failed"},
		{ends, "failed", lifecycle.JobRunning, "", "terminating"},
		{ends, "terminating", lifecycle.JobCompleted, "", "terminated"},
		{ends, "terminated", lifecycle.JobCompleted, "", ""},
	} {
		got, ok := lifecycle.InstanceMoveFor(tc.job, tc.now, tc.status, tc.class)
		require.Equal(t, tc.want != "", ok, "%+v", tc)
		require.Equal(t, tc.want, got.To, "%+v", tc)
	}
}

// TestInstance_RecoversFromATimeoutAlone: a late heartbeat helps after a timeout, three times, and
// never after a wrong checksum.
func TestInstance_RecoversFromATimeoutAlone(t *testing.T) {
	t.Parallel()
	timeout := lifecycle.InstanceErrorCode(lifecycle.FailInstanceStartup)
	require.Equal(t, "STARTUP_TIMEOUT", timeout)
	require.Equal(t, "AGENT_CHECKSUM_FAILED", lifecycle.InstanceErrorCode(lifecycle.FailAgentChecksum))
	require.Equal(t, "CLOUD_QUOTA", lifecycle.InstanceErrorCode(lifecycle.FailCloudQuota))
	require.True(t, lifecycle.MayRecover(lifecycle.InstanceStartupFailed, timeout, 2))
	require.False(t, lifecycle.MayRecover(lifecycle.InstanceStartupFailed, timeout, 3))
	require.False(t, lifecycle.MayRecover(lifecycle.InstanceStartupFailed, "AGENT_CHECKSUM_FAILED", 0))
	require.False(t, lifecycle.MayRecover(lifecycle.InstanceTerminating, timeout, 0))
}

// TestInstance_GivesUpBeforeItBoots: what the provider refuses ends the creation, and an unknown
// outcome never does: it must be looked at.
func TestInstance_GivesUpBeforeItBoots(t *testing.T) {
	t.Parallel()
	for _, f := range lifecycle.Failures() {
		want := slices.Contains([]lifecycle.FailureClass{
			lifecycle.FailCloudQuota, lifecycle.FailCloudCapacity, lifecycle.FailCloudUnavailable, lifecycle.FailCloudRejected, lifecycle.FailConfiguration,
			lifecycle.FailStageDeadline,
		}, f.Class)
		require.Equal(t, want, lifecycle.InstanceGivesUp(lifecycle.InstanceProvisioning, f.Class), f.Class)
		require.False(t, lifecycle.InstanceGivesUp(lifecycle.InstanceBooting, f.Class), f.Class)
	}
}

// TestInstanceMoveFor_GivesUpAtOnce: an instance whose creation gives up has failed before what was
// made is deleted, which waits for the provider.
func TestInstanceMoveFor_GivesUpAtOnce(t *testing.T) {
	t.Parallel()
	move, ok := lifecycle.InstanceMoveFor(true, lifecycle.InstanceProvisioning, lifecycle.JobCompensating, lifecycle.FailCloudUnavailable)
	require.True(t, ok)
	require.Equal(t, lifecycle.InstanceProvisioningFailed, move.To)
	_, ok = lifecycle.InstanceMoveFor(true, lifecycle.InstanceProvisioning, lifecycle.JobCompensating, "")
	require.False(t, ok, "somebody cancelled it")
}
