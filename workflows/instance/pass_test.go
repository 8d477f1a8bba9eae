package instance_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/db/record"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/instance/mock"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
)

// heartbeat sends one as the worker with a key.
func (r *simRig) heartbeat(key string, seq int64, checksum string) error {
	_, err := instancedb.StoreHeartbeat(r.Context(), r.store, r.row.ID, []byte(key), seq, record.WorkerHeartbeat{Ready: true, Model: "acme/small", Checksum: checksum})
	return err
}

// TestHeartbeat_WhoCounts: the key of the instance, a higher number than the last and the checksum
// of the installed agent; never of an instance that ends.
func TestHeartbeat_WhoCounts(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
	_, err := r.store.DBTX().Exec(t.Context(), "UPDATE instances SET worker_hash = 'key', enroll_hash = 'token' WHERE id = $1", r.row.ID)
	require.NoError(t, err)
	require.NoError(t, r.heartbeat("key", 5, mock.Checksum))
	require.ErrorIs(t, r.heartbeat("key", 5, mock.Checksum), db.ErrNotFound, "a repeated number")
	require.ErrorIs(t, r.heartbeat("key", 4, mock.Checksum), db.ErrNotFound, "an older number")
	require.ErrorIs(t, r.heartbeat("other", 6, mock.Checksum), db.ErrNotFound, "the key of another instance")
	require.ErrorIs(t, r.heartbeat("key", 6, strings.Repeat("0", 64)), db.ErrNotFound, "another agent, however fresh")
	require.NoError(t, r.heartbeat("key", 6, mock.Checksum))
	_, err = instancedb.EnrollWorker(t.Context(), r.store, []byte("token"), []byte("another key"))
	require.ErrorIs(t, err, db.ErrNotFound, "the first heartbeat ended the token")
	ended := r.terminate()
	require.Equal(t, lifecycle.InstanceTerminated, r.run(*ended.Job).Status)
	require.ErrorIs(t, r.heartbeat("key", 7, mock.Checksum), db.ErrNotFound, "the instance has ended")
}

// TestHealth_TrustsAFreshHeartbeat: one of the last 30 seconds stands for the checks from our side,
// and an older one does not.
func TestHealth_TrustsAFreshHeartbeat(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
	_, err := r.store.DBTX().Exec(t.Context(), "UPDATE instances SET worker_hash = 'key' WHERE id = $1", r.row.ID)
	require.NoError(t, err)
	require.NoError(t, r.heartbeat("key", 1, mock.Checksum))
	asked := func() int { return r.worker.asked["readyz"] + r.worker.asked["models"] + r.worker.asked["ssh"] }
	before := asked()
	n, err := r.acts.CheckInstances(t.Context(), instanceact.PassIn{At: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, before, asked(), "the heartbeat is trusted, whatever the clock of the worker says")
	_, err = r.store.DBTX().Exec(t.Context(), "UPDATE instances SET heartbeat_at = now() - interval '31 seconds' WHERE id = $1", r.row.ID)
	require.NoError(t, err)
	_, err = r.acts.CheckInstances(t.Context(), instanceact.PassIn{At: time.Now().Add(-time.Hour)})
	require.NoError(t, err)
	require.Equal(t, before+3, asked(), "SSH, /readyz and /v1/models are asked")
}

// TestHealth_LogLimits has the limits of the log under a virtual clock: five minutes of success,
// one of failure, and every change of the outcome.
func TestHealth_LogLimits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	good, bad := true, false
	at := func(d time.Duration) *time.Time { v := now.Add(-d); return &v }
	for _, tc := range []struct {
		before *bool
		logged *time.Time
		ok     bool
		want   bool
	}{
		{nil, nil, true, true}, {nil, nil, false, true},
		{&good, at(time.Second), false, true}, {&bad, at(time.Second), true, true},
		{&good, at(5*time.Minute - 10*time.Second), true, false}, {&good, at(5 * time.Minute), true, true},
		{&bad, at(time.Minute - 10*time.Second), false, false}, {&bad, at(time.Minute), false, true},
		{&bad, at(time.Minute - time.Second), false, true}, // a pass that comes each minute comes a little early
	} {
		require.Equal(t, tc.want, instanceact.ShouldLog(tc.before, tc.logged, tc.ok, now), "%+v", tc)
	}
}

// pass compares the instances with their providers at a time of the simulated provider.
func (r *simRig) pass(at time.Time) instanceact.CompareReport {
	r.Helper()
	report, err := r.acts.CompareInstances(r.Context(), instanceact.PassIn{At: at})
	require.NoError(r, err)
	return report
}

// TestPass_DeletedByProvider: it takes three looks over five minutes, never soon after the
// creation, and nothing moves while the provider lists nothing of ours at all.
func TestPass_DeletedByProvider(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	i := r.run(r.job)
	made := *i.ServerCreatedAt
	require.NoError(t, r.sim.Do(cloudsim.Act{Act: "delete_server", ID: i.ServerID}))
	require.Zero(t, r.pass(made.Add(9*time.Minute)).Absent, "it is too new")
	for _, after := range []time.Duration{10, 13, 14} {
		report := r.pass(made.Add(after * time.Minute))
		require.Equal(t, 1, report.Absent)
		require.Empty(t, report.Deleted)
	}
	require.Equal(t, lifecycle.InstanceReady, r.read().Status)
	require.Equal(t, []string{i.ID}, r.pass(made.Add(15*time.Minute)).Deleted)
	i = r.read()
	require.Equal(t, lifecycle.InstanceTerminated, i.Status)
	require.True(t, i.DeletedByProvider)
	require.Equal(t, 1, r.logged()[lifecycle.ActProviderDeletedByOther])
	report := r.pass(made.Add(16 * time.Minute))
	require.Equal(t, 2, report.Orphans, "its volume and its group are still there, and billed, in a zone without instances")
	_, err := r.acts.Secrets.Resolve(t.Context(), providers.SecretRef("instances/"+i.ID+"/worker"), providers.OwnUse())
	require.Equal(t, providers.KindNotFound, providers.KindOf(err), "its credentials end with it")
}

// TestPass_NothingMovesOnAWrongKey: a provider that lists nothing of ours, or refuses us, decides
// nothing, and the attention list says it.
func TestPass_NothingMovesOnAWrongKey(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	i := r.run(r.job)
	made := *i.ServerCreatedAt
	r.fault(cloudsim.Fault{Name: cloudsim.FaultUnauthorized, Count: -1})
	for n := range 5 {
		report := r.pass(made.Add(time.Duration(20+5*n) * time.Minute))
		require.Len(t, report.Problems, 1)
	}
	require.Equal(t, lifecycle.InstanceReady, r.read().Status)
	require.Zero(t, r.read().AbsentLooks)
	var kind string
	require.NoError(t, r.store.DBTX().QueryRow(t.Context(), "SELECT kind FROM instance_attention").Scan(&kind))
	require.Equal(t, "instance_provider", kind)
	r.sim.ClearFaults(0)
	require.Empty(t, r.pass(made.Add(time.Hour)).Problems)
	var left int
	require.NoError(t, r.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM instance_attention").Scan(&left))
	require.Zero(t, left)
}

// TestPass_Orphans: a second server with the tag of a live instance is listed with its price, and
// stays.
func TestPass_Orphans(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	i := r.run(r.job)
	require.NoError(t, r.sim.Do(cloudsim.Act{Act: "orphan", Tags: []string{"slipway-installation=test", "slipway-instance=" + i.ID}}))
	require.NoError(t, r.sim.Do(cloudsim.Act{Act: "orphan", Tags: []string{"slipway-installation=test", "slipway-instance=inst_gone"}}))
	require.Equal(t, 2, r.pass(time.Now()).Orphans)
	rows, err := instancedb.ListOrphans(t.Context(), r.store, 10)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, int64(787_500), rows[0].HourlyMicro)
	require.Len(t, r.sim.Billed(), 5, "nothing deletes them by itself")
}

// TestPass_LateServerIsAnOrphan: a server that the provider lists only after the job has given up
// or has parked is listed, since nothing looks for it; one that a job looks for is not.
func TestPass_LateServerIsAnOrphan(t *testing.T) {
	t.Parallel()
	appears := func(r *simRig) int {
		r.Helper()
		require.NoError(r, r.sim.Do(cloudsim.Act{Act: "orphan", Tags: []string{"slipway-installation=test", "slipway-instance=" + r.row.ID}}))
		return r.pass(time.Now()).Orphans
	}
	t.Run("looked for", func(t *testing.T) {
		t.Parallel()
		require.Zero(t, appears(newSimRig(t)))
	})
	t.Run("given up", func(t *testing.T) {
		t.Parallel()
		r := newSimRig(t)
		r.fault(cloudsim.Fault{Name: cloudsim.FaultQuota, Op: "create_server", Count: -1})
		require.Equal(t, lifecycle.InstanceProvisioningFailed, r.run(r.job).Status)
		require.Equal(t, 1, appears(r))
	})
	t.Run("parked", func(t *testing.T) {
		t.Parallel()
		r := newSimRig(t)
		r.fault(cloudsim.Fault{Name: cloudsim.FaultReset, Op: "create_server", Phase: "before_commit", Count: -1})
		found := 0
		r.runAnd(r.job, func(*testsuite.TestWorkflowEnvironment) { found = appears(r) }, sends(lifecycle.ActionCancel))
		require.Equal(t, 1, found)
		require.Empty(t, r.sim.Billed(), "its end finds it by its tag")
	})
}

// TestPass_RecoversLateStartups: a heartbeat after the timeout resumes the startup, three times;
// one after a wrong checksum never does, and neither does one after an operator froze the job.
func TestPass_RecoversLateStartups(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	resumed := 0
	r.acts.Resume = func(context.Context, instancedb.Instance) error { resumed++; return nil }
	set := func(code string) {
		_, err := r.store.DBTX().Exec(t.Context(), `UPDATE instances SET error_code = $2, heartbeat_at = now(), recoveries = 0 WHERE id = $1`, r.row.ID, code)
		require.NoError(t, err)
	}
	r.worker.install = &providers.Error{Kind: providers.KindExit, Op: "ssh.install", Message: "it fails"}
	r.runAnd(r.job, func(env *testsuite.TestWorkflowEnvironment) {
		require.Equal(t, lifecycle.InstanceStartupFailed, r.read().Status)
		r.moveOn()
		require.Zero(t, resumed, "no heartbeat came")
		set(lifecycle.InstanceChecksumFailed)
		r.moveOn()
		require.Zero(t, resumed)
		set(lifecycle.InstanceStartupTimeout)
		for range 5 {
			r.moveOn()
		}
		require.Equal(t, lifecycle.MaxInstanceRecoveries, resumed)
		sends(lifecycle.ActionMarkManual)(env)
	}, func(env *testsuite.TestWorkflowEnvironment) {
		set(lifecycle.InstanceStartupTimeout)
		r.moveOn()
		require.Equal(t, lifecycle.MaxInstanceRecoveries, resumed, "an operator froze the job")
		sends(lifecycle.ActionCancel)(env)
	})
}

// TestPass_DeletedWhileBooting: the job that makes the instance is asked to end, which deletes the
// rest.
func TestPass_DeletedWhileBooting(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	ref := contract.JobRef{JobID: r.job.ID, ResourceID: r.row.ID}
	for _, act := range []func(context.Context, contract.JobRef) (contract.InstanceFacts, error){r.acts.CreateServer, r.acts.PersistServer, r.acts.ClaimVolumes, r.acts.BeginBoot} {
		_, err := act(t.Context(), ref)
		require.NoError(t, err)
	}
	i := r.read()
	require.NoError(t, r.sim.Do(cloudsim.Act{Act: "delete_server", ID: i.ServerID}))
	for _, after := range []time.Duration{10, 13, 16} {
		r.pass(i.ServerCreatedAt.Add(after * time.Minute))
	}
	require.Equal(t, lifecycle.InstanceTerminated, r.read().Status)
	require.Equal(t, []string{r.job.ID}, r.cancelled)
}

// TestPass_NewInstanceIsNoOrphan: what an instance is given that was made after the pass has begun
// is not called an orphan, which somebody might delete.
func TestPass_NewInstanceIsNoOrphan(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
	open := r.acts.Open
	r.acts.Open = func(ctx context.Context, name string) (instanceact.Provider, error) { // the pass has read the instances
		r.acts.Open = open
		r.make("two")
		require.NoError(t, r.sim.Do(cloudsim.Act{Act: "orphan", Tags: []string{"slipway-installation=test", "slipway-instance=" + r.row.ID}}))
		return open(ctx, name)
	}
	require.Zero(t, r.pass(time.Now()).Orphans)
}

// TestPass_LeavesAVolumeOfSomebodyElse: a volume that somebody attached by hand is not tagged, and
// stays when the server is deleted.
func TestPass_LeavesAVolumeOfSomebodyElse(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	i := r.run(r.job)
	require.NoError(t, r.sim.Do(cloudsim.Act{Act: "attach_volume", ID: i.ServerID}))
	_, err := r.acts.PersistServer(t.Context(), contract.JobRef{JobID: r.job.ID, ResourceID: i.ID})
	require.NoError(t, err, "the stage was tried again after that")
	ended := r.terminate()
	require.Equal(t, lifecycle.InstanceTerminated, r.run(*ended.Job).Status)
	left := r.sim.Billed()
	require.Len(t, left, 1)
	require.Equal(t, "volume", left[0].Kind)
	require.Empty(t, left[0].Tags)
}

// TestDrain_EndsWhenAnOperatorAsksAgain: a worker that claims to have work holds its server a day
// at most, and an operator waits for it no longer than wanted.
func TestDrain_EndsWhenAnOperatorAsksAgain(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	i := r.run(r.job)
	_, err := r.store.DBTX().Exec(t.Context(), "UPDATE instances SET drain_seconds = 3600 WHERE id = $1", i.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.InstanceDraining, r.terminate().Instance.Status)
	require.Equal(t, 3600, r.read().DrainSeconds)
	r.terminate()
	require.Zero(t, r.read().DrainSeconds)
	_, err = r.store.DBTX().Exec(t.Context(), "UPDATE instances SET updated_at = now() + interval '1 hour' WHERE id = $1", i.ID)
	require.NoError(t, err)
	f, err := r.acts.DrainInstance(t.Context(), contract.JobRef{JobID: r.job.ID, ResourceID: i.ID})
	require.NoError(t, err, "the clock of the database was set back")
	require.Equal(t, lifecycle.InstanceTerminating, f.Status)
}

// TestHealth_FailedCheckIsStored: a worker that answers with another host key is unhealthy, says
// the row and the log, and the others are still checked.
func TestHealth_FailedCheckIsStored(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
	before := r.logged()[lifecycle.ActHealthCheck]
	r.worker.setReach(&providers.Error{Kind: providers.KindPinMismatch, Op: "ssh.dial", Message: "another host key"})
	at := time.Now().Add(time.Hour)
	_, err := r.acts.CheckInstances(t.Context(), instanceact.PassIn{At: at})
	require.Error(t, err)
	i := r.read()
	require.NotNil(t, i.HealthOk)
	require.False(t, *i.HealthOk)
	require.NotNil(t, i.HealthFailedSince, "attention lists it after a while")
	require.WithinDuration(t, at, *i.LastHealthCheck, time.Second)
	require.Equal(t, before, r.logged()[lifecycle.ActHealthCheck], "it is no success")
}

// TestPass_AnotherAccountDecidesNothing: settings that name another account find nothing of an
// instance. It is neither called deleted, nor terminated while its server is billed.
func TestPass_AnotherAccountDecidesNothing(t *testing.T) {
	t.Parallel()
	account := ""
	r := newSimRigWith(t, cloudsim.Options{}, func(p *instanceact.Provider) { p.Account = account })
	i := r.run(r.job)
	require.Equal(t, lifecycle.InstanceReady, i.Status)
	account = "another"
	require.NoError(t, r.sim.Do(cloudsim.Act{Act: "delete_server", ID: i.ServerID}))
	for _, after := range []time.Duration{20, 23, 26} {
		require.Contains(t, r.pass(i.ServerCreatedAt.Add(after * time.Minute)).Problems[0], "set them back")
	}
	require.Equal(t, lifecycle.InstanceReady, r.read().Status)
	var says string
	require.NoError(t, r.store.DBTX().QueryRow(t.Context(), "SELECT message FROM instance_attention WHERE kind = 'instance_provider'").Scan(&says))
	require.Contains(t, says, "set them back")
	_, err := r.acts.ProveDeleted(t.Context(), contract.JobRef{JobID: r.job.ID, ResourceID: i.ID})
	require.ErrorContains(t, err, "set them back")
}

// TestPass_OneThatRefusesHoldsUpNoOther: the jobs of two instances are asked to end, and both
// refuse.
func TestPass_OneThatRefusesHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	asked := []string{}
	r.acts.Cancel = func(_ context.Context, job db.Job) error { asked = append(asked, job.ID); return errors.New("not now") }
	first := r.job.ID
	r.terminate()
	r.make("two")
	r.terminate()
	_, err := r.acts.MoveInstancesOn(t.Context(), instanceact.PassIn{At: time.Now()})
	require.Error(t, err)
	require.Equal(t, []string{first, r.job.ID}, asked)
}

// TestHealth_LogUnderAVirtualClock checks an instance for 25 minutes: 20 of success, every 30
// seconds, and five of failure, every ten.
func TestHealth_LogUnderAVirtualClock(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
	began := *r.read().HealthLoggedAt
	rows := func(status lifecycle.ActionStatus) (n int) {
		require.NoError(t, r.store.DBTX().QueryRow(t.Context(), `SELECT count(*) FROM action_logs WHERE action_type = 'HEALTH_CHECK' AND stage = 'health_check'
			AND status = $1 AND started_at > $2`, status, began).Scan(&n))
		return n
	}
	check := func(after time.Duration) {
		_, _ = r.acts.CheckInstances(t.Context(), instanceact.PassIn{At: began.Add(after)}) // its error is that of the worker
	}
	for after := 30 * time.Second; after <= 20*time.Minute; after += 30 * time.Second {
		check(after)
	}
	require.Equal(t, 4, rows(lifecycle.ActionSuccess), "one every five minutes")
	require.Zero(t, rows(lifecycle.ActionFailed))
	r.worker.setReach(&providers.Error{Kind: providers.KindPinMismatch, Op: "ssh.dial", Message: "another host key"})
	for after := 20*time.Minute + 10*time.Second; after <= 25*time.Minute; after += 10 * time.Second {
		check(after)
	}
	require.Equal(t, 5, rows(lifecycle.ActionFailed), "the change, and one a minute")
	r.worker.setReach(nil)
	check(25*time.Minute + time.Second)
	require.Equal(t, 5, rows(lifecycle.ActionSuccess), "every change is logged")
}

// TestHeartbeat_EndsTheWait: the first heartbeat of a worker that was waited for clears the code.
func TestHeartbeat_EndsTheWait(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	r.acts.Resume = func(context.Context, instancedb.Instance) error { t.Error("nothing is to be resumed"); return nil }
	var waited, after string
	r.worker.onInstalled = func() {
		_, err := r.store.DBTX().Exec(t.Context(), "UPDATE instances SET worker_hash = 'key' WHERE id = $1", r.row.ID)
		require.NoError(t, err)
	}
	r.worker.onModels = func() {
		if waited != "" {
			return
		}
		waited = r.read().ErrorCode
		require.NoError(t, r.heartbeat("key", 1, mock.Checksum))
		after = r.read().ErrorCode
	}
	require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
	require.Equal(t, lifecycle.InstanceWaitingHeartbeat, waited)
	require.Empty(t, after)
}

// TestPass_Archives: what ended leaves the lists after a set time, and not before.
func TestPass_Archives(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	r.acts.ArchiveAfter = 24 * time.Hour
	require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
	archived := func(at time.Time) int {
		t.Helper()
		report, err := r.acts.MoveInstancesOn(t.Context(), instanceact.PassIn{At: at})
		require.NoError(t, err)
		return report.Archived
	}
	require.Zero(t, archived(time.Now().Add(48*time.Hour)), "it works")
	ended := r.terminate()
	i := r.run(*ended.Job)
	require.Zero(t, archived(i.TerminatedAt.Add(23*time.Hour)))
	require.Equal(t, lifecycle.InstanceTerminated, r.read().Status)
	ref, err := r.acts.Secrets.Put(t.Context(), "instances/"+i.ID+"/worker", providers.NewSecret("left by a worker that died"))
	require.NoError(t, err)
	require.Equal(t, 1, archived(i.TerminatedAt.Add(25*time.Hour)))
	require.Equal(t, lifecycle.InstanceArchived, r.read().Status)
	_, err = r.acts.Secrets.Resolve(t.Context(), ref, providers.OwnUse())
	require.Equal(t, providers.KindNotFound, providers.KindOf(err), "no credentials are kept")
	require.Zero(t, archived(i.TerminatedAt.Add(26*time.Hour)), "once")
	require.Zero(t, r.read().ProgressPercent)
}
