package replay_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/bench/rig"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// leaving is one way that a node may leave service.
type leaving struct {
	name string
	mode lifecycle.DecommissionMode
	// refuse lists the kinds of which the agent's first task fails.
	refuse []lifecycle.TaskKind
	drive  func(t *testing.T, p *play)
	ends   lifecycle.JobStatus
	node   lifecycle.NodeStatus
	asks   counts
}

func leavings() []leaving {
	return []leaving{
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
		{name: "retire", mode: lifecycle.ModeRetire, ends: lifecycle.JobCompleted, node: lifecycle.NodeRetired,
			asks: counts{Activities: 6, Local: 6, Timers: 3, Upserts: 3}},
	}
}

// TestEveryNodeLeavesAsItDid runs each scenario on a real Temporal server with
// today's code, as TestEveryScenarioDoesWhatItDid does for onboardings.
func TestEveryNodeLeavesAsItDid(t *testing.T) {
	t.Parallel()
	for _, s := range sample(t, leavings()) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := leave(t, s)
			h := p.history(t)
			require.NoError(t, noSecrets(t.Context(), h, leaked(t, p.rig, false)))
			raw := plain(t, h)
			if os.Getenv(recordEnv) != "" {
				name, _ := contract.WorkflowType(contract.DecommissionKind(s.mode))
				store(t, filepath.Join("testdata", name, release, s.name+".json.gz"), raw)
			}
			require.NoError(t, replay(parse(t, raw)))
			require.Equal(t, s.asks, count(h), "if the change is meant, correct the table above")
		})
	}
}

// leave runs a scenario on a node in service whose agent does every task at once.
func leave(t *testing.T, s leaving) *play {
	t.Helper()
	p := &play{rig: rig.New(t, smooth())}
	n := inService(t, p.rig)
	if info, _ := lifecycle.DecommissionModeOf(s.mode); info.Lifecycle == lifecycle.NodePXE.Lifecycle {
		n = inServicePXE(t, p.rig)
	}
	p.agent = &stand{rig: p.rig, node: n.ID, boot: "boot-" + n.Hostname, generation: 1}
	agent, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		p.agent.work(agent, s.refuse)
	}()
	kind := contract.DecommissionKind(s.mode)
	require.NoError(t, p.rig.Store.Tx(t.Context(), func(tx *db.Tx) error {
		in := contract.DecommissionInput{Mode: s.mode, NodeID: n.ID, Hostname: n.Hostname, From: n.Status}
		j, _, err := decommission.Start(t.Context(), tx, "", n, in, admin)
		p.job = j.ID
		return err
	}))
	id := contract.JobWorkflowID(kind, p.job)
	require.Eventually(t, func() bool {
		_, err := p.rig.Temporal.DescribeWorkflowExecution(t.Context(), id, "")
		return err == nil
	}, runenv.Patience(patience), 20*time.Millisecond, "the relay starts it")
	p.run = p.rig.Temporal.GetWorkflow(t.Context(), id, "")
	if s.drive != nil {
		s.drive(t, p)
	}
	require.Eventually(t, func() bool {
		return lifecycle.Job.Terminal(p.state(t).Status) || p.state(t).Status == lifecycle.JobFailedManual
	}, runenv.Patience(patience), 20*time.Millisecond, "it ends")
	if j := p.state(t); j.Status == lifecycle.JobFailedManual {
		t.Fatalf("parked at %s: %s: %s", j.FailedStage, j.FailureClass, j.Message)
	}
	var res contract.JobResult
	if err := p.run.Get(t.Context(), &res); err != nil {
		require.True(t, temporal.IsCanceledError(err), "the workflow ended: %v", err)
	}
	require.Equal(t, s.ends, p.state(t).Status, p.state(t).Message)
	got, err := p.rig.Store.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, s.node, got.Status)
	return p
}

var admin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "recorder"}

// inService makes an active node with an agent's identity, without MAAS.
func inService(t *testing.T, r *rig.Rig) db.Node {
	t.Helper()
	made, err := r.AddNode(t.Context(), "gpu-leaving", true)
	require.NoError(t, err)
	var n db.Node
	require.NoError(t, r.Store.Tx(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.TransitionNode(t.Context(), made.ID, lifecycle.NodeStartEnrolling, nil, admin); err != nil {
			return err
		}
		err := tx.SaveAgentIdentity(t.Context(), db.AgentCertificate{
			NodeID: made.ID, Generation: 1, Serial: made.ID, KeyHash: make([]byte, 32), CertPEM: "none", NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		})
		if err != nil {
			return err
		}
		n, err = tx.TransitionNode(t.Context(), made.ID, lifecycle.NodeActivate, lifecycle.Proof{lifecycle.NeedEnrolled, lifecycle.NeedHealthy},
			db.Actor{Owner: lifecycle.OwnerOnboarding, ID: "recorder"})
		return err
	}))
	return n
}
