package nodestate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/acttest"
)

// newPXEFixture is a PXE node with a job of a mode.
func newPXEFixture(t *testing.T, mac string, mode lifecycle.DecommissionMode) *nodeFixture {
	t.Helper()
	w := newNodeFixture(t)
	w.UsePXENode(mac, mode)
	return w
}

// observeSystem reads once what WaitForSystem waits for.
func (w *nodeFixture) observeSystem(purpose lifecycle.Netboot, notBoot string) contract.SystemFacts {
	w.Helper()
	in := nodestate.SystemIn{JobRef: w.Ref, Purpose: purpose, NotBootID: notBoot}
	in.ObserveOnly = true
	return acttest.Must(w, w.acts.WaitForSystem, in)
}

// The installed system may restart, send heartbeats and renew its certificate, and is still not the
// live system.
func TestWaitForSystem_NeedsNewEnrolment(t *testing.T) {
	t.Parallel()
	w := newPXEFixture(t, "52:54:00:aa:00:01", lifecycle.ModeDeprovision)
	w.Enrol(1)
	w.Heartbeat("disk-1", 1, 0, &spec.HealthReport{Disks: []spec.DiskReport{{Name: "sda", Serial: "S0", Boot: true}}})
	armed := acttest.Must(w, w.acts.ArmNetboot, nodestate.NetbootIn{JobRef: w.Ref, Purpose: lifecycle.NetbootErase})
	require.Equal(t, "live", armed.Workflow)
	require.Equal(t, "disk-1", armed.BootID)
	require.True(t, armed.Installed)
	require.Len(t, armed.Disks, 1, "the system's disk too")
	require.True(t, acttest.Must(w, w.acts.CheckNetboot, w.Ref).Armed)

	w.Heartbeat("disk-2", 1, 0, nil)
	seen := w.observeSystem(lifecycle.NetbootErase, "disk-1")
	require.False(t, seen.Done)
	require.Contains(t, seen.Note, "does not boot from the network first")
	w.Tx(func(tx *db.Tx) error {
		return tx.AdvanceGeneration(t.Context(), w.Ref.NodeID, 1, db.AgentCertificate{
			NodeID: w.Ref.NodeID, Generation: 2, Serial: "2", KeyHash: make([]byte, 32), CertPEM: "pem", NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		})
	})
	w.Heartbeat("disk-2", 2, 0, nil)
	require.False(t, w.observeSystem(lifecycle.NetbootErase, "disk-1").Done, "a renewed certificate is no enrolment")

	w.Enrol(3)
	require.False(t, w.observeSystem(lifecycle.NetbootErase, "disk-1").Done, "not heard yet")
	w.Heartbeat("live-1", 3, 0, nil)
	require.True(t, w.observeSystem(lifecycle.NetbootErase, "disk-1").Done)
	require.False(t, w.observeSystem(lifecycle.NetbootErase, "live-1").Done, "the fresh boot that proves it is another")

	acttest.Must(w, w.acts.DisarmNetboot, w.Ref)
	require.False(t, acttest.Must(w, w.acts.CheckNetboot, w.Ref).Armed)
}

func TestWaitForSystem_FailureSaysWhatWasSeen(t *testing.T) {
	t.Parallel()
	w := newPXEFixture(t, "52:54:00:aa:00:02", lifecycle.ModeDeprovision)
	acttest.Must(w, w.acts.ArmNetboot, nodestate.NetbootIn{JobRef: w.Ref, Purpose: lifecycle.NetbootErase})
	token, _ := dbtest.BootToken(t, w.Store, w.Ref.NodeID)
	w.Tx(func(tx *db.Tx) error {
		_, _, err := tx.ReportInstall(t.Context(), db.InstallReport{TokenHash: token, MAC: "52:54:00:aa:00:02", Status: lifecycle.InstallFailure, Error: "no network"})
		return err
	})
	why := acttest.Fails(w, lifecycle.FailAgentNotEnrolled, w.acts.WaitForSystem, nodestate.SystemIn{
		JobRef: w.Ref, Purpose: lifecycle.NetbootErase, Until: time.Now().Add(-time.Second), Class: lifecycle.FailAgentNotEnrolled,
	})
	require.Contains(t, why, "no network")
}

// TestWaitForSystem_InstallerFails: an installer that fails again and again is not waited for until
// the deadline. The retry arms a new round, in which its failures count from the beginning.
func TestWaitForSystem_InstallerFails(t *testing.T) {
	t.Parallel()
	const mac = "52:54:00:aa:00:06"
	w := newPXEFixture(t, mac, lifecycle.ModeMigrate)
	arm := nodestate.NetbootIn{JobRef: w.Ref, Purpose: lifecycle.NetbootInstall}
	wait := nodestate.SystemIn{JobRef: w.Ref, Purpose: lifecycle.NetbootInstall, Until: time.Now().Add(time.Hour), Class: lifecycle.FailAgentNotEnrolled}
	fails := func(times int) {
		for range times {
			token, _ := dbtest.BootToken(t, w.Store, w.Ref.NodeID)
			w.Tx(func(tx *db.Tx) error {
				for _, status := range []lifecycle.InstallStatus{lifecycle.InstallStarted, lifecycle.InstallFailure} {
					if _, _, err := tx.ReportInstall(t.Context(), db.InstallReport{TokenHash: token, MAC: mac, Status: status, Error: "no disk"}); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	acttest.Must(w, w.acts.ArmNetboot, arm)
	fails(lifecycle.MaxWarnings - 1)
	late := wait
	late.Until = time.Now().Add(-time.Second)
	require.Contains(t, acttest.Fails(w, lifecycle.FailAgentNotEnrolled, w.acts.WaitForSystem, late), "no agent has enrolled", "it may still come")
	acttest.Must(w, w.acts.ArmNetboot, arm)
	fails(1)
	require.Contains(t, acttest.Fails(w, lifecycle.FailAgentNotEnrolled, w.acts.WaitForSystem, wait), "has failed 8 times, the last time with the error: no disk")
	require.False(t, w.observeSystem(lifecycle.NetbootInstall, "").Done)
	acttest.Must(w, w.acts.ArmNetboot, arm)
	require.NotContains(t, acttest.Fails(w, lifecycle.FailAgentNotEnrolled, w.acts.WaitForSystem, late), "no disk", "it is another round")
}

func TestArmNetboot_WorkflowMustInstallAgent(t *testing.T) {
	t.Parallel()
	w := newPXEFixture(t, "52:54:00:aa:00:03", lifecycle.ModeMigrate)
	bare := dbtest.InstallWorkflow(t, w.Store)
	assign := func(id string) {
		w.Tx(func(tx *db.Tx) error {
			n, err := tx.Node(t.Context(), w.Ref.NodeID)
			if err != nil {
				return err
			}
			_, err = tx.AssignEraseWorkflow(t.Context(), n.ID, n.Version, id)
			return err
		})
	}
	in := nodestate.NetbootIn{JobRef: w.Ref, Purpose: lifecycle.NetbootErase}
	assign(bare.ID)
	require.Contains(t, acttest.Fails(w, lifecycle.FailConfiguration, w.acts.ArmNetboot, in), "brings no agent")
	assign("")
	require.Contains(t, acttest.Fails(w, lifecycle.FailConfiguration, w.acts.ArmNetboot, in), "assign one to it or to its device group")
	require.Equal(t, lifecycle.FailConfiguration, acttest.Must(w, w.acts.PlanNodeDecommission, nodestate.DecommissionPlanIn{In: w.Ref}).PXE.EraseFails.Class)
	w.Tx(func(tx *db.Tx) error {
		_, err := tx.TransitionNode(t.Context(), w.Ref.NodeID, lifecycle.PXERetire, nil, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"})
		return err
	})
	in.Purpose = lifecycle.NetbootInstall
	require.Contains(t, acttest.Fails(w, lifecycle.FailStateDisagreement, w.acts.ArmNetboot, in), "retired")
	// A stage that waits fails, too: nobody works on a node that an admin took away.
	require.Contains(t, acttest.Fails(w, lifecycle.FailStateDisagreement, w.acts.WaitForSystem, nodestate.SystemIn{
		JobRef: w.Ref, Purpose: lifecycle.NetbootInstall, Until: time.Now().Add(time.Hour), Class: lifecycle.FailAgentNotEnrolled,
	}), "cancel it")
	require.Contains(t, acttest.Fails(w, lifecycle.FailStateDisagreement, w.acts.ReplaceHardware, nodestate.HardwareIn{JobRef: w.Ref}), "cancel it")
}

// The new hardware has to be planned and installed, to report that, and to meet the SKU.
func TestReplaceHardware_WaitsForHealthySystem(t *testing.T) {
	t.Parallel()
	const mac = "52:54:00:aa:00:05"
	w := newPXEFixture(t, "52:54:00:aa:00:04", lifecycle.ModeMigrate)
	w.Enrol(1)
	w.Heartbeat("old-1", 1, 0, nil)
	look := nodestate.HardwareIn{JobRef: w.Ref}
	look.ObserveOnly = true
	require.False(t, acttest.Must(w, w.acts.ReplaceHardware, look).Done)
	w.Tx(func(tx *db.Tx) error {
		n, err := tx.Node(t.Context(), w.Ref.NodeID)
		if err != nil {
			return err
		}
		_, err = tx.PlanHardware(t.Context(), n.ID, n.Version, db.PlannedHardware{MACs: []string{mac}, SerialNumber: "S2", Disks: db.DisksNew}, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"})
		return err
	})
	got := acttest.Must(w, w.acts.ReplaceHardware, nodestate.HardwareIn{JobRef: w.Ref})
	require.True(t, got.Done)
	require.Equal(t, "old-1", got.BootID)
	require.Equal(t, got, acttest.Must(w, w.acts.ReplaceHardware, nodestate.HardwareIn{JobRef: w.Ref}), "repeated")
	require.True(t, acttest.Must(w, w.acts.ReplaceHardware, look).Done)
	require.Equal(t, contract.AgentNone, acttest.Must(w, w.acts.ReadNodeFacts, w.Ref).Agent, "the old agent is shut out")

	acttest.Must(w, w.acts.ArmNetboot, nodestate.NetbootIn{JobRef: w.Ref, Purpose: lifecycle.NetbootInstall})
	in := nodestate.SystemIn{JobRef: w.Ref, Purpose: lifecycle.NetbootInstall, NotBootID: "old-1", Healthy: true, SKU: spec.SKUSpec{GPUs: 1}}
	in.ObserveOnly = true
	w.Enrol(2)
	w.Heartbeat("new-1", 2, 0, nil)
	require.Contains(t, acttest.Must(w, w.acts.WaitForSystem, in).Note, "has not said that it is complete")
	token, _ := dbtest.BootToken(t, w.Store, w.Ref.NodeID)
	w.Tx(func(tx *db.Tx) error {
		_, _, err := tx.ReportInstall(t.Context(), db.InstallReport{TokenHash: token, MAC: mac, Status: lifecycle.InstallComplete, Facts: db.PXEFacts{SerialNumber: "S9"}})
		return err
	})
	require.Contains(t, acttest.Must(w, w.acts.WaitForSystem, in).Note, "has not reported yet")
	w.Heartbeat("new-1", 2, 0, &spec.HealthReport{})
	require.Contains(t, acttest.Must(w, w.acts.WaitForSystem, in).Note, "SKU")
	w.Heartbeat("new-1", 2, 0, &spec.HealthReport{GPUs: []spec.GPUReport{{UUID: "GPU-1"}}})
	f := acttest.Must(w, w.acts.WaitForSystem, in)
	require.True(t, f.Done, f.Note)
	require.Equal(t, "S9", f.Serial, "which the job compares with the planned one")
	in.SKU, in.ObserveOnly, in.Poll = spec.SKUSpec{GPUs: 8}, false, spec.Duration(time.Millisecond)
	acttest.Fails(w, lifecycle.FailNodeUnhealthy, w.acts.WaitForSystem, in)
}

func TestReplaceHardware_MovedDisksKeepIdentity(t *testing.T) {
	t.Parallel()
	w := newPXEFixture(t, "52:54:00:aa:00:06", lifecycle.ModeMigrate)
	w.Enrol(1)
	w.Heartbeat("old-1", 1, 0, nil)
	w.Tx(func(tx *db.Tx) error {
		n, err := tx.Node(t.Context(), w.Ref.NodeID)
		if err != nil {
			return err
		}
		_, err = tx.PlanHardware(t.Context(), n.ID, n.Version, db.PlannedHardware{MACs: []string{"52:54:00:aa:00:07"}, Disks: db.DisksMoved}, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"})
		return err
	})
	require.True(t, acttest.Must(w, w.acts.ReplaceHardware, nodestate.HardwareIn{JobRef: w.Ref}).Moved)
	require.Equal(t, contract.AgentAlive, acttest.Must(w, w.acts.ReadNodeFacts, w.Ref).Agent)
	require.False(t, w.observeSystem("", "old-1").Done)
	w.Heartbeat("new-1", 1, 0, nil)
	require.True(t, w.observeSystem("", "old-1").Done)
}
