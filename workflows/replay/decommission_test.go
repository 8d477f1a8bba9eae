package replay_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/bench/rig"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// decommissionScenario is one way to take a node out of service.
type decommissionScenario struct {
	name    string
	mode    lifecycle.DecommissionMode
	retired bool // the node is retired before
	maas    bool // MAAS has the node's machine
	// refuse lists the kinds of which the agent's first task fails.
	refuse []lifecycle.TaskKind
	drive  func(t *testing.T, p *play)
	ends   lifecycle.JobStatus
	node   lifecycle.NodeStatus
	asks   counts
}

func decommissionScenarios() []decommissionScenario {
	return []decommissionScenario{
		{name: "soft_reset", mode: lifecycle.ModeSoftReset, ends: lifecycle.JobCompleted, node: lifecycle.NodeOffline,
			asks: counts{Activities: 13, Local: 8, Timers: 5, Upserts: 6}},
		{name: "quarantined_retry", mode: lifecycle.ModeSoftReset, refuse: []lifecycle.TaskKind{lifecycle.TaskKindScrub},
			ends: lifecycle.JobCompleted, node: lifecycle.NodeOffline, asks: counts{Activities: 16, Local: 11, Timers: 6, Upserts: 8, Updates: 1},
			drive: func(t *testing.T, p *play) {
				p.parks(t, lifecycle.FailScrubUnverified)
				p.update(t, lifecycle.ActionRetryStage)
			}},
		{name: "drain_cancelled", mode: lifecycle.ModeDrain, refuse: []lifecycle.TaskKind{lifecycle.TaskKindDrain},
			ends: lifecycle.JobCancelled, node: lifecycle.NodeOffline, asks: counts{Activities: 10, Local: 8, Timers: 2, Upserts: 5, Updates: 1},
			drive: func(t *testing.T, p *play) {
				p.parks(t, lifecycle.FailNodeTask)
				p.update(t, lifecycle.ActionCancel)
			}},
		{name: "deprovision", mode: lifecycle.ModeDeprovision, ends: lifecycle.JobCompleted, node: lifecycle.NodeRetired,
			asks:  counts{Activities: 30, Local: 18, Timers: 13, Upserts: 10, Updates: 2},
			drive: byHand},
		{name: "soft_reset_cancelled", mode: lifecycle.ModeSoftReset, refuse: []lifecycle.TaskKind{lifecycle.TaskKindScrub},
			ends: lifecycle.JobCancelled, node: lifecycle.NodeQuarantined, asks: counts{Activities: 15, Local: 10, Timers: 3, Upserts: 6, Updates: 1},
			drive: func(t *testing.T, p *play) {
				p.parks(t, lifecycle.FailScrubUnverified)
				p.update(t, lifecycle.ActionCancel)
			}},
		{name: "storage_cleanup", mode: lifecycle.ModeStorageCleanup, ends: lifecycle.JobCompleted, node: lifecycle.NodeOffline,
			asks: counts{Activities: 11, Local: 7, Timers: 4, Upserts: 5}},
		{name: "drain", mode: lifecycle.ModeDrain, ends: lifecycle.JobCompleted, node: lifecycle.NodeRetired,
			asks: counts{Activities: 6, Local: 6, Timers: 3, Upserts: 3}},
		{name: "full_decommission", mode: lifecycle.ModeFull, maas: true, ends: lifecycle.JobCompleted, node: lifecycle.NodeDeleted,
			asks: counts{Activities: 24, Local: 15, Timers: 12, Upserts: 8}},
		{name: "migrate", mode: lifecycle.ModeMigrate, ends: lifecycle.JobCompleted, node: lifecycle.NodeActive,
			asks: counts{Activities: 11, Local: 7, Timers: 4, Upserts: 5}, drive: ontoOtherHardware},
		{name: "reimage", mode: lifecycle.ModeReimage, maas: true, ends: lifecycle.JobCompleted, node: lifecycle.NodeOffline,
			asks: counts{Activities: 27, Local: 10, Timers: 7, Upserts: 7}},
		{name: "remove", mode: lifecycle.ModeRemove, retired: true, ends: lifecycle.JobCompleted, node: lifecycle.NodeDeleted,
			asks: counts{Activities: 7, Local: 5, Timers: 2, Upserts: 2}},
		{name: "retire", mode: lifecycle.ModeRetire, ends: lifecycle.JobCompleted, node: lifecycle.NodeRetired,
			asks: counts{Activities: 6, Local: 6, Timers: 3, Upserts: 3}},
	}
}

// TestEveryDecommissionDoesWhatItDid runs each scenario on a real Temporal server with
// today's code, as TestEveryScenarioDoesWhatItDid does for onboardings.
func TestEveryDecommissionDoesWhatItDid(t *testing.T) {
	t.Parallel()
	for _, s := range sample(t, decommissionScenarios()) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := decommissionNode(t, s)
			name := contract.WorkflowOf(contract.DecommissionKind(s.mode))
			require.Equal(t, s.asks, count(p.keep(t, name, s.name)), "if the change is meant, correct the table above")
		})
	}
}

// decommissionNode runs a scenario on a node in service whose agent does every task at once.
func decommissionNode(t *testing.T, s decommissionScenario) *play {
	t.Helper()
	p := &play{bootstrapped: s.maas}
	region := smooth()
	region.Boot = p.boot
	p.rig = rig.New(t, region)
	var n db.Node
	if s.maas {
		n = p.onboard(t)
	} else {
		n = inService(t, p.rig)
	}
	if info, _ := lifecycle.DecommissionModeOf(s.mode); info.Lifecycle == lifecycle.NodePXE.Lifecycle {
		n = inServicePXE(t, p.rig)
	}
	p.agent = &stand{rig: p.rig, node: n.ID, boot: "boot-" + n.Hostname, generation: 1, lastScrub: 2, bootDisk: s.maas}
	if s.mode == lifecycle.ModeStorageCleanup { // its only one
		p.agent.lastScrub = 1
	}
	agent, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		p.agent.work(agent, s.refuse)
	}()
	if s.retired {
		p.retire(t, n)
		var err error
		n, err = p.rig.Store.Node(t.Context(), n.ID)
		require.NoError(t, err)
	}
	p.leaves(t, n, s.mode)
	if s.drive != nil {
		s.drive(t, p)
	}
	var j db.Job
	if !assert.Eventually(t, func() bool {
		j = p.state(t)
		return lifecycle.Job.Terminal(j.Status) || j.Status.Parked()
	}, runenv.Patience(patience), 20*time.Millisecond, "it ends") || j.Status.Parked() {
		j = p.state(t)
		t.Fatalf("the job is %s at %s: %s: %s", j.Status, j.Stage, j.FailureClass, j.Message)
	}
	if err := p.ends(t); err != nil {
		require.True(t, temporal.IsCanceledError(err), "the workflow ended: %v", err)
	}
	require.Equal(t, s.ends, p.state(t).Status, p.state(t).Message)
	got, err := p.rig.Store.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, s.node, got.Status)
	return p
}

// boot starts the agent of a machine that was deployed: for the first time while it is onboarded,
// and then in a system of its own with an identity of its own.
func (p *play) boot(ctx context.Context, host string, _ []byte) error {
	if p.agent == nil {
		return p.rig.RecordHeartbeat(ctx, host)
	}
	if err := p.agent.enroll(ctx); err != nil {
		return err
	}
	return p.agent.heartbeat(ctx, "boot-deployed-again")
}

// onboard makes an active node whose machine MAAS has, with an agent's identity.
func (p *play) onboard(t *testing.T) db.Node {
	t.Helper()
	made, err := p.rig.AddNode(t.Context(), "gpu-onboarded", false)
	require.NoError(t, err)
	_, run, err := p.rig.Run(t.Context(), made)
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	require.NoError(t, p.rig.Store.Tx(t.Context(), func(tx *db.Tx) error { return identify(t.Context(), tx, made.ID) }))
	n, err := p.rig.Store.Node(t.Context(), made.ID)
	require.NoError(t, err)
	return n
}

// identify gives a node's agent its first certificate.
func identify(ctx context.Context, tx *db.Tx, nodeID string) error {
	return tx.SaveAgentIdentity(ctx, db.AgentCertificate{
		NodeID: nodeID, Generation: 1, Serial: nodeID, KeyHash: make([]byte, 32), CertPEM: "none", NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
	})
}

// leaves accepts the job of a mode and waits until it is started.
func (p *play) leaves(t *testing.T, n db.Node, mode lifecycle.DecommissionMode) {
	t.Helper()
	require.NoError(t, p.rig.Store.Tx(t.Context(), func(tx *db.Tx) error {
		in := contract.DecommissionInput{Mode: mode, NodeID: n.ID, Hostname: n.Hostname, From: n.Status}
		if mode == lifecycle.ModeMigrate {
			in.Disks = db.DisksMoved
		}
		j, _, err := decommission.Start(t.Context(), tx, "", n, in, admin)
		p.job = j.ID
		return err
	}))
	p.started(t, contract.JobWorkflowID(contract.DecommissionKind(mode), p.job))
}

// retire takes the node out of service by a job of its own.
func (p *play) retire(t *testing.T, n db.Node) {
	t.Helper()
	p.leaves(t, n, lifecycle.ModeRetire)
	require.NoError(t, p.ends(t))
	require.Equal(t, lifecycle.JobCompleted, p.state(t).Status)
}

var admin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "recorder"}

// inService makes an active node with an agent's identity, without MAAS.
func inService(t *testing.T, r *rig.Rig) db.Node {
	t.Helper()
	made, err := r.AddNode(t.Context(), "gpu-in-service", true)
	require.NoError(t, err)
	var n db.Node
	require.NoError(t, r.Store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		if _, err := tx.TransitionNode(t.Context(), made.ID, lifecycle.NodeStartEnrolling, nil, admin); err != nil {
			return err
		}
		if err := identify(t.Context(), tx, made.ID); err != nil {
			return err
		}
		n, err = tx.TransitionNode(t.Context(), made.ID, lifecycle.NodeActivate, lifecycle.Proof{lifecycle.NeedEnrolled, lifecycle.NeedHealthy},
			db.Actor{Owner: lifecycle.OwnerOnboarding, ID: "recorder"})
		return err
	}))
	return n
}
