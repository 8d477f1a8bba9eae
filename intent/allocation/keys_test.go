package allocation_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// proven is an active allocation whose node was seen to accept each of its keys.
func (m *market) proven() allocationdb.Allocation {
	m.Helper()
	a := m.active().Allocation
	m.see(a.ID, true, m.keys...)
	return m.read(a.ID)
}

// see stores what a node was seen to do with keys.
func (m *market) see(id string, accepted bool, keys ...tenancydb.SSHKey) {
	m.Helper()
	for _, k := range keys {
		require.NoError(m, allocationdb.RecordKey(m.Context(), m.store, id, k.Fingerprint, accepted))
	}
}

// endKey deletes an SSH key of the project as its member does.
func (m *market) endKey(k tenancydb.SSHKey) {
	m.Helper()
	require.NoError(m, m.store.ForProject(m.Context(), m.project.ID, func(tx *db.ProjectTx) error {
		return tenancydb.DeleteSSHKey(m.Context(), tx, k.ID)
	}))
}

// startKeys starts the jobs that are due and returns their allocations.
func (m *market) startKeys() []string {
	m.Helper()
	ids, err := allocation.StartKeyJobs(m.Context(), m.store, "", admin, 50)
	require.NoError(m, err)
	return ids
}

func (m *market) setKeys(id string, keys ...string) (out allocation.KeysSet, err error) {
	err = m.store.Tx(m.Context(), func(tx *db.Tx) (err error) {
		out, err = allocation.SetKeys(m.Context(), tx, id, keys, customer)
		return err
	})
	return out, err
}

// keysOf returns the fingerprints in force of an allocation, and those that were withdrawn.
func (m *market) keysOf(id string) (inForce, former []string) {
	m.Helper()
	all, err := allocationdb.ListKeys(m.Context(), m.store, id)
	require.NoError(m, err)
	in, out := allocationdb.SplitKeys(all)
	for _, k := range in {
		inForce = append(inForce, k.Fingerprint)
	}
	for _, k := range out {
		former = append(former, k.Fingerprint)
	}
	return inForce, former
}

// TestStartKeyJobs_OneAtATime: a key that ends gets one job, and one that ends meanwhile waits for
// the end of it. A key that the node refuses is due no more.
func TestStartKeyJobs_OneAtATime(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	a := m.proven()
	require.Empty(t, m.startKeys(), "nothing has changed")
	m.endKey(m.keys[0])
	require.Equal(t, []string{a.ID}, m.startKeys())
	job, err := m.store.LiveJobOfNode(t.Context(), *a.NodeID)
	require.NoError(t, err)
	require.Equal(t, []string{"allocation_keys", a.ID}, []string{job.Kind, job.ResourceID})
	require.Equal(t, 1, m.count("outbox WHERE kind = 'start_workflow' AND job_id = '"+job.ID+"'"))
	m.endKey(m.keys[1])
	require.Empty(t, m.startKeys(), "never a second job")
	m.see(a.ID, false, m.keys[0])
	m.endJob(job.ID)
	require.Equal(t, []string{a.ID}, m.startKeys(), "the second key ended after the job had begun")
	job, err = m.store.LiveJobOfNode(t.Context(), *a.NodeID)
	require.NoError(t, err)
	m.endJob(job.ID)
	require.Empty(t, m.startKeys(), "a job that proved nothing is tried again later")
	_, err = m.store.DBTX().Exec(t.Context(), "UPDATE allocation_keys SET tried_at = tried_at - interval '10 minutes'")
	require.NoError(t, err)
	require.Equal(t, []string{a.ID}, m.startKeys())
	job, err = m.store.LiveJobOfNode(t.Context(), *a.NodeID)
	require.NoError(t, err)
	m.see(a.ID, false, m.keys[1])
	m.endJob(job.ID)
	_, err = m.store.DBTX().Exec(t.Context(), "UPDATE allocation_keys SET tried_at = tried_at - interval '1 hour'")
	require.NoError(t, err)
	require.Empty(t, m.startKeys(), "the node refuses both")
	require.Equal(t, lifecycle.AllocationActive, m.read(a.ID).Status, "an allocation without keys stays active")
}

// TestStartKeyJobs_LeavesTheNodeToOthers: another job of the node goes first, and an agent that is
// silent is not asked.
func TestStartKeyJobs_LeavesTheNodeToOthers(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	a := m.proven()
	other := dbtest.Job(t, m.store, dbtest.On(*a.NodeID))
	m.endKey(m.keys[0])
	require.Empty(t, m.startKeys())
	m.tx(func(tx *db.Tx) error {
		c, err := allocation.Continue(t.Context(), tx, a.ID)
		require.Nil(t, c.Job, "the node has a job")
		return err
	})
	m.endJob(other.ID)
	silence := func(by string) {
		_, err := m.store.DBTX().Exec(t.Context(), "UPDATE heartbeats SET received_at = now() - $1::interval", by)
		require.NoError(t, err)
	}
	silence("3 minutes")
	require.Empty(t, m.startKeys())
	silence("0")
	require.Equal(t, []string{a.ID}, m.startKeys())
}

// TestRelease_WhileKeysChange: the job is asked to stop, and its end writes the release.
func TestRelease_WhileKeysChange(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	a := m.proven()
	m.endKey(m.keys[0])
	require.Len(t, m.startKeys(), 1)
	r := m.release(a.ID)
	require.Equal(t, lifecycle.AllocationReleasing, r.Allocation.Status)
	require.Equal(t, []string{"allocation_keys", string(lifecycle.ActionCancel)}, []string{r.Job.Kind, string(r.Action)})
	m.endJob(r.Job.ID)
	require.Empty(t, m.startKeys(), "the release withdraws every key")
	m.tx(func(tx *db.Tx) error {
		c, err := allocation.Continue(t.Context(), tx, a.ID)
		require.Equal(t, []string{"allocation_release", *a.NodeID}, []string{c.Job.Kind, *c.Job.NodeID})
		return err
	})
}

// TestLoseJob_OfAChangeOfKeys: a job whose workflow is lost ends, so that it keeps nobody from the
// node.
func TestLoseJob_OfAChangeOfKeys(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	a := m.proven()
	m.endKey(m.keys[0])
	require.Len(t, m.startKeys(), 1)
	job, err := m.store.LiveJobOfNode(t.Context(), *a.NodeID)
	require.NoError(t, err)
	m.tx(func(tx *db.Tx) error {
		for _, next := range []lifecycle.Transition[lifecycle.JobStatus]{lifecycle.JobStart, lifecycle.JobParkManual} {
			if _, err := tx.TransitionJob(t.Context(), job.ID, next, nil, db.Actor{Owner: lifecycle.OwnerSystem}); err != nil {
				return err
			}
		}
		ended, err := allocation.LoseJob(t.Context(), tx, job)
		require.True(t, ended)
		return err
	})
	_, err = m.store.LiveJobOfNode(t.Context(), *a.NodeID)
	require.ErrorIs(t, err, db.ErrNotFound)
}

// TestSetKeys: the last set that was asked for stays, also where a key comes back.
func TestSetKeys(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	m.addKey("three")
	one, two, three := m.keys[0], m.keys[1], m.keys[2]
	m.freeNode()
	r := m.request()
	r.KeyIDs = []string{one.ID, two.ID}
	made := m.create(r)
	_, err := m.setKeys(made.Allocation.ID, three.ID)
	require.Equal(t, intent.IllegalTransition, intent.AsRefusal(err).Kind, "%v", err)
	m.activate(made.Allocation.ID)
	m.endJob(made.Job.ID)
	id := made.Allocation.ID
	m.see(id, true, one, two)

	set, err := m.setKeys(id, two.ID, one.ID)
	require.NoError(t, err)
	require.Nil(t, set.Job, "it has these keys")
	require.False(t, set.Changed)
	set, err = m.setKeys(id, two.ID, three.ID)
	require.NoError(t, err)
	require.True(t, set.Changed)
	require.Equal(t, "allocation_keys", set.Job.Kind)
	inForce, former := m.keysOf(id)
	require.ElementsMatch(t, []string{two.Fingerprint, three.Fingerprint}, inForce)
	require.Equal(t, []string{one.Fingerprint}, former)
	set, err = m.setKeys(id, one.ID)
	require.NoError(t, err)
	require.Nil(t, set.Job, "a job is under way")
	inForce, former = m.keysOf(id)
	require.Equal(t, []string{one.Fingerprint}, inForce)
	require.ElementsMatch(t, []string{two.Fingerprint, three.Fingerprint}, former)

	for name, c := range map[string]struct {
		keys []string
		text string
	}{
		"none":      {nil, "at least one"},
		"unknown":   {[]string{one.ID, "key_none"}, "does not have"},
		"too many":  {slices.Repeat([]string{"key_x"}, 21), "does not have"},
		"of others": {[]string{"key_" + two.ID}, "does not have"},
	} {
		_, err := m.setKeys(id, c.keys...)
		require.NotNil(t, intent.AsRefusal(err), name)
		require.Contains(t, intent.AsRefusal(err).Fields[0].Message, c.text, name)
	}
}

// TestSetKeys_BoundsFormerKeys: keys of which nothing proves that the node refuses them do not grow
// without bound, since a release offers each of them.
func TestSetKeys_BoundsFormerKeys(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	a := m.proven()
	_, err := m.store.DBTX().Exec(t.Context(), `INSERT INTO allocation_keys (project_id, allocation_id, fingerprint, public_key, withdrawn_at)
		SELECT $1, $2, 'SHA256:' || n, 'k', now() FROM generate_series(1, 58) n`, a.ProjectID, a.ID)
	require.NoError(t, err)
	_, err = m.setKeys(a.ID, m.keys[0].ID)
	require.NoError(t, err, "60 keys with the former ones")
	m.addKey("three")
	_, err = m.setKeys(a.ID, m.keys[2].ID)
	require.Contains(t, intent.AsRefusal(err).Detail, "may have 60 keys")
	_, err = m.store.DBTX().Exec(t.Context(), "UPDATE allocation_keys SET refused_at = now() WHERE public_key = 'k'")
	require.NoError(t, err)
	_, err = m.setKeys(a.ID, m.keys[2].ID)
	require.NoError(t, err)
	_, former := m.keysOf(a.ID)
	require.Len(t, former, 22, "the newest that are refused, and the two that are not proven")
}

// TestSetKeys_BoundsJobs: a tenant who replaces the keys all the time is told when he may again. A
// request that changes nothing is never refused, and the deletion of an SSH key still starts a job.
func TestSetKeys_BoundsJobs(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	a := m.proven()
	one, two := m.keys[0], m.keys[1]
	replace := func(k tenancydb.SSHKey) error {
		set, err := m.setKeys(a.ID, k.ID)
		if err == nil {
			require.NotNil(t, set.Job)
			m.endJob(set.Job.ID)
			m.see(a.ID, true, k)
			m.see(a.ID, false, map[string]tenancydb.SSHKey{one.ID: two, two.ID: one}[k.ID])
		}
		return err
	}
	for i := range allocationdb.MaxKeyJobs {
		require.NoError(t, replace([]tenancydb.SSHKey{two, one}[i%2]))
	}
	err := replace(two)
	require.Equal(t, intent.RateLimited, intent.AsRefusal(err).Kind, "%v", err)
	require.Contains(t, intent.AsRefusal(err).Detail, "6 times within 10m0s; replace them again in ")
	inForce, _ := m.keysOf(a.ID)
	require.Equal(t, []string{one.Fingerprint}, inForce, "nothing has changed")
	_, err = m.setKeys(a.ID, one.ID)
	require.NoError(t, err, "it has this key")

	_, err = m.store.DBTX().Exec(t.Context(), "UPDATE jobs SET created_at = created_at - interval '10 minutes' WHERE id = (SELECT min(id) FROM jobs WHERE kind = 'allocation_keys')")
	require.NoError(t, err)
	require.NoError(t, replace(two))
	require.Error(t, replace(one))
	m.endKey(two)
	require.Equal(t, []string{a.ID}, m.startKeys(), "whoever must not log in any more is kept out at once")
}
