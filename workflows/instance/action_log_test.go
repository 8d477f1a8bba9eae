package instance_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/instance/mock"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
)

// action is a row of the action log with its metadata.
type action struct {
	instancedb.Action
	meta lifecycle.ActionMetadata
}

// actions returns the action log of the instance by action type, the oldest first. Each row has the
// run of its job and how long it took, and a class where it failed.
func (r *simRig) actions() map[string][]action {
	r.Helper()
	rows, err := instancedb.ListActions(r.Context(), r.store, r.row.ID, "", 500)
	require.NoError(r, err)
	out := map[string][]action{}
	for _, row := range rows {
		a := action{Action: row}
		require.NoError(r, json.Unmarshal(row.Metadata, &a.meta))
		require.NotEmpty(r, a.meta.CorrelationID, row.ActionType)
		require.NotNil(r, row.DurationMs, row.ActionType)
		require.Equal(r, row.Status == lifecycle.ActionFailed, row.FailureClass != "", "%s: %s", row.ActionType, row.ErrorMessage)
		out[row.ActionType] = append([]action{a}, out[row.ActionType]...)
	}
	return out
}

// TestActionLog_OfAnInstance: each action of an instance says what it did, a failed installation
// how far it came, and so does what no stage of a job writes.
func TestActionLog_OfAnInstance(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	r.worker.phases = []string{"start", "docker_install"}
	r.worker.install = &providers.Error{Kind: providers.KindExit, Op: "ssh.install", Message: "ended with exit status 7"}
	i := r.runAnd(r.job, func(env *testsuite.TestWorkflowEnvironment) {
		r.worker.install = nil
		sends(lifecycle.ActionRetryStage)(env)
	})
	require.Equal(t, lifecycle.InstanceReady, i.Status)
	all := r.actions()
	made := all[lifecycle.ActProviderCreate][0].meta
	require.Equal(t, []string{i.ServerID, i.Zone, ""}, []string{made.ServerID, made.Zone, made.IPAddress})
	require.Equal(t, i.IPAddress, all[lifecycle.ActProviderGetIP][0].meta.IPAddress)
	require.NotEmpty(t, i.IPAddress)
	installs := all[lifecycle.ActWorkerSSHInstall]
	require.Greater(t, len(installs), 1)
	for n, in := range installs {
		want := lifecycle.ActionMetadata{
			CorrelationID: in.meta.CorrelationID, ServerID: i.ServerID, Zone: i.Zone, IPAddress: i.IPAddress, Phases: r.worker.phases, LastPhase: "docker_install",
			SSHExitStatus: "7", AgentInfo: &lifecycle.AgentInfo{Version: "1", BuildDate: "2026-01-01", Checksum: mock.Checksum},
		}
		if n == len(installs)-1 {
			want.Phases, want.LastPhase, want.SSHExitStatus = lifecycle.WorkerPhases(), "done", "0"
		}
		require.Equal(t, want, in.meta, "try %d", n+1)
	}
	for _, step := range lifecycle.InstanceCreateSteps() {
		if step.ActionType != lifecycle.ActWorkerSSHInstall {
			require.Empty(t, all[step.ActionType][0].meta.Phases, step.ActionType)
		}
	}
	failed := all[lifecycle.ActInstanceStartupFailed][0]
	require.Equal(t, lifecycle.FailWorkerInstall, failed.FailureClass)
	require.Equal(t, []string{i.ServerID, i.IPAddress}, []string{failed.meta.ServerID, failed.meta.IPAddress})
}

// TestActionLog_OfALostConnection: an installation whose connection is lost for good has the phases
// that were read before, in the row of the failed action.
func TestActionLog_OfALostConnection(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	r.worker.phases = []string{"start", "docker_install"}
	r.worker.install = &providers.Error{Kind: providers.KindBusy, Op: "ssh.exec", Message: "the connection was lost"}
	r.runAnd(r.job, sends(lifecycle.ActionCancel))
	installs := r.actions()[lifecycle.ActWorkerSSHInstall]
	require.Len(t, installs, 1)
	require.Equal(t, lifecycle.ActionFailed, installs[0].Status)
	require.Equal(t, []string{"start", "docker_install"}, installs[0].meta.Phases)
	require.Equal(t, "docker_install", installs[0].meta.LastPhase)
	require.Empty(t, installs[0].meta.SSHExitStatus, "nobody has read how the script ended")
	require.Nil(t, installs[0].meta.AgentInfo)
}

// TestActionLog_OfPasses: the rows of health checks and of servers that somebody else deleted have
// what the rows of stages have.
func TestActionLog_OfPasses(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	i := r.run(r.job)
	r.worker.setSilent(true)
	_, err := r.acts.CheckInstances(t.Context(), instanceact.PassIn{At: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	checks := r.actions()[lifecycle.ActHealthCheck]
	require.Equal(t, lifecycle.ActionFailed, checks[len(checks)-1].Status)
	made := *i.ServerCreatedAt
	require.NoError(t, r.sim.Do(cloudsim.Act{Act: "delete_server", ID: i.ServerID}))
	for _, after := range []time.Duration{10, 13, 14, 15} {
		r.pass(made.Add(after * time.Minute))
	}
	gone := r.actions()[lifecycle.ActProviderDeletedByOther]
	require.Len(t, gone, 1)
	require.Equal(t, i.ServerID, gone[0].meta.ServerID)
}
