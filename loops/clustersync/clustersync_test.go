package clustersync_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/loops/clustersync"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/kube"
	kubesim "github.com/slipway-cloud/slipway/sim/kube"
	"github.com/slipway-cloud/slipway/test/runenv"
)

var admin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "test"}

const uuid = "4c4c4544-0042-3510-8054-b7c04f503033"

// kubeconfigs holds one kubeconfig.
type kubeconfigs struct {
	providers.Secrets
	value string
}

// Resolve implements providers.Secrets.
func (k kubeconfigs) Resolve(context.Context, providers.SecretRef, providers.Use) (providers.Secret, error) {
	return providers.NewSecret(k.value), nil
}

// AddressRule implements providers.Secrets.
func (kubeconfigs) AddressRule(context.Context, providers.SecretRef, providers.Use) (spec.AddressRule, error) {
	return providers.SimulatedAddresses(), nil
}

// world is a machine that is node m-1 of a simulated cluster.
type world struct {
	t      *testing.T
	store  *db.Store
	sim    *kubesim.Server
	passes *clustersync.Passes
}

func newWorld(t *testing.T) *world {
	t.Helper()
	manifest, err := os.ReadFile("../../deploy/kubernetes/slipway.yaml")
	require.NoError(t, err)
	sim, err := kubesim.New(kubesim.Options{Manifest: manifest})
	require.NoError(t, err)
	_, stop, err := sim.Start(t.Context(), "127.0.0.1:0", "")
	require.NoError(t, err)
	t.Cleanup(stop)
	w := &world{t: t, store: dbtest.Store(t), sim: sim}
	w.passes = &clustersync.Passes{Store: w.store, Secrets: kubeconfigs{value: sim.Kubeconfig()}, Clusters: kube.Provider{}, Log: slog.New(slog.DiscardHandler), Every: time.Hour}
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		if _, err := machines.Register(ctx, tx, machines.Registration{ID: "m-1", Spec: spec.MachineSpec{Provider: "any", TargetClusterRef: "a"}}, admin); err != nil {
			return err
		}
		s := spec.ClusterSpec{APIURL: sim.URL(), CAPins: []string{sim.CAPin()}, KubeconfigRef: "clusters/a", KubernetesVersion: "v1.34.1"}
		if _, err := clusterdb.Create(ctx, tx, "a", "", s); err != nil {
			return err
		}
		return clusterdb.PutMember(ctx, tx, clusterdb.Member{MachineID: "m-1", ClusterRef: new("a"), NodeName: "m-1", SystemUUID: uuid})
	})
	return w
}

func (w *world) tx(fn func(context.Context, *db.Tx) error) {
	w.t.Helper()
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error { return fn(w.t.Context(), tx) }))
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.store.DBTX().Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
}

// look looks at the cluster, which is due.
func (w *world) look() error {
	w.exec("UPDATE clusters SET next_look_at = now()")
	return w.passes.Look(w.t.Context())
}

// state returns reasons of InCustomerCluster and Drained, with a ! where the condition does not
// hold.
func (w *world) state() [2]string {
	w.t.Helper()
	m, err := machinesdb.Get(w.t.Context(), w.store, "m-1")
	require.NoError(w.t, err)
	var out [2]string
	for i, c := range []lifecycle.ConditionType{lifecycle.InCustomerClusterCondition, lifecycle.DrainedCondition} {
		found, _ := m.Conditions.Find(c)
		if out[i] = found.Reason; !found.Status {
			out[i] = "!" + out[i]
		}
	}
	return out
}

// reboot asks for a disruptive run, and returns why it is refused, "" when it starts.
func (w *world) reboot() runplan.StartReason {
	w.t.Helper()
	err := w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		_, err := machines.StartRun(w.t.Context(), tx, machines.Start{
			RequestID: "r", MachineID: "m-1", Type: lifecycle.RunTypeReboot, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
		}, admin)
		if err == nil {
			return context.Canceled // nothing is to start
		}
		return err
	})
	var refusal *runplan.StartRefusal
	if require.Error(w.t, err); err == context.Canceled { //nolint:errorlint // as it was returned
		return ""
	}
	require.ErrorAs(w.t, err, &refusal)
	return refusal.Reason
}

type object = map[string]any

func (w *world) node(id string, ready string) {
	w.sim.Put("nodes", "", "m-1", object{"apiVersion": "v1", "kind": "Node", "spec": object{}, "status": object{
		"nodeInfo": object{"systemUUID": id}, "conditions": []object{{"type": "Ready", "status": ready, "reason": "Test"}},
	}})
}

// pod puts a pod on the node; more are its owner, its annotations or its phase.
func (w *world) pod(name string, meta object, phase string) {
	meta["name"] = name
	w.sim.Put("pods", "default", name, object{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": object{"nodeName": "m-1"}, "status": object{"phase": phase}})
}

// TestLook_Conditions follows a machine through its cluster, and asks at each point for a
// disruptive run.
func TestLook_Conditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.look())
	require.Equal(t, [2]string{"!NotJoined", "!NotJoined"}, w.state())
	require.Empty(t, w.reboot())

	w.node("4c4c4544-0042-3510-8054-b7c04f503034", "True")
	require.NoError(t, w.look())
	require.Equal(t, [2]string{"!NotJoined", "!NotJoined"}, w.state(), "the node of another machine has its name")

	w.node(uuid, "True")
	require.NoError(t, w.look())
	require.Equal(t, [2]string{"NodeReady", "!NotCordoned"}, w.state())
	require.Equal(t, runplan.ReasonNotDrained, w.reboot())

	controller := func(kind, name, id string) object {
		return object{"ownerReferences": []object{{"kind": kind, "name": name, "uid": id, "controller": true, "apiVersion": "apps/v1"}}}
	}
	w.sim.Put("daemonsets", "default", "agent", object{"metadata": object{"uid": "ds-1"}})
	w.pod("of-a-set", controller("DaemonSet", "agent", "ds-1"), "Running")
	w.pod("of-the-kubelet", object{"annotations": object{"kubernetes.io/config.mirror": "x"}}, "Running")
	w.pod("ended", object{}, "Succeeded")
	w.pod("work", object{"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Running")
	require.NoError(t, w.sim.Cordon("m-1", true))
	require.NoError(t, w.look())
	require.Equal(t, [2]string{"NodeReady", "!PodsLeft"}, w.state(), "a pod that is being deleted counts until it is gone")
	require.Equal(t, runplan.ReasonNotDrained, w.reboot())

	w.sim.Remove("pods", "default", "work")
	require.NoError(t, w.look())
	require.Equal(t, [2]string{"NodeReady", "CordonedWithoutPods"}, w.state())
	require.Empty(t, w.reboot())

	w.pod("of-a-set-that-is-gone", controller("DaemonSet", "old", "ds-0"), "Running")
	require.NoError(t, w.look())
	require.Equal(t, [2]string{"NodeReady", "!PodsLeft"}, w.state())
	w.sim.Remove("pods", "default", "of-a-set-that-is-gone")
	require.NoError(t, w.look())

	_, err := w.sim.AddFault(kubesim.Fault{Name: kubesim.FaultForbidden, Op: "list pods", Count: 1})
	require.NoError(t, err)
	require.Error(t, w.look())
	require.Equal(t, [2]string{"NodeReady", "Unknown"}, w.state(), "the last status stays")
	require.Equal(t, runplan.ReasonClusterUnknown, w.reboot())

	_, err = w.sim.AddFault(kubesim.Fault{Name: kubesim.FaultUnavailable, Count: -1})
	require.NoError(t, err)
	require.Error(t, w.look())
	require.Equal(t, [2]string{"Unknown", "Unknown"}, w.state())
	require.Equal(t, runplan.ReasonClusterUnknown, w.reboot())
	row, err := clusterdb.Get(t.Context(), w.store, "a")
	require.NoError(t, err)
	require.NotEmpty(t, row.Problem)
	w.sim.ClearFaults(0)
	require.NoError(t, w.look())
	require.Equal(t, [2]string{"NodeReady", "CordonedWithoutPods"}, w.state())
}

// TestLook_LetsGo: what a cluster said counts no more when nobody has asked it for a while, and
// when it was deleted.
func TestLook_LetsGo(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{
		"no worker looks":     "UPDATE clusters SET looked_at = now() - interval '3 minutes'",
		"cluster was deleted": "DELETE FROM clusters",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.node(uuid, "True")
			require.NoError(t, w.look())
			require.Equal(t, "NodeReady", w.state()[0])
			w.exec(end)
			require.NoError(t, w.passes.Look(t.Context()))
			require.Equal(t, [2]string{"Unknown", "!Unknown"}, w.state())
		})
	}
}

// TestLook_TwoNodesWithOneUUID believes neither.
func TestLook_TwoNodesWithOneUUID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node(uuid, "True")
	require.NoError(t, w.look())
	w.sim.Put("nodes", "", "copy", object{"status": object{"nodeInfo": object{"systemUUID": "44454c4c-4200-1035-8054-b7c04f503033"}}})
	require.Error(t, w.look())
	require.Equal(t, "Unknown", w.state()[0])
}

// TestPutMember_UUIDOfAnotherCluster: a machine that lies about its system UUID is in nobody's way
// but in its own cluster.
func TestPutMember_UUIDOfAnotherCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := machines.Register(ctx, tx, machines.Registration{ID: "m-2", Spec: spec.MachineSpec{Provider: "any", TargetClusterRef: "b"}}, admin)
		if err != nil {
			return err
		}
		_, err = clusterdb.Create(ctx, tx, "b", "", spec.ClusterSpec{APIURL: w.sim.URL(), CAPins: []string{w.sim.CAPin()}, KubeconfigRef: "clusters/b", KubernetesVersion: "v1.34.1"})
		return err
	})
	put := func(cluster string) error {
		return w.store.Tx(t.Context(), func(tx *db.Tx) error {
			return clusterdb.PutMember(t.Context(), tx, clusterdb.Member{MachineID: "m-2", ClusterRef: &cluster, NodeName: "m-2", SystemUUID: uuid})
		})
	}
	require.NoError(t, put("b"))
	require.ErrorContains(t, put("a"), "another machine of the cluster says that it has this system UUID")
}

// TestLook_DeletesSpentTokens deletes those that have expired and those of runs that have ended,
// and no other; a cluster in which one is left is not deleted.
func TestLook_DeletesSpentTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var run machinesdb.Run
	w.tx(func(ctx context.Context, tx *db.Tx) (err error) {
		run, err = machines.StartRun(ctx, tx, machines.Start{
			RequestID: "r", MachineID: "m-1", Type: lifecycle.RunTypeReboot, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
		}, admin)
		return err
	})
	cluster, err := providers.OpenCluster(t.Context(), w.passes.Secrets, "a", spec.ClusterSpec{APIURL: w.sim.URL(), CAPins: []string{w.sim.CAPin()}})
	require.NoError(t, err)
	mint := func(id string, lifetime time.Duration) {
		require.NoError(t, clusterdb.AddToken(t.Context(), w.store, clusterdb.Token{ClusterRef: "a", ID: id, RunID: run.ID, Step: "join", Attempt: 1}, lifetime))
		require.NoError(t, kube.Provider{}.MintToken(t.Context(), cluster, providers.BootstrapToken{
			ID: id, Secret: providers.NewSecret("0123456789abcdef"), Expires: time.Now().Add(time.Hour),
		}))
	}
	mint("aaaaaa", -time.Second)
	mint("bbbbbb", time.Hour)
	w.sim.Put("secrets", "kube-system", "bootstrap-token-cccccc", object{"type": "bootstrap.kubernetes.io/token"}) // somebody else's
	require.NoError(t, w.look())
	require.ElementsMatch(t, []string{"bbbbbb", "cccccc"}, w.sim.Tokens())
	var conflict *db.ConflictError
	require.ErrorAs(t, clusterdb.Delete(t.Context(), w.store, "a", 1), &conflict, "a token may be left in it")

	w.tx(func(ctx context.Context, tx *db.Tx) error {
		job, err := tx.LockJob(ctx, run.JobID)
		if err != nil {
			return err
		}
		if _, err := tx.TransitionJob(ctx, job.ID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem}); err != nil {
			return err
		}
		return machines.EndUnstarted(ctx, tx, job, admin)
	})
	require.NoError(t, w.look())
	require.Equal(t, []string{"cccccc"}, w.sim.Tokens())
	require.NoError(t, clusterdb.Delete(t.Context(), w.store, "a", 1))
}

// Two workers share the looks.
func TestLook_OneAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, found, err := clusterdb.ClaimLook(t.Context(), w.store, time.Hour, false)
	require.NoError(t, err)
	require.True(t, found)
	before := len(w.sim.Requests())
	require.NoError(t, w.passes.Look(t.Context()))
	require.Len(t, w.sim.Requests(), before, "another worker has it")
	w.exec("UPDATE clusters SET next_look_at = now() + interval '2 days'") // by a clock that was set back since
	require.NoError(t, w.passes.Look(t.Context()))
	require.Greater(t, len(w.sim.Requests()), before, "no worker has it for two days")
}

// silent is a cluster that takes connections and answers none, for as long as the test runs.
func (w *world) silent(ref string) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.t.Cleanup(func() { _ = c.Close() })
		}
	}()
	s := spec.ClusterSpec{APIURL: "https://" + l.Addr().String(), CAPins: []string{w.sim.CAPin()}, KubeconfigRef: "clusters/a", KubernetesVersion: "v1.34.1"}
	_, err = clusterdb.Create(w.t.Context(), w.store, ref, "", s)
	require.NoError(w.t, err)
}

// TestRun_SilentClustersKeepNoOtherWaiting: more clusters hang than there are loops, all of them
// due before the one that answers, which is looked at again and again all the same.
func TestRun_SilentClustersKeepNoOtherWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node(uuid, "True")
	for i := range 12 {
		w.silent("silent-" + strconv.Itoa(i))
	}
	w.exec("UPDATE clusters SET problem = 'does not answer', next_look_at = now() - interval '1 hour' WHERE ref <> 'a'")
	w.passes.Every = runenv.Patience(2 * time.Second)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.passes.Run(ctx) }()
	lookedAt := func() time.Time {
		row, err := clusterdb.Get(t.Context(), w.store, "a")
		require.NoError(t, err)
		if row.LookedAt == nil {
			return time.Time{}
		}
		return *row.LookedAt
	}
	for range 3 { // 12 looks that hang, four at a time, take three times as long as the pause between two looks
		last := lookedAt()
		begun := time.Now()
		require.Eventually(t, func() bool { return lookedAt().After(last) }, runenv.Patience(20*time.Second), 20*time.Millisecond)
		t.Logf("looked at after %s", time.Since(begun).Round(time.Millisecond))
	}
	require.Equal(t, "NodeReady", w.state()[0])
	stop()
	<-ended
	rows, err := clusterdb.List(t.Context(), w.store, "a", 100)
	require.NoError(t, err)
	require.Len(t, rows, 12)
	for _, row := range rows {
		require.NotEmpty(t, row.Problem)
	}
}

// TestForceDelete: a cluster whose API server is gone for good is deleted with the tokens that may
// be left in it. The run that waited for their deletion has nothing left to delete, and the
// machine's last node is known on.
func TestForceDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var run machinesdb.Run
	w.tx(func(ctx context.Context, tx *db.Tx) (err error) {
		run, err = machines.StartRun(ctx, tx, machines.Start{
			RequestID: "r", MachineID: "m-1", Type: lifecycle.RunTypeReboot, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
		}, admin)
		return err
	})
	require.NoError(t, clusterdb.AddToken(t.Context(), w.store, clusterdb.Token{ClusterRef: "a", ID: "aaaaaa", RunID: run.ID, Step: "join", Attempt: 1}, time.Hour))
	require.NoError(t, clusterdb.NoteJoined(t.Context(), w.store, "m-1"))
	var conflict *db.ConflictError
	require.ErrorAs(t, clusterdb.Delete(t.Context(), w.store, "a", 1), &conflict)
	require.ErrorIs(t, w.store.Tx(t.Context(), func(tx *db.Tx) error { _, err := clusterdb.ForceDelete(t.Context(), tx, "a", 7); return err }), db.ErrStale)
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		tokens, err := clusterdb.ForceDelete(ctx, tx, "a", 1)
		require.Equal(t, []string{"aaaaaa"}, tokens)
		return err
	})
	left, err := clusterdb.TokensOfStep(t.Context(), w.store, run.ID, "join")
	require.NoError(t, err)
	require.Empty(t, left)
	member, err := clusterdb.GetMember(t.Context(), w.store, "m-1")
	require.NoError(t, err)
	require.Nil(t, member.ClusterRef)
	require.NotNil(t, member.JoinedAt, "its node is given to nobody until it is proven clean")
	require.NoError(t, w.passes.Look(t.Context()))
}
