package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	intent "github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/kube"
	"github.com/slipway-cloud/slipway/providers/ssh"
	kubesim "github.com/slipway-cloud/slipway/sim/kube"
	kubeadmsim "github.com/slipway-cloud/slipway/sim/kube/kubeadm"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/secretscan"
	"github.com/slipway-cloud/slipway/test/stack"
)

// clusterHost is a real SSH server with a stand-in of kubeadm, a simulated cluster, and a stack.
type clusterHost struct {
	*commandHost
	sim  *kubesim.Server
	log  *lockedBuffer
	root string
	run  string
}

// newClusterHost starts all of it. The worker is one of the test's own process: it has the places of the
// machine, which no setting names.
func newClusterHost(t *testing.T) *clusterHost {
	t.Helper()
	manifest, err := os.ReadFile("../../deploy/kubernetes/slipway.yaml")
	require.NoError(t, err)
	sim, err := kubesim.New(kubesim.Options{Manifest: manifest, Heartbeat: 200 * time.Millisecond, TokenCache: 10 * time.Second})
	require.NoError(t, err)
	_, stop, err := sim.Start(t.Context(), "127.0.0.1:0", "")
	require.NoError(t, err)
	t.Cleanup(stop)
	log := &lockedBuffer{}
	h := &clusterHost{commandHost: newCommandHostWith(t, stack.Options{NoWorker: true, DatabaseEnv: databaseVar, Log: log}), sim: sim, log: log}
	h.root = filepath.Join(h.dir, "root")
	h.run, err = os.MkdirTemp("/dev/shm", "slipway-e2e-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(h.run) })
	write := func(name, text string) string {
		path := filepath.Join(h.root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o700)) //nolint:gosec // one is a program
		return path
	}
	bin := filepath.Join(t.TempDir(), "kubeadm")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../sim/kube/kubeadm/cmd").CombinedOutput()
	require.NoError(t, err, string(out))
	boot := write("proc/sys/kernel/random/boot_id", "11111111-aaaa\n")
	paths := ssh.JoinPaths{
		Run: h.run, Kubernetes: filepath.Join(h.root, "etc/kubernetes"), Mark: filepath.Join(h.root, "joined"),
		UUIDFile: write("sys/class/dmi/id/product_uuid", "4c4c4544-0042-3510-8054-b7c04f503033\n"),
		Kubeadm:  write("usr/bin/kubeadm", fmt.Sprintf("#!/bin/sh\nexport %s='%s'\nexec '%s' \"$@\"\n", kubeadmsim.RootEnv, h.root, bin)),
	}
	h.App.UseMachines(providers.MachineAdapters{"ssh": ssh.New(ssh.WithStateDir(h.server.StateDir), ssh.WithBootIDFile(boot), ssh.WithJoinPaths(paths)).Adapter()})
	h.App.UseClusters(kube.Provider{})
	const ref = "clusters/a"
	_, err = h.App.Store.SetSecretUse(t.Context(), ref, spec.SecretUse{Kind: spec.SecretKubeconfig, Networks: []string{"127.0.0.0/8"}})
	require.NoError(t, err)
	_, err = h.App.Secrets.Put(t.Context(), ref, providers.NewSecret(sim.Kubeconfig()))
	require.NoError(t, err)
	_, err = clusterdb.Create(t.Context(), h.App.Store, "a", "", spec.ClusterSpec{APIURL: sim.URL(), CAPins: []string{sim.CAPin()}, KubeconfigRef: ref, KubernetesVersion: "v1.34.1"})
	require.NoError(t, err)
	return h
}

// TestMachineRun_JoinsACluster takes a machine into a cluster by the default steps join and verify: relay,
// workflow, a real SSH server, a stand-in of kubeadm and a simulated cluster. The machine is IN_SERVICE then,
// and the token is in no history.
func TestMachineRun_JoinsACluster(t *testing.T) {
	t.Parallel()
	h := newClusterHost(t)
	var run machinesdb.Run
	h.tx(t, func(ctx context.Context, tx *db.Tx) error {
		s := spec.MachineSpec{Provider: "ssh", SSHEndpoint: h.server.Address, TargetClusterRef: "a"}
		if _, err := intent.Register(ctx, tx, intent.Registration{ID: "m-1", Spec: s}, admin); err != nil {
			return err
		}
		if _, err := intent.SetAccess(ctx, tx, "m-1", intent.Access{SiteID: h.site.ID, HostKey: strings.TrimSpace(h.server.HostKey)}, admin); err != nil {
			return err
		}
		plan, err := intent.CreatePlan(ctx, tx, runplan.Plan{Steps: []runplan.Step{{Name: "join", Join: &runplan.KubeadmJoin{}}, {Name: "verify", Verify: &runplan.VerifyInCluster{}}}}, false, admin)
		if err != nil {
			return err
		}
		run, err = intent.StartRun(ctx, tx, intent.Start{
			RequestID: "r", MachineID: "m-1", Type: lifecycle.RunTypeRepave, PlanID: plan.ID, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
		}, admin)
		return err
	})
	h.StartRole("worker", func(ctx context.Context) error { return h.App.RunWorker(ctx) })
	job := h.ends(t, run.JobID, 3*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, job.Status, "%s: %s", job.FailedStage, job.Message)
	m, err := machinesdb.Get(t.Context(), h.App.Store, "m-1")
	require.NoError(t, err)
	require.Equal(t, lifecycle.MachineInService, m.Status)
	require.True(t, m.Conditions.Holds(lifecycle.InCustomerClusterCondition))
	require.NotNil(t, h.sim.Node("m-1"))
	require.Empty(t, h.sim.Tokens())
	require.Len(t, h.sim.Minted(), 1)
	h.hides(t, run, h.sim.Minted()[0])
	require.NoError(t, h.sim.Cordon("m-1", true))
	require.Eventually(t, func() bool { // the pass over clusters runs in the worker
		m, err := machinesdb.Get(t.Context(), h.App.Store, "m-1")
		return err == nil && m.Conditions.Holds(lifecycle.DrainedCondition)
	}, runenv.Patience(2*time.Minute), 200*time.Millisecond)
}

// hides requires that a token stands in no history, in no row of the database and in no log.
func (h *clusterHost) hides(t *testing.T, run machinesdb.Run, token string) {
	t.Helper()
	_, secret, _ := strings.Cut(token, ".")
	job := h.job(t, run.JobID)
	var s *secretscan.Searcher
	require.Eventually(t, func() bool { // Temporal lists a workflow late
		s = secretscan.New([]secretscan.Secret{{Kind: "bootstrap token", Value: token}, {Kind: "bootstrap token", Value: secret}}, nil)
		s.Payloads = h.App.Payloads
		require.NoError(t, s.Histories(t.Context(), h.App.Temporal, h.Config.Temporal.Namespace))
		return len(s.Searched.Missing([]secretscan.Run{{Workflow: job.WorkflowID}})) == 0
	}, runenv.Patience(time.Minute), 200*time.Millisecond)
	conn, err := pgx.Connect(t.Context(), h.Config.Database.URL)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	require.NoError(t, s.Database(t.Context(), conn))
	s.Search("log", h.log.Bytes())
	require.NotEmpty(t, h.log.Bytes())
	require.Positive(t, s.Counts.Payloads)
	require.Empty(t, s.Findings())
}

// lockedBuffer is a log that several write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// Bytes returns what was written.
func (b *lockedBuffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.buf.Bytes())
}
