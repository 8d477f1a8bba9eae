package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	gossh "golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	intent "github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/kube"
	"github.com/slipway-cloud/slipway/providers/ssh"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	kubesim "github.com/slipway-cloud/slipway/sim/kube"
	kubeadmsim "github.com/slipway-cloud/slipway/sim/kube/kubeadm"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/e2e/places"
	"github.com/slipway-cloud/slipway/test/kubeserver"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/secretscan"
	"github.com/slipway-cloud/slipway/test/sshd"
	"github.com/slipway-cloud/slipway/test/stack"
)

// seedWorld is a machine of a data center before the default plan of a repave: its MAAS and its BMC
// are simulated, and so is the cluster that it is to join. Its SSH server is a real one, which has
// the host key of the system that is installed. kubeadm is a stand-in.
type seedWorld struct {
	*world
	m      *simhw.Machine
	nodeID string
	id     string // of the machine
	sim    seedCluster
	places places.Places
	file   string // with the places
	goOn   string // a join waits for this file
	log    *safeBuffer
	token  string
}

// seedCluster is a simulated cluster or a real one.
type seedCluster interface {
	URL() string
	CAPin() string
	Kubeconfig() string
	Node(name string) map[string]any
	Tokens() []string // that are there
	Minted() []string // that there were
}

// newSeedWorld starts all of it, and takes the node into service by a worker of the test's own
// process, which runs on when keep is set.
func newSeedWorld(t *testing.T, cluster seedCluster, keep bool) *seedWorld {
	t.Helper()
	me, err := user.Current()
	require.NoError(t, err)
	w := &seedWorld{log: &safeBuffer{}, sim: cluster}
	w.world = newPrivateWorld(t, stack.Options{NoWorker: true, DatabaseEnv: databaseVar, Log: w.log, SSHUser: me.Username})
	w.m = w.Sims.Fleet.All()[0]
	w.findPlaces(t)
	w.App.UseMachines(w.places.Adapters())
	w.App.UseClusters(kube.Provider{})
	w.StartRole("worker", func(ctx context.Context) error { return w.App.RunWorker(ctx) })
	w.nodeID = w.activeNodes(t)[w.m]
	if !keep {
		require.NoError(t, w.StopRole("worker"))
	}
	w.register(t)
	w.token, err = op.CreateToken(t.Context(), w.App.Store, "automation", []string{"admin"}, time.Hour)
	require.NoError(t, err)
	return w
}

func manifest(t *testing.T) []byte {
	t.Helper()
	raw, err := os.ReadFile("../../deploy/kubernetes/slipway.yaml")
	require.NoError(t, err)
	return raw
}

func simulatedCluster(t *testing.T) *kubesim.Server {
	t.Helper()
	sim, err := kubesim.New(kubesim.Options{Manifest: manifest(t), Heartbeat: 200 * time.Millisecond, TokenCache: 10 * time.Second})
	require.NoError(t, err)
	_, stop, err := sim.Start(t.Context(), "127.0.0.1:0", "")
	require.NoError(t, err)
	t.Cleanup(stop)
	return sim
}

// realCluster has the real API server and the real controllers.
func realCluster(t *testing.T) *kubeserver.Server {
	t.Helper()
	c := kubeserver.Start(t)
	c.MakeAccount(string(manifest(t)))
	c.GiveRights(string(manifest(t)))
	c.StartControllers()
	return c
}

// heartbeats sends those of the machine's kubelet, of which the stand-in sends the first.
func (w *seedWorld) heartbeats(t *testing.T, c *kubeserver.Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for every := time.NewTicker(time.Second); ; {
			select {
			case <-ctx.Done():
				return
			case now := <-every.C:
				c.Renew(w.id, now.UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
			}
		}
	})
	t.Cleanup(func() { cancel(); all.Wait() })
}

// findPlaces says where the machine has what joins read and write: on its disk, which a repave
// erases, and in memory.
func (w *seedWorld) findPlaces(t *testing.T) {
	t.Helper()
	root, dir := w.Sims.Nodes[w.m.Spec().ID].Root(), t.TempDir()
	memory, err := os.MkdirTemp("/dev/shm", "slipway-e2e-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(memory) })
	bin, kubeadm := filepath.Join(dir, "stand-in"), filepath.Join(dir, "kubeadm")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../sim/kube/kubeadm/cmd").CombinedOutput()
	require.NoError(t, err, string(out))
	w.goOn = filepath.Join(dir, "go-on")
	script := fmt.Sprintf("#!/bin/sh\nexport %s='%s' %s='%s'\nexec '%s' \"$@\"\n", kubeadmsim.RootEnv, root, kubeadmsim.WaitEnv, w.goOn, bin)
	require.NoError(t, os.WriteFile(kubeadm, []byte(script), 0o700)) //nolint:gosec // a program
	w.places = places.Places{
		StateDir: filepath.Join(root, "var/lib/slipway/ops"), BootIDFile: filepath.Join(root, "proc/sys/kernel/random/boot_id"),
		Join: ssh.JoinPaths{
			Run: memory, Kubernetes: filepath.Join(root, "etc/kubernetes"), UUIDFile: filepath.Join(root, "sys/class/dmi/id/product_uuid"),
			Mark: filepath.Join(root, "var/lib/slipway/joined"), Kubeadm: kubeadm,
		},
	}
	w.file = filepath.Join(dir, "places.json")
	require.NoError(t, w.places.Write(w.file))
}

// register starts the SSH server of the machine, registers the machine, and creates the cluster.
func (w *seedWorld) register(t *testing.T) {
	t.Helper()
	ctx, store := t.Context(), w.App.Store
	key, err := w.App.Secrets.Resolve(ctx, providers.SecretRef(w.site.Spec.SSHKeyRef), providers.Use{Kind: spec.SecretSSHKey, Site: w.site.ID})
	require.NoError(t, err)
	login, err := gossh.ParsePrivateKey([]byte(key.Reveal()))
	require.NoError(t, err)
	ip, err := w.Sims.Address(ctx, w.m)
	require.NoError(t, err)
	host := sshd.NewHost(t, ip, gossh.MarshalAuthorizedKey(login.PublicKey()))
	follow := func(ev simhw.Event) {
		switch {
		case ev.Kind == simhw.EventOSDown:
			host.Down()
		case ev.Kind == simhw.EventOSUp && !ev.OS.Live:
			pem, err := simnode.HostKey(ev.OS.UserData)
			if err == nil {
				err = host.Up(pem)
			}
			if err != nil {
				t.Errorf("the SSH server of the machine: %v", err)
			}
		}
	}
	w.m.Subscribe(follow)
	const ref = "clusters/a"
	_, err = store.SetSecretUse(ctx, ref, spec.SecretUse{Kind: spec.SecretKubeconfig, Networks: []string{"127.0.0.0/8"}})
	require.NoError(t, err)
	_, err = w.App.Secrets.Put(ctx, ref, providers.NewSecret(w.sim.Kubeconfig()))
	require.NoError(t, err)
	_, err = clusterdb.Create(ctx, store, "a", "", spec.ClusterSpec{APIURL: w.sim.URL(), CAPins: []string{w.sim.CAPin()}, KubeconfigRef: ref, KubernetesVersion: "v1.34.1"})
	require.NoError(t, err)
	w.id = "m-" + w.site.Name
	w.registered(t, w.id, w.nodeID, spec.MachineSpec{Serial: w.m.Spec().Serial, SSHEndpoint: host.Address, TargetClusterRef: "a"})
}

// repaves starts the default plan of a repave: netboot, repave, reboot, join, verify.
func (w *seedWorld) repaves(t *testing.T, request string) (run machinesdb.Run) {
	t.Helper()
	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		run, err = intent.StartRun(t.Context(), tx, intent.Start{
			RequestID: request, MachineID: w.id, Type: lifecycle.RunTypeRepave,
			Offers: func(string) []runplan.Capability { return append(datacenter(""), runplan.CapClusterJoin) },
		}, admin)
		return err
	}))
	return run
}

func (w *seedWorld) letJoin(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile(w.goOn, nil, 0o600))
}

// inService requires that a run has succeeded, and that each of its steps had its effect once.
func (w *seedWorld) inService(t *testing.T, run machinesdb.Run, installs int) {
	t.Helper()
	job := w.ends(t, run.JobID, 10*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, job.Status, w.whyRun(t, run.ID))
	require.Equal(t, installs, w.m.Counters().Installs, "the image is installed once")
	rows, err := evidencedb.CertificatesOfNode(t.Context(), w.App.Store, w.nodeID)
	require.NoError(t, err)
	require.Len(t, rows, installs-1, "each repave has a certificate")
	var c evidence.Certificate
	require.NoError(t, json.Unmarshal(rows[len(rows)-1].Payload, &c))
	require.Equal(t, run.JobID, c.Run.ID)
	require.Equal(t, evidence.VerdictClean, c.Verdict, "%v", c.Failures)
	m := w.machine(t, w.id)
	require.Equal(t, lifecycle.MachineInService, m.Status)
	require.Nil(t, m.ActiveRunID)
	require.True(t, m.Conditions.Holds(lifecycle.InCustomerClusterCondition))
	require.NotNil(t, w.sim.Node(w.id))
	require.Empty(t, w.sim.Tokens())
	w.hides(t, run)
}

// hides requires that no bootstrap token stands in a history, in a row of the database or in a log,
// and that no join file is left.
func (w *seedWorld) hides(t *testing.T, run machinesdb.Run) {
	t.Helper()
	var secrets []secretscan.Secret
	for _, token := range w.sim.Minted() {
		_, secret, _ := strings.Cut(token, ".")
		secrets = append(secrets, secretscan.Secret{Kind: "bootstrap token", Value: token}, secretscan.Secret{Kind: "bootstrap token", Value: secret})
	}
	require.NotEmpty(t, secrets)
	job := w.job(t, run.JobID)
	s := secretscan.New(secrets, nil)
	s.Payloads = w.App.Payloads
	require.NoError(t, s.Execution(t.Context(), w.App.Temporal, &commonpb.WorkflowExecution{WorkflowId: job.WorkflowID}))
	conn, err := pgx.Connect(t.Context(), w.Postgres.DSN(w.Database))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	require.NoError(t, s.Database(t.Context(), conn))
	require.NotEmpty(t, w.log.String())
	s.Search("log", []byte(w.log.String()))
	require.Positive(t, s.Counts.Payloads)
	require.Empty(t, s.Findings())
	files, err := filepath.Glob(filepath.Join(w.places.Join.Run, "*", "join.yaml*"))
	require.NoError(t, err)
	require.Empty(t, files)
}

// follow runs `slipway run logs --follow`, and returns what it has written so far and its exit
// status.
func (w *seedWorld) follow(t *testing.T, run machinesdb.Run) (*safeBuffer, <-chan int) {
	t.Helper()
	out, ended := &safeBuffer{}, make(chan int, 1)
	env := map[string]string{"SLIPWAY_SERVER": w.Config.API.PublicURL, "SLIPWAY_TOKEN": w.token}
	config := filepath.Join(t.TempDir(), "config.yaml")
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		ended <- cli.Run(ctx, cli.Env{In: strings.NewReader(""), Out: out, Err: out, ConfigPath: config, Getenv: func(k string) string { return env[k] }},
			[]string{"run", "logs", run.ID, "--follow"})
	}()
	return out, ended
}

const joinWaits = "[kubelet-start] waiting for the TLS bootstrap"

// TestMachineRun_SeedPlan takes a machine by the default plan of a repave from service into a
// cluster: the next boot is set through the BMC, MAAS installs the image, the BMC restarts the
// machine, kubeadm joins, and the node is verified. Its output is read while the join runs.
func TestMachineRun_SeedPlan(t *testing.T) {
	runenv.ProofOnly(t, "kills")
	t.Parallel()
	w := newSeedWorld(t, simulatedCluster(t), true)
	run := w.repaves(t, "r1")
	out, ended := w.follow(t, run)
	require.Eventually(t, func() bool { return strings.Contains(out.String(), joinWaits) }, runenv.Patience(6*time.Minute), 50*time.Millisecond,
		"the output comes while the join runs")
	now, err := machinesdb.GetRun(t.Context(), w.App.Store, run.ID)
	require.NoError(t, err)
	require.Equal(t, []string{string(lifecycle.RunRunning), "join-cluster"}, []string{string(now.Status), now.CurrentStep}, now.Message)
	require.Nil(t, w.sim.Node(w.id), "it has not joined yet")
	w.letJoin(t)
	w.inService(t, run, 2)
	require.Len(t, w.sim.Minted(), 1)
	select {
	case code := <-ended:
		require.Equal(t, cli.ExitOK, code, out.String())
	case <-time.After(runenv.Patience(time.Minute)):
		require.FailNow(t, runenv.Deadline+"the output is still followed")
	}
	require.Contains(t, out.String(), "This node has joined the cluster.")
}

// TestMachineRun_SeedPlanWorkerKilledInEachStep kills the worker in each step of the default plan
// of a repave, after an effect and before its answer. No effect comes twice.
func TestMachineRun_SeedPlanWorkerKilledInEachStep(t *testing.T) {
	runenv.ProofOnly(t, "kills")
	t.Parallel()
	w := newSeedWorld(t, simulatedCluster(t), false)
	w.letJoin(t)
	points := []string{"SetNetboot", "EraseAndRelease", "DeployMachine", "Reboot", "JoinCluster", "VerifyInCluster"}
	boots := w.m.Counters().Boots
	run := w.repaves(t, "r1")
	sup := superviseWorker(t, w.world, map[string]string{run.JobID: strings.Join(points, " ")}, "--places", w.file)
	w.inService(t, run, 2)
	for _, point := range points {
		_, err := os.Stat(filepath.Join(sup.dir, "died-"+run.JobID+"-"+point))
		require.NoError(t, err, "the worker never died in %s", point)
	}
	require.Len(t, w.sim.Minted(), 1, "it joins once")
	t.Logf("boots: %d", w.m.Counters().Boots-boots)
	chunks, err := machinesdb.LogsAfter(t.Context(), w.App.Store, run.ID, 0, 1000)
	require.NoError(t, err)
	var said strings.Builder
	for _, c := range chunks {
		_, _ = said.Write(c.Data)
	}
	require.Equal(t, 1, strings.Count(said.String(), joinWaits), "the output is stored once")
}

// TestMachineRun_SeedPlanRealServer takes a machine into the cluster of a real API server, whose
// controllers sign cluster-info, issue the certificate and open the node for pods.
func TestMachineRun_SeedPlanRealServer(t *testing.T) {
	runenv.ProofOnly(t, "kube")
	t.Parallel()
	c := realCluster(t)
	w := newSeedWorld(t, c, true)
	w.heartbeats(t, c)
	w.letJoin(t)
	w.inService(t, w.repaves(t, "r1"), 2)
	require.Len(t, c.Minted(), 1)
}

// TestMachineRun_SeedPlanCancelInTheMiddle cancels the default plan of a repave while kubeadm
// joins: the join is ended and its token is gone before the run is CANCELED. The run that takes its
// place joins.
func TestMachineRun_SeedPlanCancelInTheMiddle(t *testing.T) {
	runenv.ProofOnly(t, "kills")
	t.Parallel()
	w := newSeedWorld(t, simulatedCluster(t), true)
	run := w.repaves(t, "r1")
	out, ended := w.follow(t, run)
	require.Eventually(t, func() bool { return strings.Contains(out.String(), joinWaits) }, runenv.Patience(6*time.Minute), 50*time.Millisecond)
	require.Equal(t, http.StatusOK, w.act(t, "ops", run.JobID, lifecycle.ActionCancel, "").code)
	job := w.ends(t, run.JobID, 3*time.Minute)
	require.Equal(t, lifecycle.JobCancelled, job.Status, job.Message)
	got, err := machinesdb.GetRun(t.Context(), w.App.Store, run.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.RunCanceled, got.Status)
	require.Equal(t, lifecycle.MachineMaintenance, w.machine(t, w.id).Status)
	require.Nil(t, w.sim.Node(w.id))
	require.Empty(t, w.sim.Tokens())
	require.NoFileExists(t, filepath.Join(w.places.Join.Kubernetes, "bootstrap-kubelet.conf"))
	w.hides(t, run)
	require.Equal(t, cli.ExitOK, <-ended, "the output ends with the run")
	w.activeAgain(t, w.nodeID)
	w.letJoin(t)
	w.inService(t, w.repaves(t, "r2"), 3)
}
