package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// killed is a machine whose job loses its worker in a stage.
type killed struct {
	stage, node, job string
	old, fresh       *stack.PXEServer
}

// killInEveryStage brings one machine into service for each stage of a mode,
// begins its job, and then starts a worker that dies once in each.
func (w *pxeWorld) killInEveryStage(t *testing.T, mode lifecycle.DecommissionMode, ask func(killed) client.StateTransition, after func(killed)) {
	t.Helper()
	info, ok := lifecycle.DecommissionModeOf(mode)
	require.True(t, ok)
	servers := w.PXE[:len(info.Stages)]
	nodes := w.active(t, servers...)
	plan, cases := map[string]string{}, make([]killed, 0, len(servers))
	for i, s := range servers {
		k := killed{stage: info.Stages[i], node: nodes[i], old: s}
		if len(w.PXE) > len(servers) {
			k.fresh = w.PXE[len(servers)+i]
		}
		require.NoError(t, s.Disk.Occupy())
		w.allocate(t, k.node)
		k.job = w.begin(t, k.node, ask(k))
		plan[k.job] = k.stage
		cases = append(cases, k)
	}
	sup := superviseWorker(t, w.world, plan)
	for _, k := range cases {
		t.Logf("killed in %s", k.stage)
		after(k)
		_, err := os.Stat(filepath.Join(sup.dir, "died-"+k.job))
		require.NoError(t, err, "the worker never died in %s", k.stage)
	}
}

// allocate gives the node to a tenant, as the allocations' own job does one day.
func (w *pxeWorld) allocate(t *testing.T, id string) {
	t.Helper()
	dbtest.Occupy(t, dbtest.Open(t, w.Config.Database.URL), id)
}

func TestPXEDeprovisioning_WorkerKilledInEachStage(t *testing.T) {
	runenv.ProofOnly(t, "kills")
	t.Parallel()
	info, _ := lifecycle.DecommissionModeOf(lifecycle.ModeDeprovision)
	w := newPXEWorld(t, newPrivateWorld(t, stack.Options{PXE: pxeMachines(len(info.Stages)), NoWorker: true, DatabaseEnv: databaseVar}))
	w.killInEveryStage(t, lifecycle.ModeDeprovision, func(killed) client.StateTransition {
		return deprovisioning()
	}, func(k killed) {
		w.completes(t, k.job, "killed in", k.stage)
		require.Equal(t, append(fromDiscoveryToService[:5:5], "deprovisioning", "retired"), w.way(t, k.node), "killed in %s", k.stage)
		power(t, k.old, simhw.Off)
		erased(t, k.old)
		w.proven(t, k.old, k.node)
		w.erasedOnce(t, k)
	})
}

// erasedOnce: a worker that is lost erases nothing a second time.
func (w *pxeWorld) erasedOnce(t *testing.T, k killed) {
	t.Helper()
	counts, err := k.old.Live.Erasures()
	require.NoError(t, err)
	for disk, n := range counts {
		require.Equal(t, 1, n, "%s, killed in %s", disk, k.stage)
	}
	// One more means that a power cycle did not end in its time and was repeated.
	require.LessOrEqual(t, k.old.Hardware.Counters().PowerOffs, 3, runenv.Deadline+"killed in %s", k.stage)
}

func TestPXEMigration_WorkerKilledInEachStage(t *testing.T) {
	runenv.ProofOnly(t, "kills")
	t.Parallel()
	info, _ := lifecycle.DecommissionModeOf(lifecycle.ModeMigrate)
	w := newPXEWorld(t, newPrivateWorld(t, stack.Options{PXE: pxeMachines(2 * len(info.Stages)), NoWorker: true, DatabaseEnv: databaseVar}))
	w.killInEveryStage(t, lifecycle.ModeMigrate, func(k killed) client.StateTransition {
		return client.StateTransition{
			State: "migrating", Disks: new(client.StateTransitionDisksNew), EraseOld: new(true), GraceSeconds: new(int64(1)), Hardware: new(w.hardware(k.fresh)),
		}
	}, func(k killed) {
		w.pinned(t, k.job, k.node, k.fresh)
		w.completes(t, k.job, "killed in", k.stage)
		require.Equal(t, append(fromDiscoveryToService[:5:5], "migrating", "active"), w.way(t, k.node), "killed in %s", k.stage)
		require.Equal(t, []string{k.fresh.MAC()}, w.node(t, k.node).MACs)
		w.heard(t, k.node, k.fresh)
		erased(t, k.old)
		w.erasedOnce(t, k)
		require.Equal(t, 1, k.fresh.Hardware.Counters().Installs, "killed in %s", k.stage)
		power(t, k.old, simhw.Off)
	})
}
