package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/db"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	pxesim "github.com/slipway-cloud/slipway/sim/pxe"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

var fromDiscoveryToService = []string{"discovered", "pending", "installing", "installed", "active"}

// TestPXENode_InstalledAndErased takes two machines from their first boot to service, where the
// real agent reports, and out of service with every disk erased.
func TestPXENode_InstalledAndErased(t *testing.T) {
	t.Parallel()
	machines := pxeMachines(2)
	data := machines[1].Spec.Disks[:4]
	for i := range data { // a node of eight data drives
		more := data[i]
		more.Name, more.Serial = fmt.Sprintf("nvme%dn1", 4+i), more.Serial+"B"
		machines[1].Spec.Disks = slices.Insert(machines[1].Spec.Disks, 4+i, more)
	}
	w := newPXEWorld(t, newWorld(t, stack.Options{PXE: machines}))
	w.PXE[0].FailInstalls("no disk, on purpose")
	nodes := w.active(t, w.PXE...)
	jobs, stolen := make([]string, 2), make([]*http.Client, 2)
	for i, s := range w.PXE {
		last, err := w.App.Store.LatestHeartbeat(t.Context(), nodes[i])
		require.NoError(t, err)
		require.Equal(t, s.Hardware.BootID(), last.BootID)
		stolen[i] = w.identityBelow(t, s.Disk.Root())
		require.Equal(t, http.StatusOK, w.repeatHeartbeat(t, stolen[i], nodes[i]), "the identity is good before")
		require.NoError(t, s.Disk.Occupy())
		if i == 1 { // the eraser puts the RAID and the volume together again
			var over []string
			for _, d := range s.Hardware.Spec().Disks[:8] {
				over = append(over, d.Name)
			}
			require.NoError(t, s.Disk.Stack("/mnt/scratch", simnode.Layer{Name: "md0", Kind: simnode.LayerRAID, Over: over},
				simnode.Layer{Name: "dm-0", Kind: simnode.LayerLVM, Over: []string{"md0"}, Label: "vg-scratch"}))
		}
		jobs[i] = w.begin(t, nodes[i], deprovisioning())
	}
	for i, s := range w.PXE {
		w.completes(t, jobs[i], s.Hardware.Spec().Vendor)
		require.Equal(t, append(fromDiscoveryToService[:5:5], "deprovisioning", "retired"), w.way(t, nodes[i]))
		power(t, s, simhw.Off)
		erased(t, s)
		w.proven(t, s, nodes[i])
		require.Equal(t, http.StatusForbidden, w.repeatHeartbeat(t, stolen[i], nodes[i]), "the certificate of a retired node is refused")
		require.Zero(t, w.view(t, nodes[i]).Pxe.Netboot, "nothing is booted for it any more")
		counters := s.Hardware.Counters()
		require.Equal(t, 1, counters.Installs)
	}

	// Switched on by hand a machine finds nothing on its disks and is another node.
	w.PXE[0].Hardware.PowerOn("test")
	require.NotEqual(t, nodes[0], w.discovered(t, w.PXE[0]))
	require.Nil(t, w.PXE[0].Hardware.InstalledOS())
}

// proven: the certificate says clean, of every disk, and verifies offline.
func (w *pxeWorld) proven(t *testing.T, s *stack.PXEServer, id string) {
	t.Helper()
	c := w.certificate(t, id)
	require.Equal(t, evidence.VerdictClean, c.Verdict, "%v", c.Failures)
	require.True(t, c.Simulated)
	require.NotEmpty(t, c.Subject.Serial)
	require.Equal(t, hardwaredb.SerialOfBoot, c.Subject.SerialSource)
	require.NotEqual(t, c.Run.BootBefore, c.Run.BootAfter)
	require.Empty(t, disks(c)[false])
	require.Len(t, disks(c)[true], len(s.Hardware.Spec().Disks), "every disk, the system's too")
	line := commandLine{w.world, w.token}
	file := filepath.Join(t.TempDir(), "bundle.json")
	require.NoError(t, os.WriteFile(file, []byte(line.run(t, cli.ExitOK, "certificate", "export", id)), 0o600))
	key := regexp.MustCompile(`[0-9a-f]{64}`).FindString(line.run(t, cli.ExitNotTrusted, "certificate", "verify", file))
	line.run(t, cli.ExitOK, "certificate", "verify", file, "--key", key)
}

// TestPXEErasure_FailureParks checks that a failed erasure names its step, that the node stays
// where it is, and that the stage is repeated when the cause is gone.
func TestPXEErasure_FailureParks(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t, newWorld(t, stack.Options{PXE: pxeMachines(1)}))
	s := w.PXE[0]
	id := w.active(t, s)[0]
	require.NoError(t, s.Live.SetFaults(simnode.Faults{Scrub: simnode.ScrubFaults{SanitizeFails: true}}))
	job := w.begin(t, id, deprovisioning())
	j := w.ends(t, job, pxePatience)
	require.Equal(t, lifecycle.JobFailedManual, j.Status)
	require.Equal(t, []string{lifecycle.StageScrubGPU, string(lifecycle.FailScrubUnverified)}, []string{j.FailedStage, string(j.FailureClass)}, j.Message)
	require.Contains(t, j.Message, "disks")
	require.Equal(t, lifecycle.NodeDeprovisioning, w.node(t, id).Status)
	require.NotEqual(t, evidence.VerdictClean, w.certificate(t, id).Verdict)

	require.NoError(t, s.Live.SetFaults(simnode.Faults{}))
	w.act(t, job, lifecycle.ActionRetryStage)
	w.completes(t, job)
	require.Equal(t, lifecycle.NodeRetired, w.node(t, id).Status)
	erased(t, s)
}

// TestPXENode_WithoutBMCParksForRestart checks that the job parks when the machine must be
// restarted, and continues when an operator has done it.
func TestPXENode_WithoutBMCParksForRestart(t *testing.T) {
	t.Parallel()
	machines := pxeMachines(1)
	machines[0].NoBMC = true
	w := newPXEWorld(t, newWorld(t, stack.Options{PXE: machines}))
	s := w.PXE[0]
	id := w.active(t, s)[0]
	require.NoError(t, s.Disk.Occupy())
	job := w.begin(t, id, deprovisioning())
	var parked []string
	for range 6 {
		j := w.ends(t, job, pxePatience)
		if j.Status == lifecycle.JobCompleted {
			break
		}
		parked = append(parked, j.FailedStage)
		require.Equal(t, lifecycle.FailPowerNotConfirmed, j.FailureClass, "%s: %s", j.FailedStage, j.Message)
		require.Contains(t, j.NextStep+j.Message, "by hand")
		require.Equal(t, lifecycle.NodeDeprovisioning, w.node(t, id).Status)
		s.Hardware.Reset("an operator")
		w.act(t, job, lifecycle.ActionRetryStage)
	}
	require.Equal(t, []string{lifecycle.StageBootEraser, lifecycle.StageValidateClean}, parked)
	require.Equal(t, lifecycle.NodeRetired, w.node(t, id).Status)
	w.proven(t, s, id)
	erased(t, s)
}

// TestPXEDeprovisioning_CancelledBeginsAgain checks that a cancelled deprovisioning leaves the node
// in its state, and that a second request begins another job.
func TestPXEDeprovisioning_CancelledBeginsAgain(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t, newWorld(t, stack.Options{PXE: pxeMachines(1)}))
	s := w.PXE[0]
	id := w.active(t, s)[0]
	require.NoError(t, s.Live.SetFaults(simnode.Faults{Scrub: simnode.ScrubFaults{GPUMemoryResidue: true}}))
	first := w.begin(t, id, deprovisioning())
	require.Equal(t, lifecycle.JobFailedManual, w.ends(t, first, pxePatience).Status)
	w.act(t, first, lifecycle.ActionCancel)
	require.Eventually(t, func() bool { return w.job(t, first).Status == lifecycle.JobCancelled }, runenv.Patience(pxePatience), 100*time.Millisecond)
	require.Equal(t, lifecycle.NodeDeprovisioning, w.node(t, id).Status)
	require.Eventually(t, func() bool { return w.view(t, id).Pxe.Netboot == nil }, runenv.Patience(pxePatience), 100*time.Millisecond, "it boots its disk again")
	require.NoError(t, s.Live.SetFaults(simnode.Faults{}))

	second := w.begin(t, id, deprovisioning())
	require.NotEqual(t, first, second)
	w.completes(t, second)
	require.Equal(t, append(fromDiscoveryToService[:5:5], "deprovisioning", "retired"), w.way(t, id))
	erased(t, s)
}

// hardware is a machine as an operator plans it.
func (w *pxeWorld) hardware(s *stack.PXEServer) client.HardwareRequest {
	spec := s.Hardware.Spec()
	return client.HardwareRequest{
		MacAddresses: []string{s.MAC()}, SerialNumber: &spec.Serial, SystemUUID: &spec.UUID,
		Bmc: &client.BMCRequest{Address: spec.BMCAddress, CredentialRef: stack.BMCSecret(spec.ID)},
	}
}

// TestPXEMigration_ToNewDisks checks that the old hardware is erased and the new one installed,
// that id, history and labels stay, and that the old machine belongs to no node.
func TestPXEMigration_ToNewDisks(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t, newWorld(t, stack.Options{PXE: pxeMachines(2)}))
	old, fresh := w.PXE[0], w.PXE[1]
	id := w.active(t, old)[0]
	require.NoError(t, old.Disk.Occupy())
	stolen := w.identityBelow(t, old.Disk.Root())
	job := w.begin(t, id, client.StateTransition{State: "migrating", Disks: new(client.StateTransitionDisksNew), EraseOld: new(true), GraceSeconds: new(int64(1))})
	power(t, old, simhw.Off)
	_, err := w.api.PlanNodeHardware(t.Context(), id, w.hardware(fresh), client.IfMatch("*"))
	require.NoError(t, err)
	w.pinned(t, job, id, fresh)
	w.completes(t, job)

	require.Equal(t, append(fromDiscoveryToService[:5:5], "migrating", "active"), w.way(t, id))
	v := w.view(t, id)
	require.Equal(t, "7", v.Labels["rack"])
	require.Equal(t, []string{fresh.MAC()}, w.node(t, id).MACs)
	require.Equal(t, fresh.Hardware.Spec().Serial, w.node(t, id).Serial)
	w.heard(t, id, fresh)
	require.Equal(t, http.StatusForbidden, w.repeatHeartbeat(t, stolen, id), "the identity of the old hardware is shut out")
	erased(t, old)
	require.Equal(t, 1, fresh.Hardware.Counters().Installs)
	require.True(t, fresh.Hardware.OSUp())

	old.Hardware.PowerOn("test")
	require.NotEqual(t, id, w.discovered(t, old), "the old machine is another node")
}

// TestPXENode_ErasedAndInstalledAgain checks that a node keeps its hardware, is proven clean, and
// returns to service with another system and another identity.
func TestPXENode_ErasedAndInstalledAgain(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t, newWorld(t, stack.Options{PXE: pxeMachines(1)}))
	s := w.PXE[0]
	id := w.active(t, s)[0]
	require.NoError(t, s.Disk.Occupy())
	stolen := w.identityBelow(t, s.Disk.Root())
	was, drives := w.node(t, id), w.drives(t, id)
	require.NotEmpty(t, drives)
	job := w.begin(t, id, client.StateTransition{State: "migrating", Disks: new(client.StateTransitionDisksSame), GraceSeconds: new(int64(1))})
	w.completes(t, job)

	require.Equal(t, append(fromDiscoveryToService[:5:5], "migrating", "active"), w.way(t, id))
	now := w.node(t, id)
	require.Equal(t, []any{was.MACs, was.Serial, was.HardwareUUID}, []any{now.MACs, now.Serial, now.HardwareUUID})
	require.Equal(t, drives, w.drives(t, id), "the record of its drives stays")
	w.proven(t, s, id)
	for _, d := range s.Hardware.Spec().Disks {
		held, err := s.Disk.DiskHolds(d.Name, simnode.TenantMark)
		require.NoError(t, err)
		require.False(t, held, "what was on %s is gone", d.Name)
	}
	require.Equal(t, 2, s.Hardware.Counters().Installs)
	require.True(t, s.Hardware.OSUp())
	w.heard(t, id, s)
	require.Equal(t, http.StatusForbidden, w.repeatHeartbeat(t, stolen, id), "the identity of the erased system is shut out")
}

// drives is the record of the drives that the node is expected to have.
func (w *pxeWorld) drives(t *testing.T, id string) (out []spec.ExpectedDrive) {
	t.Helper()
	require.NoError(t, w.App.Store.ReadTx(t.Context(), func(tx *db.Tx) error {
		expected, err := tx.ExpectedDrives(t.Context(), id)
		out = expected.Drives
		return err
	}))
	return out
}

// TestPXEMigration_WithItsDisks checks that the node's system boots in other hardware and that
// nothing is installed.
func TestPXEMigration_WithItsDisks(t *testing.T) {
	t.Parallel()
	machines := pxeMachines(2)
	machines[1].NoDisk = true
	w := newPXEWorld(t, newWorld(t, stack.Options{PXE: machines}))
	old, fresh := w.PXE[0], w.PXE[1]
	id := w.active(t, old)[0]
	job := w.begin(t, id, client.StateTransition{State: "migrating", Disks: new(client.StateTransitionDisksMoved), GraceSeconds: new(int64(1))})
	power(t, old, simhw.Off)
	require.NoError(t, pxesim.MoveDisks(old.Server, fresh.Server))
	_, err := w.api.PlanNodeHardware(t.Context(), id, w.hardware(fresh), client.IfMatch("*"))
	require.NoError(t, err)
	w.pinned(t, job, id, fresh)
	w.completes(t, job)

	require.Equal(t, append(fromDiscoveryToService[:5:5], "migrating", "active"), w.way(t, id))
	w.heard(t, id, fresh)
	require.Zero(t, fresh.Hardware.Counters().Installs)
	identity, err := w.App.Store.AgentIdentity(t.Context(), id)
	require.NoError(t, err)
	require.EqualValues(t, 1, identity.Generation, "the agent is who it was")
	old.Hardware.PowerOn("test")
	require.NotEqual(t, id, w.discovered(t, old))
}
