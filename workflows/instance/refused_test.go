package instance_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/contract"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/instance/mock"
	"github.com/slipway-cloud/slipway/providers/instance/scaleway"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// emptyLists is a provider whose lists are empty, as one answers whose index is lost.
type emptyLists struct{ providers.Cloud }

func (emptyLists) List(context.Context, string, string) ([]providers.CloudResource, error) {
	return nil, nil
}

func (emptyLists) Find(context.Context, string, string) ([]providers.CloudServer, error) {
	return nil, nil
}

// notFound is a provider that has no server of ours at all, as one answers to the key of another
// project.
type notFound struct{ emptyLists }

func (notFound) Server(context.Context, string, string) (providers.CloudServer, error) {
	return providers.CloudServer{}, &providers.Error{Kind: providers.KindNotFound, Op: "cloud.server", Message: "resource is not found"}
}

// TestPass_NothingMoves: with the wrong project, with an expired key, and with lists that are
// empty, no instance moves however often the pass looks, and the attention list says why.
func TestPass_NothingMoves(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*simRig, *instanceact.Provider)
		fault  string
		says   string
	}{
		"wrong project id": {change: func(r *simRig, p *instanceact.Provider) {
			p.Cloud, _ = scaleway.Open(providers.CloudAccount{
				URL: r.url, ProjectID: "00000000-0000-4000-8000-0000000000ff", AccessKey: "SCWXXXXXXXXXXXXXXXXX", SecretKey: providers.NewSecret(simKey), Rule: providers.SimulatedAddresses(),
			}, "test")
		}, says: "lists nothing of ours at all"},
		"expired key":          {fault: cloudsim.FaultUnauthorized, says: "denied"},
		"another project's":    {change: func(_ *simRig, p *instanceact.Provider) { p.Cloud = notFound{emptyLists{p.Cloud}} }, says: "lists nothing of ours at all"},
		"lists that are empty": {change: func(_ *simRig, p *instanceact.Provider) { p.Cloud = emptyLists{p.Cloud} }, says: "lists nothing of ours at all"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSimRig(t)
			i := r.run(r.job)
			require.Equal(t, lifecycle.InstanceReady, i.Status)
			if tc.change != nil {
				open := r.acts.Open
				r.acts.Open = func(ctx context.Context, name string) (instanceact.Provider, error) {
					p, err := open(ctx, name)
					tc.change(r, &p)
					return p, err
				}
			}
			if tc.fault != "" {
				r.fault(cloudsim.Fault{Name: tc.fault, Count: -1})
			}
			for n := range 5 {
				r.pass(i.ServerCreatedAt.Add(time.Duration(20+3*n) * time.Minute))
			}
			after := r.read()
			require.Equal(t, lifecycle.InstanceReady, after.Status)
			require.Zero(t, after.AbsentLooks)
			require.Len(t, r.sim.Billed(), 3, "nothing was deleted")
			var text string
			require.NoError(t, r.store.DBTX().QueryRow(t.Context(),
				"SELECT coalesce(string_agg(kind || ' ' || message, ' '), '') FROM instance_attention").Scan(&text))
			require.Contains(t, text, "instance_provider")
			require.Contains(t, text, tc.says)
			var charged bool
			require.NoError(t, r.store.DBTX().QueryRow(t.Context(), "SELECT end_time IS NULL AND closed_at IS NULL FROM usage_records WHERE instance_id = $1", i.ID).Scan(&charged))
			require.True(t, charged, "what nobody knows ends no charge")
		})
	}
}

// TestPass_DeletedBehindOurBack: a server that somebody deletes while its instance is ready, or
// drains, ends the instance, and what is left of it is listed with what it costs until somebody
// deletes it.
func TestPass_DeletedBehindOurBack(t *testing.T) {
	t.Parallel()
	for _, drains := range []bool{false, true} {
		r := newSimRig(t)
		i := r.run(r.job)
		if drains {
			_, err := r.store.DBTX().Exec(t.Context(), "UPDATE instances SET drain_seconds = 86400 WHERE id = $1", i.ID)
			require.NoError(t, err)
			require.Equal(t, lifecycle.InstanceDraining, r.terminate().Instance.Status)
		}
		require.NoError(t, r.sim.Do(cloudsim.Act{Act: "delete_server", ID: i.ServerID}))
		for _, after := range []time.Duration{11, 14, 17} {
			r.pass(i.ServerCreatedAt.Add(after * time.Minute))
		}
		i = r.read()
		require.Equal(t, lifecycle.InstanceTerminated, i.Status)
		require.True(t, i.DeletedByProvider)
		r.pass(i.ServerCreatedAt.Add(18 * time.Minute))
		orphans, err := instancedb.ListOrphans(t.Context(), r.store, 10)
		require.NoError(t, err)
		require.Len(t, orphans, len(r.sim.Billed()), "all that is billed is listed")
		for _, o := range orphans {
			require.Equal(t, i.ID, o.InstanceID)
			require.Equal(t, o.Kind == "volume", o.HourlyMicro > 0, "%s costs %d", o.Kind, o.HourlyMicro)
		}
	}
}

// brokenZones is a provider that lists, in the first zone, what cannot be stored, and refuses the
// others.
type brokenZones struct{ providers.Cloud }

func (brokenZones) List(_ context.Context, zone, _ string) ([]providers.CloudResource, error) {
	if zone == cloudsim.Zone {
		return []providers.CloudResource{{Kind: "unknown", ID: "res-1", Zone: zone, InstanceID: "inst_gone"}}, nil
	}
	return nil, &providers.Error{Kind: providers.KindForbidden, Op: "cloud.list", Message: "no access to the zone"}
}

// TestPass_OneZoneHoldsUpNoOther: an error of our own in one zone is told as its problem, and the
// other zones are compared. A zone that is neither configured nor has an instance is told no more.
func TestPass_OneZoneHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	r := newSimRigWith(t, cloudsim.Options{}, func(p *instanceact.Provider) { p.Cloud = brokenZones{p.Cloud} })
	r.acts.Places = append(r.acts.Places, [2]string{"scaleway", "old-1"}, [2]string{"scaleway", "old-2"})
	told := func() (zones []string) {
		rows, err := r.store.DBTX().Query(t.Context(), "SELECT split_part(id, ':', 3) FROM instance_attention WHERE kind = 'instance_provider' ORDER BY 1")
		require.NoError(t, err)
		zones, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return zones
	}
	require.Len(t, r.pass(time.Now()).Problems, 3)
	require.Equal(t, []string{cloudsim.Zone, "old-1", "old-2"}, told())
	r.acts.Places = r.acts.Places[:2]
	require.Len(t, r.pass(time.Now()).Problems, 2)
	require.Equal(t, []string{cloudsim.Zone, "old-1"}, told(), "old-2 is looked at no more")
	_, err := r.store.DBTX().Exec(t.Context(), "UPDATE instance_looks SET problem = '', problem_since = NULL")
	require.NoError(t, err)
	require.Empty(t, told())
	_, err = r.store.DBTX().Exec(t.Context(), "UPDATE instance_looks SET looked_at = now() - interval '31 minutes' WHERE zone = 'old-1'")
	require.NoError(t, err)
	require.Equal(t, []string{"old-1"}, told(), "no pass has looked for long")
}

// laggingLists is a provider whose lists go on showing a volume that is gone, so many times.
type laggingLists struct {
	emptyLists
	shows int
}

func (l *laggingLists) List(_ context.Context, zone, instanceID string) ([]providers.CloudResource, error) {
	if l.shows == 0 {
		return nil, nil
	}
	l.shows--
	return []providers.CloudResource{{Kind: providers.CloudKindVolume, ID: "vol-gone", Zone: zone, InstanceID: instanceID}}, nil
}

// TestProveDeleted_ListLags: a list that still shows what was deleted just now is read again, as
// long as the provider's lists may lag and no longer.
func TestProveDeleted_ListLags(t *testing.T) {
	t.Parallel()
	lists := &laggingLists{}
	r := newSimRigWith(t, cloudsim.Options{}, func(p *instanceact.Provider) { lists.Cloud, p.Cloud = p.Cloud, lists })
	ref := contract.JobRef{JobID: r.job.ID, ResourceID: r.row.ID}
	lists.shows = 3
	_, err := r.acts.ProveDeleted(t.Context(), ref)
	require.NoError(t, err)
	lists.shows = 1_000_000
	_, err = r.acts.ProveDeleted(t.Context(), ref)
	require.ErrorContains(t, err, "the provider still has volume vol-gone")
}

// TestDrain_HoldsNoWorker: an instance that has work is looked at again later, and ends when its
// time is over.
func TestDrain_HoldsNoWorker(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	i := r.run(r.job)
	_, err := r.store.DBTX().Exec(t.Context(), "UPDATE instances SET drain_seconds = 3 WHERE id = $1", i.ID)
	require.NoError(t, err)
	ended := r.terminate()
	ref := contract.JobRef{JobID: ended.Job.ID, ResourceID: i.ID}
	_, err = r.acts.DrainInstance(t.Context(), ref)
	var again *temporal.ApplicationError
	require.ErrorAs(t, err, &again)
	require.False(t, again.NonRetryable())
	require.Equal(t, 10*time.Second, again.NextRetryDelay())
	require.Equal(t, lifecycle.InstanceDraining, r.read().Status)
	require.Eventually(t, func() bool {
		_, err := r.acts.DrainInstance(t.Context(), ref)
		return err == nil
	}, runenv.Patience(30*time.Second), 100*time.Millisecond)
	require.Equal(t, lifecycle.InstanceTerminating, r.read().Status)
	require.Equal(t, lifecycle.InstanceTerminated, r.run(*ended.Job).Status)
}

// TestDrain_EndsWithItsWork runs the whole job of an instance that has work for ten hours.
func TestDrain_EndsWithItsWork(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	i := r.run(r.job)
	_, err := r.store.DBTX().Exec(t.Context(), "UPDATE instances SET drain_seconds = 86400 WHERE id = $1", i.ID)
	require.NoError(t, err)
	i = r.runAnd(*r.terminate().Job, func(*testsuite.TestWorkflowEnvironment) {
		require.Equal(t, lifecycle.InstanceDraining, r.read().Status)
		_, err := r.store.DBTX().Exec(t.Context(), `UPDATE instances SET heartbeat_at = now(), heartbeat = '{"ready": true, "active": 0}' WHERE id = $1`, i.ID)
		require.NoError(t, err)
	})
	require.Equal(t, lifecycle.InstanceTerminated, i.Status)
}

// hashOf is how tokens and keys of workers are stored.
func hashOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// TestWorkers_OfTwoInstances: over the agents' API, the token and the key of one instance count for
// no other one, a checksum that was not installed never, and nothing after the end.
func TestWorkers_OfTwoInstances(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
	a := r.row.ID
	r.make("two")
	require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
	b := r.row.ID
	for id, token := range map[string]string{a: "token-of-a", b: "token-of-b"} {
		_, err := r.store.DBTX().Exec(t.Context(), "UPDATE instances SET enroll_hash = $2 WHERE id = $1", id, hashOf(token))
		require.NoError(t, err)
	}
	routes := agentapi.New(agentapi.Config{Instances: agentapi.NewInstanceStore(r.store), Log: r.acts.Log}).Routes()
	ask := func(path, key string, body any) int {
		t.Helper()
		raw, err := json.Marshal(body)
		require.NoError(t, err)
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(raw))
		req.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		routes.ServeHTTP(w, req)
		return w.Code
	}
	enroll := func(token, key string) int {
		t.Helper()
		return ask(protocol.PathInstanceEnroll, "", map[string]any{"token": token, "key": key})
	}
	heartbeat := func(id, key string, seq int, checksum string) int {
		t.Helper()
		return ask(protocol.PathInstanceHeartbeat, key, map[string]any{"instance_id": id, "sequence": seq, "ready": true, "model": "acme/small", "checksum": checksum})
	}
	keyA, keyB := strings.Repeat("a", 40), strings.Repeat("b", 40)
	const refused = http.StatusUnauthorized
	require.Equal(t, refused, enroll("token-of-a", keyA), "an instance that is ready has enrolled long ago")
	for id, key := range map[string]string{a: keyA, b: keyB} {
		_, err := r.store.DBTX().Exec(t.Context(), "UPDATE instances SET worker_hash = $2 WHERE id = $1", id, hashOf(key))
		require.NoError(t, err)
	}
	require.Equal(t, http.StatusOK, heartbeat(a, keyA, 1, mock.Checksum))
	require.Equal(t, refused, heartbeat(b, keyA, 1, mock.Checksum), "the key of A for B")
	require.Equal(t, refused, heartbeat(b, keyB, 1, strings.Repeat("0", 64)), "a checksum that was not installed")
	instance, err := instancedb.Get(t.Context(), r.store, b)
	require.NoError(t, err)
	require.Nil(t, instance.HeartbeatAt, "none of them counted")
	require.Equal(t, http.StatusOK, heartbeat(b, keyB, 1, mock.Checksum))
	require.Equal(t, refused, enroll("token-of-b", keyA), "its first heartbeat ended the token")
	ended := r.terminate()
	require.Equal(t, lifecycle.InstanceTerminated, r.run(*ended.Job).Status)
	require.Equal(t, refused, heartbeat(b, keyB, 2, mock.Checksum), "B has ended")
	require.Equal(t, http.StatusOK, heartbeat(a, keyA, 2, mock.Checksum), "A goes on")
}
