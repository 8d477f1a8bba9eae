package maas_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

const fillerUUID = "03000200-0400-0500-0006-000700080009"

// TestCreateOrFind_FillersOfTheBMC: what the BMC says in the place of a serial number or UUID does
// not hide what MAAS knows.
func TestCreateOrFind_FillersOfTheBMC(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.sim.External("enlist", w.bmc.MACs[0]))
	in := w.createIn()
	in.BMC.Serial, in.BMC.UUID, in.BMC.SerialSource = "To be filled by O.E.M", fillerUUID, "system 1"
	require.False(t, must(w, w.acts.CreateOrFindMachine, in).Created)
	node, err := w.store.Node(t.Context(), w.ref.NodeID)
	require.NoError(t, err)
	require.Equal(t, w.hw.Spec().Serial, node.Serial)
	require.NotEqual(t, fillerUUID, node.HardwareUUID)
}

// TestCreateOrFind_AnotherMachine: one MAC address in common does not make a record of MAAS that of
// a machine with another serial number.
func TestCreateOrFind_AnotherMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.sim.External("enlist", w.bmc.MACs[0]))
	in := w.createIn()
	in.BMC.Protocol, in.BMC.Serial, in.BMC.SerialSource, in.BMC.UUID = "redfish", "OTHER-1", "system 1", ""
	require.Contains(t, fails(w, lifecycle.FailConflictingCandidates, w.acts.CreateOrFindMachine, in), "the record is another machine's")
	in.BMC.SerialSource = "chassis 1"
	must(w, w.acts.CreateOrFindMachine, in)
}

// TestCreateOrFind_RemovedNode: a node that was removed leaves its machine deployed in MAAS. The
// refusal names the command that releases it, and never does for the machine of a node that lives.
func TestCreateOrFind_RemovedNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t).deploying()
	again := dbtest.Node(t, w.store, dbtest.At(w.ref.SiteID), dbtest.Hostname("gpu-1-again"))
	in := w.createIn()
	in.NodeID, in.JobID = again.ID, dbtest.Job(t, w.store, dbtest.On(again.ID)).ID
	live := fails(w, lifecycle.FailStateDisagreement, w.acts.CreateOrFindMachine, in)
	require.Contains(t, live, "decommission that node first")
	require.NotContains(t, live, "machine release")

	dbtest.MoveNode(t, w.store, w.ref.NodeID, lifecycle.NodeDeleted)
	removed := fails(w, lifecycle.FailStateDisagreement, w.acts.CreateOrFindMachine, in)
	require.Contains(t, removed, "which was removed")
	require.Contains(t, removed, "maas PROFILE machine release "+w.id+" erase=true")

	require.NoError(t, w.sim.External("release", w.id))
	require.Equal(t, w.id, must(w, w.acts.CreateOrFindMachine, in).SystemID, "once it is released, the host is onboarded again")
}
