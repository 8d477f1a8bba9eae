package replay_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/pxejob"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/bench/noop"
	"github.com/slipway-cloud/slipway/test/bench/rig"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// stand is an agent without a node.
type stand struct {
	rig  *rig.Rig
	node string
	// lastScrub is the number of the scrub after which the node boots again.
	lastScrub int
	// bootDisk is set where the node's system runs from a disk, which the agent sees and leaves to
	// MAAS.
	bootDisk bool

	mu         sync.Mutex
	boot       string
	generation int64
}

func (a *stand) now() (boot string, generation int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.boot, a.generation
}

// heartbeat sends a heartbeat from a boot, which is the agent's from then on.
func (a *stand) heartbeat(ctx context.Context, boot string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.boot = boot
	return a.rig.Store.RecordHeartbeats(ctx, []db.Heartbeat{
		{NodeID: a.node, BootID: boot, AgentVersion: "rig", Generation: a.generation, ReceivedAt: time.Now(), Report: rig.Healthy()},
	})
}

// enrols makes the next generation of the agent's identity by a token, as one in
// another system does.
func (a *stand) enrols(t *testing.T) {
	t.Helper()
	require.NoError(t, a.enroll(t.Context()))
}

func (a *stand) enroll(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.generation++
	hash := sha256.Sum256(fmt.Appendf(nil, "%s %d", a.node, a.generation))
	return a.rig.Store.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.IssueEnrollmentToken(ctx, a.node, "", hash[:], time.Now().Add(time.Hour)); err != nil {
			return err
		}
		if _, _, err := tx.RedeemEnrollmentToken(ctx, hash[:], hash[:], a.generation); err != nil {
			return err
		}
		return tx.SaveAgentIdentity(ctx, db.AgentCertificate{
			NodeID: a.node, Generation: a.generation, Serial: fmt.Sprint(a.node, a.generation), KeyHash: hash[:], CertPEM: "none",
			NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		})
	})
}

// work ends each task with success, but the first of each kind in refuse, and
// has booted again once a node of MAAS is scrubbed.
func (a *stand) work(ctx context.Context, refuse []lifecycle.TaskKind) {
	refused := map[lifecycle.TaskKind]bool{}
	for _, k := range refuse {
		refused[k] = true
	}
	for scrubs := 0; ctx.Err() == nil; {
		boot, generation := a.now()
		got, err := a.rig.Store.ClaimTask(ctx, db.TaskClaim{NodeID: a.node, BootID: boot, Generation: generation, Lease: time.Minute})
		if err != nil || got.Task == nil {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		result := lifecycle.TaskResult{OK: true, BootID: boot}
		for _, d := range rig.Healthy().Disks {
			result.Devices = append(result.Devices, lifecycle.DeviceResult{Kind: "disk", Name: d.Name, Serial: d.Serial, Method: lifecycle.SanitizePurge, Verified: true})
		}
		if a.bootDisk {
			result.Devices = append(result.Devices, lifecycle.DeviceResult{Kind: "disk", Name: "sda", Serial: noop.BootSerial, Method: lifecycle.SanitizeNone, Detail: "the system runs from it"})
		}
		if refused[got.Task.Kind] {
			refused[got.Task.Kind] = false
			result = lifecycle.TaskResult{Code: lifecycle.TaskCodeStepFailed, Message: "as the scenario says", BootID: boot}
		}
		if got.Task.Kind == lifecycle.TaskKindScrub && result.OK {
			if scrubs++; scrubs == a.lastScrub { // the reboot is seen before the result, so that nobody cycles the power
				_ = a.heartbeat(ctx, "boot-2")
			}
		}
		_, _ = a.rig.Store.FinishTask(ctx, db.TaskFence{NodeID: a.node, TaskID: got.Task.ID, LeaseID: got.Task.LeaseID, Attempt: got.Task.Attempt}, result)
	}
}

// byHand is an operator who restarts a machine without a BMC when the job asks for
// it: into the live system, and for the fresh boot that proves it clean.
func byHand(t *testing.T, p *play) {
	t.Helper()
	for i, stage := range []string{lifecycle.StageBootEraser, lifecycle.StageValidateClean} {
		p.until(t, "asks for a restart in "+stage, func(j db.Job) bool {
			return j.Stage == stage && j.FailureClass == lifecycle.FailPowerNotConfirmed && j.Status.Parked()
		})
		p.agent.enrols(t)
		require.NoError(t, p.agent.heartbeat(t.Context(), fmt.Sprint("live-", i)))
		p.update(t, lifecycle.ActionRetryStage)
	}
}

// ontoOtherHardware is an operator who names the machine that the disks have moved into, and
// switches it on.
func ontoOtherHardware(t *testing.T, p *play) {
	t.Helper()
	p.at(t, lifecycle.StageReplaceHardware, "ReplaceHardware")
	planned, err := pxejob.CheckHardware(t.Context(), p.rig.Store, "", &pxejob.Hardware{MACs: []string{"52:54:00:00:77:02"}})
	require.NoError(t, err)
	require.NoError(t, p.rig.Store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := pxejob.PlanHardware(t.Context(), tx, p.agent.node, 0, planned, admin)
		return err
	}))
	require.Eventually(t, func() bool { // it looks once, and then waits
		asked := 0
		for _, e := range p.history(t).Events {
			if e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == "WaitForSystem" {
				asked++
			}
		}
		return asked == 2
	}, runenv.Patience(patience), 20*time.Millisecond, "the node is waited for")
	require.NoError(t, p.agent.heartbeat(t.Context(), "boot-moved"))
}

// inServicePXE makes an active PXE node with an agent and an erase workflow.
func inServicePXE(t *testing.T, r *rig.Rig) db.Node {
	t.Helper()
	n := dbtest.PXENode(t, r.Store, "52:54:00:00:77:01", lifecycle.NodeActive)
	a := &stand{rig: r, node: n.ID}
	a.enrols(t)
	require.NoError(t, a.heartbeat(t.Context(), "boot-"+n.Hostname))
	eraser, err := r.Store.CreateInstallWorkflow(t.Context(), "eraser", spec.InstallWorkflowSpec{
		Kernel: spec.BootImage{URL: "http://127.0.0.1/vmlinuz"}, Agent: &spec.InstallAgent{Simulated: true},
	})
	require.NoError(t, err)
	require.NoError(t, r.Store.Tx(t.Context(), func(tx *db.Tx) error {
		n, err = tx.AssignEraseWorkflow(t.Context(), n.ID, n.Version, eraser.ID)
		return err
	}))
	return n
}
