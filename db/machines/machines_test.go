package machinesdb_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/listfilter"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

var (
	admin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "token:test"}
	job   = db.Actor{Owner: lifecycle.OwnerJob, ID: "job_1"}
)

func newMachine(t *testing.T, store *db.Store, id string, s spec.MachineSpec) machinesdb.Machine {
	t.Helper()
	var m machinesdb.Machine
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		m, err = machinesdb.Create(t.Context(), tx, machinesdb.New{ID: id, Labels: map[string]string{"env": "prod"}, Spec: s, Phase: lifecycle.MachineReady, Actor: admin})
		return err
	}))
	return m
}

// newRun writes a run on a machine, as intent/machines does.
func newRun(t *testing.T, store *db.Store, m machinesdb.Machine) machinesdb.Run {
	t.Helper()
	id := db.NewID("run")
	var run machinesdb.Run
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		run, err = machinesdb.CreateRun(t.Context(), tx, machinesdb.NewRun{
			ID: id, JobID: db.NewID("job"), Machine: m, RequestID: id, Type: lifecycle.RunTypeReboot, Actor: admin,
			Plan: runplan.Plan{ID: "p", Steps: []runplan.Step{{Name: "a", SSH: &runplan.SSHCommand{Command: "true"}}}},
		})
		if err == nil {
			_, err = machinesdb.MoveTo(t.Context(), tx, m, lifecycle.MachineStartRun, nil, id, job)
		}
		return err
	}))
	return run
}

// project brings a run up to a status of its job.
func project(t *testing.T, store *db.Store, run machinesdb.Run, s machinesdb.Step) {
	t.Helper()
	s.Actor = job
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		m, locked, err := machinesdb.LockForJob(t.Context(), tx, run.JobID)
		if err != nil {
			return err
		}
		return machinesdb.Project(t.Context(), tx, m, locked, s)
	}))
}

// TestEdges_AreThoseOfTheDatabase compares every pair of phases with the machine: the database
// itself refuses what the lifecycle does not have.
func TestEdges_AreThoseOfTheDatabase(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	m := newMachine(t, store, "m-1", spec.MachineSpec{})
	run := newRun(t, store, newMachine(t, store, "m-2", spec.MachineSpec{}))
	check := func(table, id, from, to string, set func(string) string) bool {
		tx, err := owner.Begin(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
		for _, sql := range []string{
			"SET LOCAL session_replication_role = replica", "UPDATE " + table + " SET " + set(from) + " WHERE id = '" + id + "'", "SET LOCAL session_replication_role = origin",
		} {
			_, err = tx.Exec(t.Context(), sql)
			require.NoError(t, err)
		}
		_, err = tx.Exec(t.Context(), "UPDATE "+table+" SET version = version + 1, "+set(to)+" WHERE id = '"+id+"'")
		var pg *pgconn.PgError
		if err != nil {
			require.ErrorAs(t, err, &pg)
			require.Equal(t, "SW001", pg.Code, err)
		}
		return err == nil
	}
	phase := func(p string) string {
		if p == string(lifecycle.MachineProvisioning) {
			return "status = 'PROVISIONING', active_run_id = 'run_x', phase_before = 'READY'"
		}
		return "status = '" + p + "', active_run_id = NULL, phase_before = ''"
	}
	for _, from := range lifecycle.MachinePhases.States {
		for _, to := range lifecycle.MachinePhases.States {
			if from.State != to.State {
				_, err := lifecycle.MachinePhases.Between(from.State, to.State)
				require.Equal(t, err == nil, check("machines", m.ID, string(from.State), string(to.State), phase), "machine %s -> %s", from.State, to.State)
			}
		}
	}
	ended := func(p string) string {
		set := "status = '" + p + "', failure_class = '', finished_at = NULL"
		if lifecycle.Run.Terminal(lifecycle.RunPhase(p)) {
			set = "status = '" + p + "', failure_class = '', finished_at = now()"
		}
		if p == string(lifecycle.RunFailed) {
			set = strings.Replace(set, "failure_class = ''", "failure_class = 'command_failed'", 1)
		}
		return set
	}
	for _, from := range lifecycle.Run.States {
		for _, to := range lifecycle.Run.States {
			if from.State != to.State {
				_, err := lifecycle.Run.Between(from.State, to.State)
				require.Equal(t, err == nil, check("runs", run.ID, string(from.State), string(to.State), ended), "run %s -> %s", from.State, to.State)
			}
		}
	}
}

// TestProject_FollowsTheJob takes runs to each end. The machine follows.
func TestProject_FollowsTheJob(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	for i, tc := range []struct {
		steps []machinesdb.Step
		run   lifecycle.RunPhase
		phase lifecycle.MachinePhase
	}{
		{[]machinesdb.Step{{Status: lifecycle.JobRunning}}, lifecycle.RunRunning, lifecycle.MachineProvisioning},
		{[]machinesdb.Step{{Status: lifecycle.JobRunning}, {Status: lifecycle.JobCompleted}}, lifecycle.RunSucceeded, lifecycle.MachineReady},
		{[]machinesdb.Step{{Status: lifecycle.JobCancelled}}, lifecycle.RunCanceled, lifecycle.MachineMaintenance},
		{[]machinesdb.Step{{Status: lifecycle.JobRunning}, {Status: lifecycle.JobCompensating, Failed: lifecycle.FailCommand}, {Status: lifecycle.JobCancelled, Failed: lifecycle.FailCommand, Message: "why"}}, lifecycle.RunFailed, lifecycle.MachineMaintenance},
		{[]machinesdb.Step{{Status: lifecycle.JobRunning}, {Status: lifecycle.JobFailedManual, Parked: lifecycle.FailFrozen}}, lifecycle.RunRunning, lifecycle.MachineProvisioning},
		{[]machinesdb.Step{{Status: lifecycle.JobRunning}, {Status: lifecycle.JobFailedManual, Parked: lifecycle.FailCompensation, Failed: lifecycle.FailCommand}}, lifecycle.RunRunning, lifecycle.MachineProvisioning},
	} {
		m := newMachine(t, store, fmt.Sprintf("m-%d", i), spec.MachineSpec{})
		run := newRun(t, store, m)
		for _, s := range tc.steps {
			s.Stages = []lifecycle.StageRow{{Ordinal: 1, Name: "a", State: lifecycle.StageRunning, Attempts: 1}}
			project(t, store, run, s)
		}
		now, err := machinesdb.GetRun(t.Context(), store, run.ID)
		require.NoError(t, err)
		require.Equal(t, tc.run, now.Status)
		require.Equal(t, tc.run == lifecycle.RunFailed, now.FailureClass != "")
		require.Equal(t, tc.steps[len(tc.steps)-1].Parked != "", now.NeedsIntervention)
		require.Equal(t, lifecycle.StageRunning, machinesdb.ViewOf(now).Steps[0].State)
		on, err := machinesdb.Get(t.Context(), store, m.ID)
		require.NoError(t, err)
		require.Equal(t, tc.phase, on.Status)
		require.Equal(t, tc.phase == lifecycle.MachineProvisioning, on.ActiveRunID != nil)
		var told int
		require.NoError(t, store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM outbox WHERE resource_id = $1 AND type = $2", run.ID, machinesdb.EventType).Scan(&told))
		require.Equal(t, 1+len(tc.steps), told, "the start and every change")
		project(t, store, run, machinesdb.Step{Status: lifecycle.JobRunning}) // late: nothing changes what has ended
		again, err := machinesdb.GetRun(t.Context(), store, run.ID)
		require.NoError(t, err)
		require.Equal(t, tc.run, again.Status)
	}
}

// A machine has one active run, and nobody changes how it is reached meanwhile.
func TestGuards_WhileARunIsActive(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	m := newMachine(t, store, "m-1", spec.MachineSpec{SSHEndpoint: "10.0.0.1:22"})
	run := newRun(t, store, m)
	exec := func(sql string) error {
		_, err := store.DBTX().Exec(t.Context(), sql)
		return err
	}
	require.ErrorContains(t, exec(`UPDATE machines SET spec = spec || '{"ssh_endpoint": "10.0.0.2:22"}'`), "cannot change while a run is active")
	require.ErrorContains(t, exec("UPDATE machines SET host_key = 'k'"), "cannot change while a run is active")
	require.ErrorContains(t, exec("UPDATE machines SET active_run_id = 'run_other'"), "changes with its phase")
	require.ErrorContains(t, exec("UPDATE runs SET steps = '[]'"), "cannot change")
	require.ErrorContains(t, exec("UPDATE runs SET version = version + 1, status = 'RUNNING'"), "without an audit row")
	require.Error(t, exec("DELETE FROM runs"))
	require.NoError(t, exec(`UPDATE machines SET spec = spec || '{"rack": "r1"}'`))
	project(t, store, run, machinesdb.Step{Status: lifecycle.JobCancelled})
	require.ErrorContains(t, exec("UPDATE runs SET message = 'x'"), "has ended")
	require.NoError(t, exec(`UPDATE machines SET spec = spec || '{"ssh_endpoint": "10.0.0.2:22"}'`))
}

// TestList_EffectiveStateIsThatOfLifecycle compares the filter of the database with lifecycle for
// every phase, with and without the cluster.
func TestList_EffectiveStateIsThatOfLifecycle(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	want := map[string]lifecycle.MachinePhase{}
	for _, s := range lifecycle.MachinePhases.States {
		for _, inCluster := range []bool{false, true} {
			id := fmt.Sprintf("m-%s-%t", s.State, inCluster)
			newMachine(t, store, id, spec.MachineSpec{Provider: "fake"})
			c := lifecycle.Conditions{}.Observe(lifecycle.InCustomerClusterCondition, inCluster, "Probe", time.Now())
			require.NoError(t, machinesdb.SetFollowed(t.Context(), store, id, c, ""))
			var run lifecycle.RunPhase
			set := "active_run_id = NULL, phase_before = ''"
			if s.State == lifecycle.MachineProvisioning {
				run, set = lifecycle.RunRunning, "active_run_id = 'run_x', phase_before = 'READY'"
			}
			tx, err := owner.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "SET LOCAL session_replication_role = replica")
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "UPDATE machines SET status = $1, "+set+" WHERE id = $2", s.State, id)
			require.NoError(t, err)
			require.NoError(t, tx.Commit(t.Context()))
			want[id] = lifecycle.EffectiveState(s.State, run, c)
		}
	}
	for _, s := range lifecycle.MachinePhases.States {
		for _, sign := range []string{"=", "!="} {
			found := list(t, store, "effective_state"+sign+string(s.State))
			for id, state := range want {
				require.Equal(t, (state == s.State) == (sign == "="), found[id], "%s: effective_state%s%s", id, sign, s.State)
			}
		}
	}
	require.Len(t, list(t, store, "phase=READY AND provider=fake AND labels.env=prod AND InCustomerCluster=true"), 1)
	require.Empty(t, list(t, store, `labels.env!=prod`))
	require.Len(t, list(t, store, `labels.other="" AND customer_id="" AND target_cluster_ref!=c AND Reachable=false`), len(want))
}

func list(t *testing.T, store *db.Store, text string) map[string]bool {
	t.Helper()
	f, err := listfilter.Parse(text, listfilter.MachineFields())
	require.NoError(t, err)
	rows, err := machinesdb.List(t.Context(), store, machinesdb.Page{Filter: f, Limit: 1000})
	require.NoError(t, err)
	out := map[string]bool{}
	for _, m := range rows {
		out[m.ID] = true
	}
	return out
}

// A list of runs reads the names of their steps, and not what these do.
func TestListRuns_LeavesParametersOut(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	run := newRun(t, store, newMachine(t, store, "m-1", spec.MachineSpec{}))
	project(t, store, run, machinesdb.Step{Status: lifecycle.JobRunning, Current: "a", Stages: []lifecycle.StageRow{{Ordinal: 1, Name: "a", State: lifecycle.StageRunning}}})
	one, err := machinesdb.GetRun(t.Context(), store, run.ID)
	require.NoError(t, err)
	rows, err := machinesdb.ListRuns(t.Context(), store, machinesdb.Page{Limit: 10}, true)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Nil(t, rows[0].Steps[0].SSH)
	require.Equal(t, machinesdb.ViewOf(one), machinesdb.ViewOf(rows[0]))
}

// TestAppendLog_KeepsBothEnds stores more output than is kept, each chunk twice, as a worker does
// that died after it had stored one.
func TestAppendLog_KeepsBothEnds(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	run := newRun(t, store, newMachine(t, store, "m-1", spec.MachineSpec{}))
	const chunk, chunks = 64 << 10, 240 // 15 MiB
	const keep = 8 << 20
	at := machinesdb.LogPlace{RunID: run.ID, Step: "a", Attempt: 1, Keep: keep}
	for i := range chunks {
		data := bytes.Repeat([]byte{byte(i)}, chunk)
		for range 2 {
			require.NoError(t, machinesdb.AppendLog(t.Context(), store, at, "stdout", int64(i+1)*chunk, data))
		}
	}
	offsets, err := machinesdb.LogOffsets(t.Context(), store, at)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"stdout": chunks * chunk}, offsets)
	var kept, gap, last int64
	seen := map[byte]bool{}
	for after := int64(0); ; {
		rows, err := machinesdb.LogsAfter(t.Context(), store, run.ID, after, 10)
		require.NoError(t, err)
		if len(rows) == 0 {
			break
		}
		for _, c := range rows {
			require.Greater(t, c.Seq, after)
			after, kept, gap = c.Seq, kept+int64(len(c.Data)), gap+c.Gap
			require.False(t, seen[c.Data[0]], "a chunk is there once")
			seen[c.Data[0]] = true
			if c.Gap > 0 {
				require.EqualValues(t, 16, last, "the first MiB stays")
			}
			last = int64(c.Data[0]) + 1
		}
	}
	require.EqualValues(t, chunks*chunk, kept+gap, "what is not there is stated")
	require.LessOrEqual(t, kept, int64(keep+1<<20))
	require.GreaterOrEqual(t, kept, int64(keep-chunk))
	var counted int64
	require.NoError(t, store.DBTX().QueryRow(t.Context(), "SELECT (bytes ->> 'a')::bigint FROM run_log_heads WHERE run_id = $1", run.ID).Scan(&counted))
	require.Equal(t, kept, counted, "each chunk counts once")
	require.True(t, seen[0] && seen[15] && seen[chunks-1])
	n, err := machinesdb.PruneLogs(t.Context(), store, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.NotZero(t, n)
}

// TestLogOffsets_OfAStreamThatWasDropped stores more of one stream than is kept of both.
func TestLogOffsets_OfAStreamThatWasDropped(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	run := newRun(t, store, newMachine(t, store, "m-1", spec.MachineSpec{}))
	const chunk = 256 << 10
	at := machinesdb.LogPlace{RunID: run.ID, Step: "a", Attempt: 1}
	for i := range 8 {
		require.NoError(t, machinesdb.AppendLog(t.Context(), store, at, "stdout", int64(i+1)*chunk, make([]byte, chunk)))
	}
	for i := range 48 {
		require.NoError(t, machinesdb.AppendLog(t.Context(), store, at, "stderr", int64(i+1)*chunk, make([]byte, chunk)))
	}
	offsets, err := machinesdb.LogOffsets(t.Context(), store, at)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"stdout": 8 * chunk, "stderr": 48 * chunk}, offsets)
	var kept, gap int64
	require.NoError(t, store.DBTX().QueryRow(t.Context(), "SELECT sum(octet_length(data)), sum(gap) FROM run_logs WHERE run_id = $1", run.ID).Scan(&kept, &gap))
	require.EqualValues(t, 56*chunk, kept+gap, "what is not there is stated")
}

// The serial number and the addresses of network cards belong to one machine, until that is
// retired.
func TestMachines_IdentitiesAreUnique(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	first := newMachine(t, store, "m-1", spec.MachineSpec{Serial: "S1", MACAddresses: []string{"02:00:00:00:00:01"}})
	create := func(id string, s spec.MachineSpec) error {
		return store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := machinesdb.Create(t.Context(), tx, machinesdb.New{ID: id, Spec: s, Phase: lifecycle.MachineReady, Actor: admin})
			return err
		})
	}
	var conflict *db.ConflictError
	require.ErrorAs(t, create("m-2", spec.MachineSpec{Serial: "S1"}), &conflict)
	require.Equal(t, "serial", conflict.What)
	require.ErrorAs(t, create("m-2", spec.MachineSpec{MACAddresses: []string{"02:00:00:00:00:01"}}), &conflict)
	require.Equal(t, "mac_address", conflict.What)
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := machinesdb.MoveTo(t.Context(), tx, first, lifecycle.MachineRetire, nil, "", admin)
		return err
	}))
	require.NoError(t, create("m-2", spec.MachineSpec{Serial: "S1", MACAddresses: []string{"02:00:00:00:00:01"}}))
}

// TestNoteCall_WritesWhatAStepDoes: a step without a command gets a line for each call, and one
// with a command none, since its output is the command's.
func TestNoteCall_WritesWhatAStepDoes(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	id := db.NewID("run")
	var run machinesdb.Run
	m := newMachine(t, store, "m-1", spec.MachineSpec{})
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		run, err = machinesdb.CreateRun(t.Context(), tx, machinesdb.NewRun{
			ID: id, JobID: db.NewID("job"), Machine: m, RequestID: id, Type: lifecycle.RunTypeReboot, Actor: admin,
			Plan: runplan.Plan{ID: "p", Steps: []runplan.Step{{Name: "boot", Netboot: &runplan.SetNetboot{Mode: "PXE"}}, {Name: "run", SSH: &runplan.SSHCommand{Command: "true"}}}},
		})
		if err == nil {
			_, err = machinesdb.MoveTo(t.Context(), tx, m, lifecycle.MachineStartRun, nil, id, job)
		}
		return err
	}))
	at := func(step string, attempts int) {
		project(t, store, run, machinesdb.Step{Status: lifecycle.JobRunning, Current: step, Stages: []lifecycle.StageRow{
			{Ordinal: 1, Name: "boot", State: lifecycle.StageRunning, Attempts: attempts}, {Ordinal: 2, Name: "run", State: lifecycle.StagePending},
		}})
	}
	note := func(text string) { require.NoError(t, machinesdb.NoteCall(t.Context(), store, run.JobID, text, 0)) }
	at("boot", 1)
	note("the next boot comes from pxe")
	note("the next boot comes from pxe")
	at("boot", 2)
	note("again")
	at("run", 2)
	note("nothing of it")
	rows, err := machinesdb.LogsAfter(t.Context(), store, run.ID, 0, 10)
	require.NoError(t, err)
	var got []string
	for _, c := range rows {
		got = append(got, fmt.Sprintf("%s/%d/%s: %s", c.Step, c.Attempt, c.Stream, c.Data))
	}
	require.Equal(t, []string{"boot/1/stdout: the next boot comes from pxe\n", "boot/1/stdout: the next boot comes from pxe\n", "boot/2/stdout: again\n"}, got)
}
