package machine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/kube"
	"github.com/slipway-cloud/slipway/providers/ssh"
	kubesim "github.com/slipway-cloud/slipway/sim/kube"
	kubeadmsim "github.com/slipway-cloud/slipway/sim/kube/kubeadm"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/sshd"
)

const (
	standInEnv = "KUBEADM_STAND_IN"
	machineID  = "m-1"
	ownUUID    = "4c4c4544-0042-3510-8054-b7c04f503033"
	otherUUID  = "4c4c4544-0042-3510-8054-b7c04f503034"
	presentBID = "11111111-aaaa"
)

// TestMain is also the kubeadm of the machines of these tests.
func TestMain(m *testing.M) {
	if os.Getenv(standInEnv) != "" {
		os.Exit(kubeadmsim.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// kubeconfigs holds one kubeconfig.
type kubeconfigs struct {
	providers.Secrets
	value string
}

// Resolve implements providers.Secrets.
func (k kubeconfigs) Resolve(_ context.Context, ref providers.SecretRef, use providers.Use) (providers.Secret, error) {
	if ref != "clusters/a" || use.Kind != spec.SecretKubeconfig || use.Address == "" {
		return providers.Secret{}, &providers.Error{Kind: providers.KindInvalid, Op: "secrets.resolve", Message: "another use"}
	}
	return providers.NewSecret(k.value), nil
}

// AddressRule implements providers.Secrets.
func (kubeconfigs) AddressRule(context.Context, providers.SecretRef, providers.Use) (spec.AddressRule, error) {
	return providers.SimulatedAddresses(), nil
}

// clusterWorld is a machine behind a real SSH server, with a stand-in of kubeadm, and a simulated
// cluster.
type clusterWorld struct {
	*world
	sim    *kubesim.Server
	root   string // of the machine
	run    string // in memory
	waitOn string // a join waits for this file
}

func newClusterWorld(t *testing.T) *clusterWorld {
	t.Helper()
	manifest, err := os.ReadFile("../../deploy/kubernetes/slipway.yaml")
	require.NoError(t, err)
	return newClusterWorldWith(t, kubesim.Options{Manifest: manifest, Heartbeat: 50 * time.Millisecond})
}

func newClusterWorldWith(t *testing.T, o kubesim.Options) *clusterWorld {
	t.Helper()
	sim, err := kubesim.New(o)
	require.NoError(t, err)
	_, stop, err := sim.Start(t.Context(), "127.0.0.1:0", "")
	require.NoError(t, err)
	t.Cleanup(stop)
	w := &clusterWorld{world: newWorld(t, "ssh"), sim: sim}
	w.run, err = os.MkdirTemp("/dev/shm", "slipway-test-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(w.run) })
	w.root, w.waitOn = filepath.Join(w.dir, "root"), filepath.Join(w.dir, "go-on")
	w.letJoin()
	write := func(name, text string) string {
		path := filepath.Join(w.root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o700)) //nolint:gosec // one is a program
		return path
	}
	uuid := write("sys/class/dmi/id/product_uuid", strings.ToUpper(ownUUID)+"\n")
	require.NoError(t, os.MkdirAll(filepath.Join(w.root, "proc/sys/kernel/random"), 0o700))
	require.NoError(t, os.Symlink(w.bootF, filepath.Join(w.root, "proc/sys/kernel/random/boot_id")))
	self, err := os.Executable()
	require.NoError(t, err)
	kubeadm := write("usr/bin/kubeadm", fmt.Sprintf("#!/bin/sh\nexport %s=1 %s='%s' %s='%s'\nexec '%s' \"$@\"\n",
		standInEnv, kubeadmsim.RootEnv, w.root, kubeadmsim.WaitEnv, w.waitOn, self))
	adapter := ssh.New(ssh.WithStateDir(w.sshd.StateDir), ssh.WithBootIDFile(w.bootF), ssh.WithJoinPaths(ssh.JoinPaths{
		Run: w.run, Kubernetes: filepath.Join(w.root, "etc/kubernetes"), UUIDFile: uuid, Mark: filepath.Join(w.root, "joined"), Kubeadm: kubeadm,
	})).Adapter()
	adapter.ClusterJoin = kube.Provider{}
	w.acts.Adapters = providers.MachineAdapters{"ssh": adapter}
	w.acts.Secrets, w.acts.TokenCache = kubeconfigs{value: sim.Kubeconfig()}, time.Millisecond
	w.putCluster(func(*spec.ClusterSpec) {})
	return w
}

func (w *clusterWorld) putCluster(change func(*spec.ClusterSpec)) {
	w.t.Helper()
	s := spec.ClusterSpec{APIURL: w.sim.URL(), CAPins: []string{w.sim.CAPin()}, KubeconfigRef: "clusters/a", KubernetesVersion: "v1.34.1"}
	change(&s)
	require.NoError(w.t, s.Validate())
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		row, err := clusterdb.Get(ctx, tx, "a")
		if err != nil {
			_, err = clusterdb.Create(ctx, tx, "a", "", s)
			return err
		}
		_, err = clusterdb.Update(ctx, tx, "a", row.Version, "", s)
		return err
	})
}

func (w *clusterWorld) holdJoin() { require.NoError(w.t, os.Remove(w.waitOn)) }
func (w *clusterWorld) letJoin()  { require.NoError(w.t, os.WriteFile(w.waitOn, nil, 0o600)) }

func joinStep(seconds int) runplan.Step {
	timeout := int(runenv.Patience(time.Duration(seconds) * time.Second).Seconds())
	return runplan.Step{Name: "join", TimeoutSeconds: &timeout, Join: &runplan.KubeadmJoin{ClusterRef: "a"}}
}

func verifyStep(seconds int) runplan.Step {
	timeout := int(runenv.Patience(time.Duration(seconds) * time.Second).Seconds())
	return runplan.Step{Name: "verify", TimeoutSeconds: &timeout, Verify: &runplan.VerifyInCluster{ClusterRef: "a"}}
}

func (w *clusterWorld) join(in machine.StepIn) (machine.StepFacts, error) {
	return w.acts.JoinCluster(w.t.Context(), machine.CommandIn{StepIn: in})
}

// putNode has the cluster have a Node before the machine joins.
func (w *clusterWorld) putNode(name, uuid, bootID string, ready bool) {
	status := map[bool]string{true: "True", false: "False"}[ready]
	w.sim.Put("nodes", "", name, map[string]any{"apiVersion": "v1", "kind": "Node", "spec": map[string]any{}, "status": map[string]any{
		"nodeInfo":   map[string]any{"systemUUID": uuid, "bootID": bootID, "kubeletVersion": "v1.34.1"},
		"conditions": []map[string]any{{"type": "Ready", "status": status, "reason": "Test"}},
	}})
}

// leftNothing requires that no token and no join file is left, and that no token stands in the
// database, in the output of runs, in files of the machine that outlive it, or in the log of its
// SSH server.
func (w *clusterWorld) leftNothing(wantMinted int) {
	w.t.Helper()
	require.Empty(w.t, w.sim.Tokens(), "no token is left in the cluster")
	left, err := os.ReadDir(w.run)
	require.NoError(w.t, err)
	require.Empty(w.t, left, "no join file is left")
	var rows int
	require.NoError(w.t, w.store.DBTX().QueryRow(w.t.Context(), "SELECT count(*) FROM cluster_tokens").Scan(&rows))
	require.Zero(w.t, rows)
	require.Len(w.t, w.sim.Minted(), wantMinted)
	w.hidden(w.sim.Minted()...)
}

// hidden requires that no secret part of a token is anywhere it outlives its use.
func (w *clusterWorld) hidden(tokens ...string) {
	w.t.Helper()
	var tables []string
	rows, err := w.store.DBTX().Query(w.t.Context(), "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND has_table_privilege(oid, 'SELECT')")
	require.NoError(w.t, err)
	for rows.Next() {
		var name string
		require.NoError(w.t, rows.Scan(&name))
		tables = append(tables, name)
	}
	require.NoError(w.t, rows.Err())
	for _, token := range tokens {
		_, secret, _ := strings.Cut(token, ".")
		require.Len(w.t, secret, 16)
		for _, table := range tables {
			var found int
			require.NoError(w.t, w.store.DBTX().QueryRow(w.t.Context(), "SELECT count(*) FROM "+table+" x WHERE position($1 IN x::text) > 0 OR position($2 IN x::text) > 0",
				secret, fmt.Sprintf("%x", secret)).Scan(&found))
			require.Zero(w.t, found, "the token stands in %s", table)
		}
		for _, dir := range []string{w.sshd.StateDir, filepath.Dir(w.sshd.LogFile), w.root} {
			require.NoError(w.t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
				if os.IsNotExist(err) {
					return nil // no command ran there
				}
				if err != nil || !d.Type().IsRegular() {
					return err
				}
				raw, err := os.ReadFile(path)
				require.NotContains(w.t, string(raw), secret, path)
				return err
			}))
		}
	}
}

// TestJoin_AMachineBecomesANode joins twice under one number, as after a worker that died: the
// machine joins once, by one token. Then the node is proven.
func TestJoin_AMachineBecomesANode(t *testing.T) {
	t.Parallel()
	w := newClusterWorld(t)
	in := w.step(joinStep(30))
	for range 2 {
		facts, err := w.join(in)
		require.NoError(t, err)
		require.True(t, facts.Simulated, "the stand-in says what it is")
		require.Contains(t, facts.Note, "(simulated)")
	}
	require.NotNil(t, w.sim.Node(machineID))
	stdout, _ := w.output(in)
	require.Equal(t, 1, strings.Count(stdout, "This node has joined the cluster."))
	w.leftNothing(1)

	in = w.nextStep(verifyStep(20))
	facts, err := w.acts.VerifyInCluster(t.Context(), machine.VerifyIn{StepIn: in, Before: []string{"00000000-0000"}})
	require.NoError(t, err)
	require.True(t, facts.Simulated)
	m := w.machine()
	require.True(t, m.Conditions.Holds(lifecycle.InCustomerClusterCondition))
	require.True(t, m.Conditions.Known(lifecycle.DrainedCondition))
}

// nextStep ends the active run and starts one of another step.
func (w *clusterWorld) nextStep(s runplan.Step) machine.StepIn {
	w.t.Helper()
	m := w.machine()
	if m.ActiveRunID != nil {
		run, err := machinesdb.GetRun(w.t.Context(), w.store, *m.ActiveRunID)
		require.NoError(w.t, err)
		w.endRun(machine.StepIn{JobRef: contract.JobRef{JobID: run.JobID}})
	}
	return w.step(s)
}

// TestJoin_InTheJoin loses the worker while kubeadm runs. The token is in one file alone, that root
// reads and that is in memory. The next worker makes no other token; a cancelled run leaves
// nothing.
func TestJoin_InTheJoin(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*clusterWorld, machine.StepIn){
		"the next worker finishes it": func(w *clusterWorld, in machine.StepIn) {
			w.letJoin()
			_, err := w.join(in)
			require.NoError(w.t, err)
			require.NotNil(w.t, w.sim.Node(machineID))
		},
		"the run is cancelled": func(w *clusterWorld, in machine.StepIn) {
			left, err := w.acts.ReadJoin(w.t.Context(), in)
			require.NoError(w.t, err)
			require.NotEmpty(w.t, left.Note)
			_, err = w.acts.UndoJoin(w.t.Context(), machine.StopIn{StepIn: in, EndsBy: time.Now().Add(time.Hour)})
			require.NoError(w.t, err)
			left, err = w.acts.ReadJoin(w.t.Context(), in)
			require.NoError(w.t, err)
			require.Empty(w.t, left.Note)
			require.Nil(w.t, w.sim.Node(machineID))
			require.NoFileExists(w.t, filepath.Join(w.root, "etc/kubernetes/bootstrap-kubelet.conf"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newClusterWorld(t)
			w.holdJoin()
			in := w.step(joinStep(60))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := w.acts.JoinCluster(ctx, machine.CommandIn{StepIn: in})
				ended <- err
			}()
			require.Eventually(t, func() bool { out, _ := w.output(in); return strings.Contains(out, "TLS bootstrap") }, runenv.Patience(30*time.Second), 20*time.Millisecond)
			w.inOneFile(w.sim.Minted()[0])
			is, err := clusterdb.IsInCluster(t.Context(), w.store, machineID)
			require.NoError(t, err)
			require.True(t, is, "kubeadm may have made it a node by now")
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled)
			end(w, in)
			w.leftNothing(1)
		})
	}
}

// TestUndoJoin_RefusedLogin: the machine refuses the login while kubeadm runs. Its token is deleted
// at once, and the undo ends when the machine itself has ended the join.
func TestUndoJoin_RefusedLogin(t *testing.T) {
	t.Parallel()
	w := newClusterWorld(t)
	w.holdJoin()
	in := w.step(joinStep(60))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.acts.JoinCluster(ctx, machine.CommandIn{StepIn: in})
		ended <- err
	}()
	require.Eventually(t, func() bool { out, _ := w.output(in); return strings.Contains(out, "TLS bootstrap") }, runenv.Patience(30*time.Second), 20*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	login := w.acts.Login
	key, _ := sshd.NewKey(t)
	w.acts.Login = func(ctx context.Context, s providers.Secrets, ref providers.SecretRef, use providers.Use, to providers.SSHTarget, keyID string) (providers.SSHTarget, error) {
		to, err := login(ctx, s, ref, use, to, keyID)
		to.PrivateKeyPEM = providers.NewSecret(string(key))
		return to, err
	}
	_, err := w.acts.UndoJoin(t.Context(), machine.StopIn{StepIn: in, EndsBy: time.Now().Add(time.Hour)})
	require.Error(t, err, "the join may still run")
	require.Empty(t, w.sim.Tokens())
	facts, err := w.acts.UndoJoin(t.Context(), machine.StopIn{StepIn: in, EndsBy: time.Now().Add(-time.Second)})
	require.NoError(t, err)
	require.Contains(t, facts.Note, "may keep the join file")
	left, err := w.acts.ReadJoin(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, left.Note)

	w.acts.Login = login // ends what runs
	_, err = w.acts.UndoJoin(t.Context(), machine.StopIn{StepIn: in, EndsBy: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	w.leftNothing(1)
}

// inOneFile requires that the token is in the join file alone, and in no process's arguments or
// environment.
func (w *clusterWorld) inOneFile(token string) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.run, "*", "join.yaml"))
	require.NoError(w.t, err)
	require.Len(w.t, files, 1)
	raw, err := os.ReadFile(files[0])
	require.NoError(w.t, err)
	require.Contains(w.t, string(raw), token)
	info, err := os.Stat(files[0])
	require.NoError(w.t, err)
	require.Equal(w.t, os.FileMode(0o600), info.Mode().Perm())
	_, secret, _ := strings.Cut(token, ".")
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(w.t, err)
	require.NotEmpty(w.t, processes)
	for _, path := range processes {
		for _, file := range []string{path, filepath.Join(filepath.Dir(path), "environ")} {
			raw, _ := os.ReadFile(file) // a process may have ended
			require.NotContains(w.t, string(raw), secret, file)
		}
	}
}

// TestJoin_Refusals: each is refused for its reason, and leaves neither a token nor a changed
// cluster.
func TestJoin_Refusals(t *testing.T) {
	t.Parallel()
	const pin = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	for name, tc := range map[string]struct {
		prepare func(*clusterWorld)
		class   lifecycle.FailureClass
		text    string
		minted  int
	}{
		"the kubeconfig has another CA":  {func(w *clusterWorld) { w.putCluster(func(s *spec.ClusterSpec) { s.CAPins = []string{pin} }) }, lifecycle.FailConfiguration, "ca_pins", 0},
		"cluster-info has another CA":    {func(w *clusterWorld) { w.fault(kubesim.FaultWrongCA) }, lifecycle.FailClusterJoin, "exit status 1", 1},
		"nothing signs cluster-info":     {func(w *clusterWorld) { w.fault(kubesim.FaultUnsigned) }, lifecycle.FailClusterJoin, "bootstrapsigner", 1},
		"the certificate is denied":      {func(w *clusterWorld) { w.fault(kubesim.FaultCSRDenied) }, lifecycle.FailClusterJoin, "exit status 1", 1},
		"nobody approves":                {func(w *clusterWorld) { w.fault(kubesim.FaultCSRPending) }, lifecycle.FailClusterJoin, "did not end within", 1},
		"another machine has the name":   {func(w *clusterWorld) { w.putNode(machineID, otherUUID, "x", false) }, lifecycle.FailStateDisagreement, "another machine", 0},
		"the node does not say its UUID": {func(w *clusterWorld) { w.putNode(machineID, "", "x", false) }, lifecycle.FailStateDisagreement, "another machine", 0},
		"a node of another name is it":   {func(w *clusterWorld) { w.putNode("by-hand", ownUUID, "x", true) }, lifecycle.FailStateDisagreement, "by-hand", 0},
		"the kubeadm of another release": {func(w *clusterWorld) { w.putCluster(func(s *spec.ClusterSpec) { s.KubernetesVersion = "v1.33.0" }) }, lifecycle.FailConfiguration, "v1.33.0", 0},
		"files of another cluster": {func(w *clusterWorld) {
			require.NoError(w.t, os.MkdirAll(filepath.Join(w.root, "etc/kubernetes"), 0o700))
			require.NoError(w.t, os.WriteFile(filepath.Join(w.root, "etc/kubernetes/kubelet.conf"), []byte("x"), 0o600))
		}, lifecycle.FailStateDisagreement, "repave it", 0},
		"a machine without a UUID": {func(w *clusterWorld) {
			require.NoError(w.t, os.WriteFile(filepath.Join(w.root, "sys/class/dmi/id/product_uuid"), []byte("00000000-0000-0000-0000-000000000000"), 0o600))
		}, lifecycle.FailClusterJoin, "UUID", 0},
		"a right was taken away": {func(w *clusterWorld) {
			_, err := w.sim.AddFault(kubesim.Fault{Name: kubesim.FaultForbidden, Op: "create secrets", Count: -1})
			require.NoError(w.t, err)
		}, lifecycle.FailConfiguration, "forbidden", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newClusterWorld(t)
			tc.prepare(w)
			before := w.sim.Node(machineID)
			_, err := w.join(w.step(joinStep(8)))
			require.Equal(t, tc.class, classOf(err), "%v", err)
			require.ErrorContains(t, err, tc.text)
			require.Equal(t, before, w.sim.Node(machineID))
			w.leftNothing(tc.minted)
		})
	}
}

func (w *clusterWorld) fault(name string) {
	w.t.Helper()
	_, err := w.sim.AddFault(kubesim.Fault{Name: name})
	require.NoError(w.t, err)
}

// TestJoin_ReplacesItsOldNode: a machine that was installed again has an old Node, which is deleted
// when its system UUID is the machine's, in either byte order.
func TestJoin_ReplacesItsOldNode(t *testing.T) {
	t.Parallel()
	for name, uuid := range map[string]string{"same order": ownUUID, "other order": "44454c4c-4200-1035-8054-b7c04f503033"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newClusterWorld(t)
			w.putNode(machineID, uuid, "of-before", false)
			old := w.sim.Node(machineID)["metadata"].(map[string]any)["uid"] //nolint:forcetypeassert // as the simulator keeps it
			_, err := w.join(w.step(joinStep(30)))
			require.NoError(t, err)
			require.NotEqual(t, old, w.sim.Node(machineID)["metadata"].(map[string]any)["uid"]) //nolint:forcetypeassert // as the simulator keeps it
			w.leftNothing(1)
		})
	}
}

// A second join of a machine that is in its cluster changes nothing, and an attempt that left files
// of ours is reset.
func TestJoin_Again(t *testing.T) {
	t.Parallel()
	w := newClusterWorld(t)
	_, err := w.join(w.step(joinStep(30)))
	require.NoError(t, err)
	facts, err := w.join(w.nextStep(joinStep(30)))
	require.NoError(t, err)
	require.Contains(t, facts.Note, "already")
	w.leftNothing(1)
	w.sim.Remove("nodes", "", machineID)
	in := w.nextStep(joinStep(30))
	_, err = w.join(in)
	require.NoError(t, err)
	stdout, _ := w.output(in)
	require.Contains(t, stdout, "[reset]")
	require.NotNil(t, w.sim.Node(machineID))
	w.leftNothing(2)
}

// TestVerify_NotReady says what is missing, and times out with it.
func TestVerify_NotReady(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(*clusterWorld)
		before  string
		class   lifecycle.FailureClass
		text    string
	}{
		"no network plugin":              {func(w *clusterWorld) { w.fault(kubesim.FaultNotReady) }, "", lifecycle.FailClusterNotReady, "cni plugin"},
		"no heartbeat":                   {func(w *clusterWorld) { w.fault(kubesim.FaultSilent) }, "", lifecycle.FailClusterNotReady, "heartbeat"},
		"no node":                        {func(w *clusterWorld) { w.sim.Remove("nodes", "", machineID) }, "", lifecycle.FailClusterNotReady, "no node"},
		"cordoned":                       {func(w *clusterWorld) { require.NoError(w.t, w.sim.Cordon(machineID, true)) }, "", lifecycle.FailClusterNotReady, "cordoned"},
		"the boot of before the restart": {func(*clusterWorld) {}, presentBID, lifecycle.FailClusterNotReady, "before its restart"},
		"another boot":                   {func(w *clusterWorld) { w.boot("33333333-cccc") }, "", lifecycle.FailClusterNotReady, "boot id"},
		"another kubelet":                {func(w *clusterWorld) { w.putCluster(func(s *spec.ClusterSpec) { s.KubernetesVersion = "v1.34.2" }) }, "", lifecycle.FailClusterNotReady, "v1.34.2"},
		"another machine":                {func(w *clusterWorld) { w.putNode(machineID, otherUUID, presentBID, true) }, "", lifecycle.FailStateDisagreement, "another machine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newClusterWorld(t)
			_, err := w.join(w.step(joinStep(30)))
			require.NoError(t, err)
			tc.prepare(w)
			_, err = w.acts.VerifyInCluster(t.Context(), machine.VerifyIn{StepIn: w.nextStep(verifyStep(6)), Before: []string{tc.before}})
			require.Equal(t, tc.class, classOf(err), "%v", err)
			require.ErrorContains(t, err, tc.text)
			require.False(t, w.machine().Conditions.Holds(lifecycle.InCustomerClusterCondition))
		})
	}
}
