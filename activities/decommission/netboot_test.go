package decommission_test

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/decommission"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// pxeWorld is a PXE node in the middle of a mode, with workflows that bring an
// agent.
func pxeWorld(t *testing.T, mac string, mode lifecycle.DecommissionMode) *world {
	t.Helper()
	w := newWorld(t)
	n := dbtest.PXENode(t, w.store, mac, lifecycle.NodeActive)
	agent := spec.InstallWorkflowSpec{Kernel: spec.BootImage{URL: "http://127.0.0.1/vmlinuz"}, Agent: &spec.InstallAgent{}}
	live, err := w.store.CreateInstallWorkflow(t.Context(), "live", agent)
	require.NoError(t, err)
	system, err := w.store.CreateInstallWorkflow(t.Context(), "system", agent)
	require.NoError(t, err)
	w.tx(func(tx *db.Tx) error {
		n, err := tx.AssignEraseWorkflow(t.Context(), n.ID, n.Version, live.ID)
		if err != nil {
			return err
		}
		if n, err = tx.AssignInstallWorkflow(t.Context(), n.ID, n.Version, system.ID); err != nil {
			return err
		}
		j, _, err := tx.StartNodeJob(t.Context(), db.NodeJob{Mode: mode, Node: n, Job: db.NewJob{
			Kind: string(contract.KindNodeOperation), Input: fmt.Appendf(nil, `{"mode": %q}`, mode), Actor: db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"},
		}})
		w.ref = contract.JobRef{JobID: j.ID, NodeID: n.ID, Stage: "test"}
		return err
	})
	return w
}

// enrols is an agent that uses a token of its own for the next generation.
func (w *world) enrols(generation int64) {
	w.Helper()
	hash := sha256.Sum256(fmt.Append(nil, w.ref.NodeID, generation))
	w.tx(func(tx *db.Tx) error {
		if err := tx.IssueEnrollmentToken(w.Context(), w.ref.NodeID, "", hash[:], time.Now().Add(time.Hour)); err != nil {
			return err
		}
		if _, _, err := tx.RedeemEnrollmentToken(w.Context(), hash[:], hash[:], generation); err != nil {
			return err
		}
		return tx.SaveAgentIdentity(w.Context(), db.AgentCertificate{
			NodeID: w.ref.NodeID, Generation: generation, Serial: fmt.Sprint(generation), KeyHash: hash[:], CertPEM: "pem", NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		})
	})
}

func (w *world) beats(boot string, generation int64, report *spec.HealthReport) {
	w.Helper()
	require.NoError(w, w.store.RecordHeartbeats(w.Context(), []db.Heartbeat{{
		NodeID: w.ref.NodeID, BootID: boot, Generation: generation, ReceivedAt: time.Now(), Report: report,
	}}))
}

func (w *world) looked(purpose lifecycle.Netboot, notBoot string) contract.SystemFacts {
	w.Helper()
	in := decommission.SystemIn{JobRef: w.ref, Purpose: purpose, NotBootID: notBoot}
	in.ObserveOnly = true
	return must(w, w.acts.WaitForSystem, in)
}

// TestOnlyAnAgentThatEnrolledSinceIsTheLiveSystems: the installed system may boot
// anew, be heard and even renew its certificate, and is not it.
func TestOnlyAnAgentThatEnrolledSinceIsTheLiveSystems(t *testing.T) {
	t.Parallel()
	w := pxeWorld(t, "52:54:00:aa:00:01", lifecycle.ModeDeprovision)
	w.enrols(1)
	w.beats("disk-1", 1, &spec.HealthReport{Disks: []spec.DiskReport{{Name: "sda", Serial: "S0", Boot: true}}})
	armed := must(w, w.acts.ArmNetboot, decommission.NetbootIn{JobRef: w.ref, Purpose: lifecycle.NetbootErase})
	require.Equal(t, "live", armed.Workflow)
	require.Equal(t, "disk-1", armed.BootID)
	require.True(t, armed.Installed)
	require.Len(t, armed.Disks, 1, "the system's disk too")
	require.True(t, must(w, w.acts.CheckNetboot, w.ref).Armed)

	w.beats("disk-2", 1, nil)
	seen := w.looked(lifecycle.NetbootErase, "disk-1")
	require.False(t, seen.Done)
	require.Contains(t, seen.Note, "does not boot from the network first")
	w.tx(func(tx *db.Tx) error {
		return tx.AdvanceGeneration(t.Context(), w.ref.NodeID, 1, db.AgentCertificate{
			NodeID: w.ref.NodeID, Generation: 2, Serial: "2", KeyHash: make([]byte, 32), CertPEM: "pem", NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		})
	})
	w.beats("disk-2", 2, nil)
	require.False(t, w.looked(lifecycle.NetbootErase, "disk-1").Done, "a renewed certificate is no enrolment")

	w.enrols(3)
	require.False(t, w.looked(lifecycle.NetbootErase, "disk-1").Done, "not heard yet")
	w.beats("live-1", 3, nil)
	require.True(t, w.looked(lifecycle.NetbootErase, "disk-1").Done)
	require.False(t, w.looked(lifecycle.NetbootErase, "live-1").Done, "the fresh boot that proves it is another")

	must(w, w.acts.DisarmNetboot, w.ref)
	require.False(t, must(w, w.acts.CheckNetboot, w.ref).Armed)
}

func TestASystemThatDoesNotComeSaysWhatWasSeen(t *testing.T) {
	t.Parallel()
	w := pxeWorld(t, "52:54:00:aa:00:02", lifecycle.ModeDeprovision)
	must(w, w.acts.ArmNetboot, decommission.NetbootIn{JobRef: w.ref, Purpose: lifecycle.NetbootErase})
	token, _ := dbtest.BootToken(t, w.store, w.ref.NodeID)
	w.tx(func(tx *db.Tx) error {
		_, _, err := tx.ReportInstall(t.Context(), db.InstallReport{TokenHash: token, MAC: "52:54:00:aa:00:02", Status: lifecycle.InstallFailure, Error: "no network"})
		return err
	})
	why := fails(w, lifecycle.FailAgentNotEnrolled, w.acts.WaitForSystem, decommission.SystemIn{
		JobRef: w.ref, Purpose: lifecycle.NetbootErase, Until: time.Now().Add(-time.Second), Class: lifecycle.FailAgentNotEnrolled,
	})
	require.Contains(t, why, "no network")
}

func TestANetbootNeedsAWorkflowThatBringsAnAgent(t *testing.T) {
	t.Parallel()
	w := pxeWorld(t, "52:54:00:aa:00:03", lifecycle.ModeMigrate)
	bare := dbtest.InstallWorkflow(t, w.store)
	assign := func(id string) {
		w.tx(func(tx *db.Tx) error {
			n, err := tx.Node(t.Context(), w.ref.NodeID)
			if err != nil {
				return err
			}
			_, err = tx.AssignEraseWorkflow(t.Context(), n.ID, n.Version, id)
			return err
		})
	}
	in := decommission.NetbootIn{JobRef: w.ref, Purpose: lifecycle.NetbootErase}
	assign(bare.ID)
	require.Contains(t, fails(w, lifecycle.FailConfiguration, w.acts.ArmNetboot, in), "brings no agent")
	assign("")
	require.Contains(t, fails(w, lifecycle.FailConfiguration, w.acts.ArmNetboot, in), "--erase-workflow")
	require.Equal(t, lifecycle.FailConfiguration, must(w, w.acts.PlanLeaving, decommission.LeavingLook{In: w.ref}).PXE.EraseFails.Class)
	w.tx(func(tx *db.Tx) error {
		_, err := tx.TransitionNode(t.Context(), w.ref.NodeID, lifecycle.PXERetire, nil, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"})
		return err
	})
	in.Purpose = lifecycle.NetbootInstall
	require.Contains(t, fails(w, lifecycle.FailStateDisagreement, w.acts.ArmNetboot, in), "retired")
	// What waits is told, too: nobody works on a node that an admin took away.
	require.Contains(t, fails(w, lifecycle.FailStateDisagreement, w.acts.WaitForSystem, decommission.SystemIn{
		JobRef: w.ref, Purpose: lifecycle.NetbootInstall, Until: time.Now().Add(time.Hour), Class: lifecycle.FailAgentNotEnrolled,
	}), "cancel it")
	require.Contains(t, fails(w, lifecycle.FailStateDisagreement, w.acts.ReplaceHardware, decommission.HardwareIn{JobRef: w.ref}), "cancel it")
}

// TestTheNewHardwareIsWaitedFor until it is named, is installed, says so, and
// reports what the SKU asks for.
func TestTheNewHardwareIsWaitedFor(t *testing.T) {
	t.Parallel()
	const mac = "52:54:00:aa:00:05"
	w := pxeWorld(t, "52:54:00:aa:00:04", lifecycle.ModeMigrate)
	w.enrols(1)
	w.beats("old-1", 1, nil)
	look := decommission.HardwareIn{JobRef: w.ref}
	look.ObserveOnly = true
	require.False(t, must(w, w.acts.ReplaceHardware, look).Done)
	w.tx(func(tx *db.Tx) error {
		n, err := tx.Node(t.Context(), w.ref.NodeID)
		if err != nil {
			return err
		}
		_, err = tx.PlanHardware(t.Context(), n.ID, n.Version, db.PlannedHardware{MACs: []string{mac}, SerialNumber: "S2", Disks: db.DisksNew}, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"})
		return err
	})
	got := must(w, w.acts.ReplaceHardware, decommission.HardwareIn{JobRef: w.ref})
	require.True(t, got.Done)
	require.Equal(t, "old-1", got.BootID)
	require.Equal(t, got, must(w, w.acts.ReplaceHardware, decommission.HardwareIn{JobRef: w.ref}), "repeated")
	require.True(t, must(w, w.acts.ReplaceHardware, look).Done)
	require.Equal(t, contract.AgentNone, must(w, w.acts.LookAtLeaving, w.ref).Agent, "the old agent is shut out")

	must(w, w.acts.ArmNetboot, decommission.NetbootIn{JobRef: w.ref, Purpose: lifecycle.NetbootInstall})
	in := decommission.SystemIn{JobRef: w.ref, Purpose: lifecycle.NetbootInstall, NotBootID: "old-1", Healthy: true, SKU: spec.SKUSpec{GPUs: 1}}
	in.ObserveOnly = true
	w.enrols(2)
	w.beats("new-1", 2, nil)
	require.Contains(t, must(w, w.acts.WaitForSystem, in).Note, "has not said that it is complete")
	token, _ := dbtest.BootToken(t, w.store, w.ref.NodeID)
	w.tx(func(tx *db.Tx) error {
		_, _, err := tx.ReportInstall(t.Context(), db.InstallReport{TokenHash: token, MAC: mac, Status: lifecycle.InstallComplete, Facts: db.PXEFacts{SerialNumber: "S9"}})
		return err
	})
	require.Contains(t, must(w, w.acts.WaitForSystem, in).Note, "has not reported yet")
	w.beats("new-1", 2, &spec.HealthReport{})
	require.Contains(t, must(w, w.acts.WaitForSystem, in).Note, "SKU")
	w.beats("new-1", 2, &spec.HealthReport{GPUs: []spec.GPUReport{{UUID: "GPU-1"}}})
	f := must(w, w.acts.WaitForSystem, in)
	require.True(t, f.Done, f.Note)
	require.Equal(t, "S9", f.Serial, "which the job compares with the planned one")
	in.SKU, in.ObserveOnly, in.Poll = spec.SKUSpec{GPUs: 8}, false, spec.Duration(time.Millisecond)
	fails(w, lifecycle.FailNodeUnhealthy, w.acts.WaitForSystem, in)
}

// TestMovedDisksKeepTheirAgent: the same identity, from a boot of its own.
func TestMovedDisksKeepTheirAgent(t *testing.T) {
	t.Parallel()
	w := pxeWorld(t, "52:54:00:aa:00:06", lifecycle.ModeMigrate)
	w.enrols(1)
	w.beats("old-1", 1, nil)
	w.tx(func(tx *db.Tx) error {
		n, err := tx.Node(t.Context(), w.ref.NodeID)
		if err != nil {
			return err
		}
		_, err = tx.PlanHardware(t.Context(), n.ID, n.Version, db.PlannedHardware{MACs: []string{"52:54:00:aa:00:07"}, Disks: db.DisksMoved}, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"})
		return err
	})
	require.True(t, must(w, w.acts.ReplaceHardware, decommission.HardwareIn{JobRef: w.ref}).Moved)
	require.Equal(t, contract.AgentAlive, must(w, w.acts.LookAtLeaving, w.ref).Agent)
	require.False(t, w.looked("", "old-1").Done)
	w.beats("new-1", 1, nil)
	require.True(t, w.looked("", "old-1").Done)
}

// TestEveryDiskIsAskedForAfterALiveSystem: the system's disk is no excuse, nor
// one that the live system does not see.
func TestEveryDiskIsAskedForAfterALiveSystem(t *testing.T) {
	t.Parallel()
	w := pxeWorld(t, "52:54:00:aa:00:08", lifecycle.ModeDeprovision)
	w.enrols(1)
	disk := func(name, serial string, verified bool) lifecycle.DeviceResult {
		return lifecycle.DeviceResult{Kind: "disk", Name: name, Serial: serial, Method: lifecycle.SanitizePurge, Verified: verified, Detail: "sampled"}
	}
	in := decommission.CertifyIn{
		JobRef: w.ref, Kind: contract.KindNodeOperation, Mode: lifecycle.ModeDeprovision, StartedAt: time.Now().Truncate(time.Microsecond),
		Netboot: &contract.NetbootFacts{Installed: true, Disks: []lifecycle.DeviceResult{{Kind: "disk", Name: "sda", Serial: "S0"}, {Kind: "disk", Name: "nvme0n1", Serial: "S1"}}},
	}
	w.task(lifecycle.TaskKindScrub, "scrub/1", spec.ScrubArgs{RunID: w.ref.JobID}, lifecycle.TaskResult{OK: true, BootID: "live-1", Devices: []lifecycle.DeviceResult{disk("sdb", "S0", true)}})
	got := must(w, w.acts.CertifyNode, in)
	require.Len(t, got.Unproven, 1, "names move from system to system, serial numbers do not")
	require.Contains(t, got.Unproven[0], "does not see it")
	c, _ := w.last()
	require.NotEqual(t, "clean", string(c.Verdict))
	require.Empty(t, c.Subject.SiteID)

	w.task(lifecycle.TaskKindScrub, "scrub/2", spec.ScrubArgs{RunID: w.ref.JobID}, lifecycle.TaskResult{
		OK: true, BootID: "live-1", Output: []byte(`{"boot_disks": ["S0"]}`), Devices: []lifecycle.DeviceResult{
			{Kind: "disk", Name: "sda", Serial: "S0", Method: lifecycle.SanitizeNone, Detail: "the agent runs from it"}, disk("nvme0n1", "S1", true),
		},
	})
	require.Len(t, must(w, w.acts.CertifyNode, in).Unproven, 1, "a live system that runs from a disk is none")

	w.task(lifecycle.TaskKindScrub, "scrub/3", spec.ScrubArgs{RunID: w.ref.JobID}, lifecycle.TaskResult{OK: true, BootID: "live-1"})
	in.Netboot = &contract.NetbootFacts{}
	require.Contains(t, must(w, w.acts.CertifyNode, in).Unproven, "no disk of the machine is known to be erased")
	in.Netboot.Installed = true
	require.Empty(t, must(w, w.acts.CertifyNode, in).Unproven, "a machine that is known to have no disk")
}
