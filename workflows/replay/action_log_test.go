package replay_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	machineact "github.com/slipway-cloud/slipway/activities/machine"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	accessact "github.com/slipway-cloud/slipway/activities/tenantaccess"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/bench/rig"
)

// did is the metadata of actions, by their stage.
type did map[string]lifecycle.ActionMetadata

// actionsOf returns what further answers a scripted job gets, and what its action log then says of
// stages.
func actionsOf() map[contract.JobKind]struct {
	answers answers
	did     did
} {
	machine := contract.MachineFacts{SystemID: "abc", Status: "Deployed", IPs: []string{"127.0.0.1"}}
	inMAAS := lifecycle.ActionMetadata{ServerID: "abc", IPAddress: "127.0.0.1"}
	agent := lifecycle.ActionMetadata{AgentInfo: &lifecycle.AgentInfo{Version: "v1.2.3"}}
	at := accessact.Connection{Address: "127.0.0.1:22"}
	made := contract.InstanceFacts{Provider: "mock", Zone: "mock-1", ServerID: "s-1", Done: true}
	reached := made
	reached.IPAddress = "192.0.2.1"
	installed := contract.InstancePhases{Done: true, Phases: lifecycle.WorkerPhases(), ExitStatus: "0", Version: "v1.2.3", Checksum: "abc"}
	ended := lifecycle.ActionMetadata{ServerID: "abc", IPAddress: "127.0.0.1", SSHExitStatus: "0"}
	return map[contract.JobKind]struct {
		answers answers
		did     did
	}{
		contract.KindBMCRotation:         {answers{"UpdatePowerLogin": contract.MachineFacts{SystemID: "abc", Status: "current", Power: "on", Done: true, IPs: machine.IPs}}, did{lifecycle.StageUpdateMAASPower: inMAAS}},
		contract.KindAgentReissue:        {answers{"DeliverAgentToken": nodeact.SSHFacts{Address: "127.0.0.1:22"}}, did{lifecycle.StageDeliverAgentToken: inMAAS, lifecycle.StageWaitNewIdentity: agent}},
		contract.KindAgentUpdate:         {nil, did{lifecycle.StageUpdateAgent: agent, lifecycle.StageWaitAgentVersion: agent}},
		contract.KindAllocationProvision: {answers{"ProveLogin": accessact.LoginProof{Connection: at}}, did{lifecycle.StageProveLogin: inMAAS}},
		contract.KindAllocationRelease:   {answers{"WaitForDeployed": maasact.DeployedFacts{MachineFacts: machine, Outcome: contract.DeployOK}}, did{lifecycle.StageReleaseMAAS: inMAAS}},
		contract.KindAllocationKeys:      {nil, did{lifecycle.StageProveKeys: inMAAS}},
		contract.KindMachineRun:          {answers{"RunCommand": machineact.StepFacts{Did: ended}}, did{"check": ended}},
		contract.KindInstanceCreate: {answers{"CreateServer": made, "WaitForAddress": reached, "InstallWorker": installed}, did{
			lifecycle.StageCreateServer: made.ActionMetadata(), lifecycle.StageGetAddress: reached.ActionMetadata(),
			lifecycle.StageInstallWorker: reached.ActionMetadata().With(installed.ActionMetadata()),
		}},
		contract.KindInstanceTerminate: {answers{"DeleteServer": made}, did{lifecycle.StageDeleteServer: made.ActionMetadata()}},
		contract.KindPaymentReconcile:  {nil, did{lifecycle.StageReadSession: paidFacts().ActionMetadata(), lifecycle.StagePostCredit: paidFacts().ActionMetadata()}},
	}
}

// TestActionLog_OfEveryKind: when a job of any kind has ended, each row of its action log has its
// run and its duration, and says what the action did.
func TestActionLog_OfEveryKind(t *testing.T) {
	t.Parallel()
	seen := map[contract.JobKind]bool{contract.KindOnboarding: true, contract.KindDecommission: true, contract.KindNodeOperation: true}
	for _, j := range scriptedJobs() {
		if seen[j.kind] {
			continue // another table of the kind
		}
		seen[j.kind] = true
		t.Run(string(j.kind), func(t *testing.T) {
			t.Parallel()
			want := actionsOf()[j.kind]
			require.NotEmpty(t, want.did)
			j.answers = maps.Clone(j.answers)
			maps.Copy(j.answers, want.answers)
			p := &play{rig: rig.NewScripted(t, j.answers.script("", nil, false))}
			if j.start != nil {
				j.start(t, p, j.answers)
			} else {
				p.startJob(t, j.kind, j.request)
			}
			require.NoError(t, p.ends(t))
			p.requireActions(t, want.did)
		})
	}
	t.Run("onboarding and decommission", func(t *testing.T) {
		t.Parallel()
		p := perform(t, scenarios()[0])
		id := *p.machineID(t)
		at := lifecycle.ActionMetadata{ServerID: id, IPAddress: "127.0.0.1"}
		p.requireActions(t, did{lifecycle.StageCreateOrFind: {ServerID: id}, lifecycle.StageWaitDeployed: at})
		for _, s := range decommissionScenarios() {
			if s.name == "reimage" {
				p = decommissionNode(t, s)
				p.requireActions(t, did{lifecycle.StageReleaseMAAS: {ServerID: *p.machineID(t), IPAddress: "127.0.0.1"}})
			}
		}
	})
	for _, row := range contract.Kinds {
		require.True(t, seen[row.Kind], row.Kind)
	}
}

// machineID returns the machine in MAAS of the job's node.
func (p *play) machineID(t *testing.T) *string {
	t.Helper()
	n, err := p.rig.Store.Node(t.Context(), *p.state(t).NodeID)
	require.NoError(t, err)
	require.NotNil(t, n.MAASSystemID)
	return n.MAASSystemID
}

// requireActions compares the action log of the job, which has ended, with what its stages did.
func (p *play) requireActions(t *testing.T, want did) {
	t.Helper()
	rows, err := p.rig.Store.ListActionLogs(t.Context(), db.ActionLogFilter{JobID: p.job}, "", 500)
	require.NoError(t, err)
	missing := maps.Clone(want)
	for _, r := range rows {
		var got lifecycle.ActionMetadata
		require.NoError(t, json.Unmarshal(r.Metadata, &got))
		require.NotEmpty(t, got.CorrelationID, r.Stage)
		require.NotNil(t, r.DurationMs, r.Stage)
		require.NotEqual(t, lifecycle.ActionInProgress, r.Status, r.Stage)
		if w, ok := want[r.Stage]; ok {
			require.Equal(t, got.With(w), got, "stage %s", r.Stage)
			delete(missing, r.Stage)
		}
	}
	require.Empty(t, missing)
}
