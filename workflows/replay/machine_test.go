package replay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	machineact "github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// machineJobs is the job of a run: it ends by a step that fails, and parks for none.
func machineJobs() []scriptedJob {
	return []scriptedJob{{
		kind: contract.KindMachineRun, last: "RunCommand", givesUp: true,
		start: startOn(nil, []runplan.Step{
			{Name: "net-boot", Netboot: &runplan.SetNetboot{Mode: runplan.NetbootPXE}},
			{Name: "restart", Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}},
			{Name: "check", SSH: &runplan.SSHCommand{Command: "true"}},
		}, runplan.Capabilities()...),
		answers: answers{"ReadBootID": machineact.StepFacts{BootID: "boot-1"}, "Reboot": machineact.StepFacts{BootID: "boot-2"}},
		asks:    [3]counts{{Activities: 4, Local: 7, Timers: 3, Upserts: 4}, {}, {Activities: 5, Local: 9, Timers: 3, Upserts: 5}},
	}, repaveJob(), networkJob(), clusterJob()}
}

// repaveJob is a run that installs the machine of a node again and has it leave for its vendor.
func repaveJob() scriptedJob {
	return scriptedJob{
		kind: contract.KindMachineRun, prefix: "repave_", last: "ReturnMachine", givesUp: true,
		asks: [3]counts{{Activities: 24, Local: 11, Timers: 3, Upserts: 4}, {}, {Activities: 24, Local: 12, Timers: 3, Upserts: 5}},
		start: startOn(func(t *testing.T, p *play) string {
			n := inService(t, p.rig)
			require.NoError(t, p.rig.Store.SetNodeMachine(t.Context(), n.ID, db.NodeMachine{SystemID: "abc"}))
			_, err := p.rig.Store.CreateBMC(t.Context(), db.NewBMC{NodeID: &n.ID, Address: "127.0.0.9", Protocol: "redfish", CredentialRef: "bmc/x"})
			require.NoError(t, err)
			return n.ID
		}, []runplan.Step{
			{Name: "net-boot", Netboot: &runplan.SetNetboot{Mode: runplan.NetbootPXE}},
			{Name: "repave", Repave: &runplan.RepaveImage{Image: "ubuntu-22.04"}},
			{Name: "return", RMA: &runplan.RMAAction{}},
		}, runplan.CapRemoteExec),
		answers: answers{
			"CheckMachine":             machineact.StepFacts{ByNode: true, Series: "jammy"},
			"ReadNodeFacts":            contract.DecommissionFacts{Status: lifecycle.NodeDraining, SystemID: "abc", BMCID: "bmc_1", Agent: contract.AgentAlive, BootID: "boot-2"},
			"LoadNodeConfig":           contract.DecommissionConfig{ProfileID: "prof_1", SKUID: "sku_1"},
			"ReadMachineBeforeRelease": contract.ReleaseFacts{MachineFacts: contract.MachineFacts{SystemID: "abc", Status: "Deployed"}},
			"EraseAndRelease":          contract.ReleaseFacts{MachineFacts: contract.MachineFacts{SystemID: "abc", Status: "Ready"}, Erased: true},
			"ObserveMachine":           contract.MachineFacts{SystemID: "abc", Status: "Ready"},
			"DeployMachine":            contract.MachineFacts{SystemID: "abc", Status: "Deploying"},
			"WaitForDeployed":          maasact.DeployedFacts{MachineFacts: contract.MachineFacts{SystemID: "abc", Status: "Deployed"}, Outcome: contract.DeployOK},
			"RunTask":                  lifecycle.TaskResult{OK: true, BootID: "boot-1"}, "CertifyNode": contract.CertificateFacts{CertificateID: "cert_1"},
		},
	}
}

// networkJob is a run that changes the network of a machine.
func networkJob() scriptedJob {
	return scriptedJob{
		kind: contract.KindMachineRun, prefix: "network_", last: "TryNetwork", givesUp: true, answers: answers{},
		asks:  [3]counts{{Activities: 1, Local: 5, Timers: 1, Upserts: 2}, {}, {Activities: 2, Local: 7, Timers: 1, Upserts: 3}},
		start: startOn(nil, []runplan.Step{{Name: "net", Net: &runplan.NetReconfig{Netplan: "network: {version: 2}"}}}, runplan.Capabilities()...),
	}
}

// clusterJob is the default plan of a repave, on a machine whose provider does all of it.
func clusterJob() scriptedJob {
	return scriptedJob{
		kind: contract.KindMachineRun, prefix: "cluster_", last: "VerifyInCluster", givesUp: true,
		answers: answers{"ReadBootID": machineact.StepFacts{BootID: "boot-1"}, "Reboot": machineact.StepFacts{BootID: "boot-2"}},
		asks:    [3]counts{{Activities: 8, Local: 9, Timers: 5, Upserts: 6}, {}, {Activities: 8, Local: 10, Timers: 5, Upserts: 7}},
		start: startOn(func(t *testing.T, p *play) string {
			_, err := clusterdb.Create(t.Context(), p.rig.Store, "a", "", spec.ClusterSpec{APIURL: "https://127.0.0.1:6443"})
			require.NoError(t, err)
			return ""
		}, []runplan.Step{
			{Name: "set-netboot", Netboot: &runplan.SetNetboot{Mode: runplan.NetbootPXE}},
			{Name: "repave-os", Repave: &runplan.RepaveImage{Image: "ubuntu-22.04"}},
			{Name: "reboot", Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}},
			{Name: "join-cluster", Join: &runplan.KubeadmJoin{ClusterRef: "a"}},
			{Name: "verify", Verify: &runplan.VerifyInCluster{ClusterRef: "a"}},
		}, runplan.Capabilities()...),
	}
}

// startOn starts a run of steps on a machine, which is linked to a node where one is given.
func startOn(node func(*testing.T, *play) string, steps []runplan.Step, offers ...runplan.Capability) func(*testing.T, *play, answers) {
	return func(t *testing.T, p *play, _ answers) {
		t.Helper()
		nodeID := ""
		if node != nil {
			nodeID = node(t, p)
		}
		require.NoError(t, p.rig.Store.Tx(t.Context(), func(tx *db.Tx) error {
			m, err := machines.Register(t.Context(), tx, machines.Registration{Spec: spec.MachineSpec{Provider: "any"}}, admin)
			if err != nil {
				return err
			}
			if _, err := machines.SetAccess(t.Context(), tx, m.ID, machines.Access{NodeID: nodeID}, admin); err != nil {
				return err
			}
			plan, err := machines.CreatePlan(t.Context(), tx, runplan.Plan{Steps: steps}, false, admin)
			if err != nil {
				return err
			}
			run, err := machines.StartRun(t.Context(), tx, machines.Start{
				RequestID: "r", MachineID: m.ID, Type: lifecycle.RunTypeRepave, PlanID: plan.ID, Offers: func(string) []runplan.Capability { return offers },
			}, admin)
			p.job = run.JobID
			return err
		}))
		p.started(t, contract.JobWorkflowID(contract.KindMachineRun, p.job))
	}
}
