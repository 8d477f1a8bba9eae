package tenantaccess_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/activities/tenantaccess"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/agent/taskhandlers"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers/secrets"
	sshrunner "github.com/slipway-cloud/slipway/providers/ssh"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const allocationID = "alc_5"

var user = lifecycle.TenantAccount(allocationID)

// fixture is a simulated node whose agent takes tasks from a real store, and the activities.
type fixture struct {
	*testing.T
	store *db.Store
	node  *simnode.Node
	job   contract.JobRef
	env   *testsuite.TestActivityEnvironment
	acts  *tenantaccess.Activities
	// carriesOut says whether the agent does a task that it answers OK to.
	carriesOut atomic.Pointer[func(*spec.SetKeysArgs) bool]
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, store: dbtest.Store(t)}
	sec, err := secrets.Open(t.Context(), f.store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	private, public, err := cloudinit.NewHostKey()
	require.NoError(t, err)
	machine := simhw.NewMachine(t.Context(), simhw.NewClock(5000), simhw.GPUServer("Dell", 7))
	f.node, err = simnode.New(simnode.Options{Machine: machine, Dir: t.TempDir(), AgentBinary: "/bin/false"})
	require.NoError(t, err)
	t.Cleanup(f.node.Close)
	config, err := json.Marshal(map[string]any{"ssh_keys": map[string]string{"ed25519_private": private.Reveal()}})
	require.NoError(t, err)
	machine.Install(simhw.OS{System: "ubuntu", Series: "jammy", Hostname: "gpu-07", Disk: "sda", UserData: append([]byte("#cloud-config\n"), config...)})
	machine.SetBootOverride(simhw.Override{Target: "Hdd", Enabled: "Continuous"})
	machine.PowerOn("test")
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", f.node.SSHAddress())
		return err == nil && c.Close() == nil
	}, runenv.Patience(30*time.Second), 5*time.Millisecond)

	row := dbtest.Node(t, f.store, dbtest.Active())
	job := dbtest.Job(t, f.store, dbtest.On(row.ID), dbtest.JobStatus(lifecycle.JobRunning))
	f.job = contract.JobRef{JobID: job.ID, NodeID: row.ID, SiteID: row.SiteID, Stage: "prove_login"}
	require.NoError(t, f.store.Tx(t.Context(), func(tx *db.Tx) error {
		return errors.Join(tx.SetNodeHostKey(t.Context(), row.ID, strings.TrimSpace(public)), tx.SetNodeAddresses(t.Context(), row.ID, db.NodeAddresses{Source: lifecycle.AddressesOfMAAS, IPs: []string{"127.0.0.1"}, SSH: f.node.SSHAddress()}))
	}))
	f.acts = &tenantaccess.Activities{Store: f.store, Secrets: sec, SSH: sshrunner.New()}
	var suite testsuite.WorkflowTestSuite
	f.env = suite.NewTestActivityEnvironment()
	f.env.SetTestTimeout(runenv.Patience(time.Minute))
	f.env.RegisterActivity(f.acts)
	always := func(*spec.SetKeysArgs) bool { return true }
	f.carriesOut.Store(&always)
	f.enrol()
	f.runAgent()
	return f
}

// enrol gives the node's agent its first identity.
func (f *fixture) enrol() {
	f.Helper()
	hash := sha256.Sum256([]byte(f.job.NodeID))
	require.NoError(f, f.store.Tx(f.Context(), func(tx *db.Tx) error {
		if err := tx.IssueEnrollmentToken(f.Context(), f.job.NodeID, "", hash[:], time.Now().Add(time.Hour)); err != nil {
			return err
		}
		if _, _, err := tx.RedeemEnrollmentToken(f.Context(), hash[:], hash[:], 1); err != nil {
			return err
		}
		return tx.SaveAgentIdentity(f.Context(), db.AgentCertificate{NodeID: f.job.NodeID, Generation: 1, Serial: f.job.NodeID, KeyHash: hash[:], CertPEM: "none",
			NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)})
	}))
}

func (f *fixture) handlers() task.Registry {
	tools := toolrunner.ForTasks(f.node.Root(), filepath.Join(filepath.Dir(f.node.Root()), "tools")+":/usr/bin:/bin")
	tools.Path = tools.Tools
	return taskhandlers.Host{Root: f.node.Root(), Tool: tools.Run, HasTool: tools.Has, StateDir: "/var/lib/slipway-agent"}.Handlers(taskhandlers.Uninstall{})
}

// runAgent does tasks on the node's files until the test ends.
func (f *fixture) runAgent() {
	ctx, cancel := context.WithCancel(f.Context())
	done := make(chan struct{})
	f.Cleanup(func() { cancel(); <-done })
	handlers := f.handlers()
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			got, err := f.store.ClaimTask(ctx, db.TaskClaim{NodeID: f.job.NodeID, BootID: "boot", Generation: 1, Lease: time.Minute})
			if err != nil || got.Task == nil {
				<-time.After(5 * time.Millisecond)
				continue
			}
			t := *got.Task
			args, err := t.Kind.CheckArgs(t.SchemaVersion, t.Args)
			result := lifecycle.TaskResult{OK: true}
			if keys, ok := args.(*spec.SetKeysArgs); err == nil && (!ok || (*f.carriesOut.Load())(keys)) {
				result = handlers[t.Kind].Run(ctx, task.Request{Args: args}, task.NewRecorder(nil, nil, nil))
			}
			_, _ = f.store.FinishTask(ctx, db.TaskFence{NodeID: t.NodeID, TaskID: t.ID, LeaseID: t.LeaseID, Attempt: t.Attempt}, result)
		}
	}()
}

func (f *fixture) do(kind lifecycle.TaskKind, args any) {
	f.Helper()
	rec := task.NewRecorder(nil, nil, nil)
	res := f.handlers()[kind].Run(f.Context(), task.Request{Args: args}, rec)
	require.True(f, res.OK, "%s %+v", res.Message, rec.Steps())
}

func (f *fixture) createAccount(root bool) {
	f.Helper()
	f.do(lifecycle.TaskKindCreateUser, &spec.CreateUserArgs{AllocationID: allocationID, User: user, Root: root})
}

func (f *fixture) setKeys(keys ...string) {
	f.Helper()
	f.do(lifecycle.TaskKindSetKeys, &spec.SetKeysArgs{AllocationID: allocationID, User: user, Keys: keys})
}

func (f *fixture) account() tenantaccess.Account {
	return tenantaccess.Account{AllocationID: allocationID, Site: spec.SiteSpec{Simulated: true}}
}

func (f *fixture) proveLogin(root bool) (out tenantaccess.LoginProof, err error) {
	f.Helper()
	v, err := f.env.ExecuteActivity(f.acts.ProveLogin, tenantaccess.ProveLoginIn{JobRef: f.job, Account: f.account(), Root: root, Poll: spec.Duration(5 * time.Millisecond)})
	if err == nil {
		err = v.Get(&out)
	}
	return out, err
}

func (f *fixture) fails(err error, class lifecycle.FailureClass, says string) {
	f.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(f, err, &app)
	require.Equal(f, string(class), app.Type(), app.Message())
	require.Contains(f, app.Message(), says)
}

func (f *fixture) authorized() string {
	f.Helper()
	raw, err := os.ReadFile(filepath.Join(f.node.Root(), "home", user, ".ssh/authorized_keys"))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	require.NoError(f, err)
	return string(raw)
}

func newKey(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func TestProveLogin(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.createAccount(true)
	prints := map[string]bool{}
	for range 2 { // a second execution, as after a lost worker, uses another key
		out, err := f.proveLogin(true)
		require.NoError(t, err)
		require.Equal(t, 1001, out.UID)
		require.Equal(t, user, out.Connection.User)
		require.Equal(t, f.node.SSHAddress(), out.Connection.Address)
		require.True(t, strings.HasPrefix(out.Connection.HostKeySHA256, "SHA256:"))
		require.Contains(t, out.Note, "is refused again")
		prints[out.Fingerprint] = true
		require.Empty(t, f.authorized(), "the account has no key afterwards")
	}
	require.Len(t, prints, 2)
	tasks, err := f.store.ListTasks(t.Context(), db.TaskFilter{NodeID: f.job.NodeID}, "", 100)
	require.NoError(t, err)
	require.Len(t, tasks, 4)
	for _, one := range tasks {
		require.Equal(t, lifecycle.TaskSucceeded, one.Status)
		require.NotContains(t, string(one.Args), "PRIVATE", "the private half is nowhere")
	}
	logins := dbtest.Logins(t, f.store, "job", f.job.JobID)
	require.Len(t, logins, 2, "started and accepted, once each")

	_, err = f.proveLogin(false)
	f.fails(err, lifecycle.FailNodeTask, "becomes root and must not")
	require.Empty(t, f.authorized(), "the key goes also when the proof fails")
	f.createAccount(false)
	_, err = f.proveLogin(true)
	f.fails(err, lifecycle.FailNodeTask, "cannot become root")
	_, err = f.proveLogin(false)
	require.NoError(t, err)
}

// TestProveLogin_LyingAgent: the agent answers OK. Only what the node shows from outside counts.
func TestProveLogin_LyingAgent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.createAccount(true)
	never := func(*spec.SetKeysArgs) bool { return false }
	f.carriesOut.Store(&never)
	_, err := f.proveLogin(true)
	f.fails(err, lifecycle.FailSSHSeed, "rejected the login")
	installs := func(a *spec.SetKeysArgs) bool { return len(a.Keys) > 0 }
	f.carriesOut.Store(&installs)
	_, err = f.proveLogin(true)
	f.fails(err, lifecycle.FailNodeTask, "still accepts it")
	always := func(*spec.SetKeysArgs) bool { return true }
	f.carriesOut.Store(&always)
	_, err = f.proveLogin(true)
	require.NoError(t, err, "the next try takes the key of the last away")
	require.Empty(t, f.authorized())
	fails := func(a *spec.SetKeysArgs) bool { // the agent cannot remove it, and the login showed what it must not
		require.NoError(t, os.RemoveAll(filepath.Join(f.node.Root(), "etc/sudoers.d", user)))
		if len(a.Keys) == 0 {
			ssh := filepath.Join(f.node.Root(), "home", user, ".ssh")
			require.NoError(t, errors.Join(os.Rename(ssh, ssh+".moved"), os.Symlink(ssh+".moved", ssh)))
		}
		return true
	}
	f.carriesOut.Store(&fails)
	_, err = f.proveLogin(true)
	f.fails(err, lifecycle.FailNodeTask, "cannot become root by sudo and should; and its one-time key could not be removed")
	_, err = f.env.ExecuteActivity(f.acts.ProveLogin, tenantaccess.ProveLoginIn{JobRef: f.job, Poll: spec.Duration(time.Millisecond)})
	f.fails(err, lifecycle.FailInternal, "no allocation")
}

// TestProveLogin_FailedTask: an agent that cannot set keys is the failure, and no login is tried.
func TestProveLogin_FailedTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t) // without an account
	_, err := f.proveLogin(true)
	f.fails(err, lifecycle.FailNodeTask, "there is no account")
	require.Empty(t, dbtest.Logins(t, f.store, "job", f.job.JobID))
}

// TestProveLogin_WithdrawsOlderTasks: a set of keys that a lost execution asked for does not come
// after this one.
func TestProveLogin_WithdrawsOlderTasks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.createAccount(true)
	hold, release := make(chan struct{}), make(chan struct{})
	first := atomic.Bool{}
	slow := func(*spec.SetKeysArgs) bool {
		if first.CompareAndSwap(false, true) {
			close(hold)
			<-release
		}
		return true
	}
	f.carriesOut.Store(&slow)
	ask := func(key string) db.NodeTask {
		args, err := json.Marshal(spec.SetKeysArgs{AllocationID: allocationID, User: user, Keys: []string{newKey(t)}})
		require.NoError(t, err)
		var got db.NodeTask
		require.NoError(t, f.store.Tx(t.Context(), func(tx *db.Tx) error {
			got, _, err = tx.EnqueueTask(t.Context(), db.NewTask{NodeID: f.job.NodeID, JobID: f.job.JobID, Kind: lifecycle.TaskKindSetKeys, Args: args, Key: key,
				Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: f.job.JobID}})
			return err
		}))
		return got
	}
	running := ask("running")
	<-hold
	waiting := ask("waiting")
	ended := make(chan error, 1)
	go func() { _, err := f.proveLogin(true); ended <- err }()
	status := func(id string) lifecycle.TaskStatus {
		got, err := f.store.Task(t.Context(), id)
		require.NoError(t, err)
		return got.Status
	}
	require.Eventually(t, func() bool { return status(waiting.ID) == lifecycle.TaskExpired }, runenv.Patience(20*time.Second), 5*time.Millisecond)
	tasks, err := f.store.ListTasks(t.Context(), db.TaskFilter{NodeID: f.job.NodeID}, "", 100)
	require.NoError(t, err)
	require.Len(t, tasks, 2, "it waits for the one that the agent has begun")
	close(release)
	require.NoError(t, <-ended)
	require.Equal(t, lifecycle.TaskSucceeded, status(running.ID))
	require.Empty(t, f.authorized())
}

func (f *fixture) offer(accepted bool, change func(*tenantaccess.OfferKeysIn), keys ...string) (out tenantaccess.OfferedKeys, err error) {
	f.Helper()
	in := tenantaccess.OfferKeysIn{JobRef: f.job, Account: f.account(), Keys: keys, Accepted: accepted, Poll: spec.Duration(5 * time.Millisecond)}
	if change != nil {
		change(&in)
	}
	v, err := f.env.ExecuteActivity(f.acts.OfferKeys, in)
	if err == nil {
		err = v.Get(&out)
	}
	return out, err
}

func TestOfferKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first, second := newKey(t), newKey(t)
	out, err := f.offer(false, nil, first, second)
	require.NoError(t, err, "no account refuses all")
	require.True(t, out.Done)
	f.createAccount(true)
	f.setKeys(first)
	out, err = f.offer(true, nil, first)
	require.NoError(t, err)
	require.Len(t, out.Keys, 1)
	require.True(t, out.Keys[0].Accepted)
	require.Equal(t, user, out.Connection.User)

	_, err = f.offer(true, nil, first, second)
	f.fails(err, lifecycle.FailNodeTask, "refuses the key SHA256:")
	_, err = f.offer(false, nil, first, second)
	f.fails(err, lifecycle.FailNodeTask, "accepts the key SHA256:")
	out, err = f.offer(false, func(in *tenantaccess.OfferKeysIn) { in.ObserveOnly = true }, first, second)
	require.NoError(t, err)
	require.False(t, out.Done)
	require.Equal(t, []bool{true, false}, []bool{out.Keys[0].Accepted, out.Keys[1].Accepted})

	// It waits for what an agent is about to do.
	ended := make(chan error, 1)
	go func() {
		_, err := f.offer(false, func(in *tenantaccess.OfferKeysIn) { in.Until = time.Now().Add(runenv.Patience(time.Minute)) }, first)
		ended <- err
	}()
	f.do(lifecycle.TaskKindRevokeUser, &spec.RevokeUserArgs{AllocationID: allocationID, User: user, RemoveHome: true})
	require.NoError(t, <-ended)

	_, err = f.offer(false, nil)
	f.fails(err, lifecycle.FailInternal, "0 keys")
	_, err = f.offer(false, nil, slices.Repeat([]string{first}, 21)...)
	f.fails(err, lifecycle.FailInternal, "21 keys")
	_, err = f.offer(false, func(in *tenantaccess.OfferKeysIn) { in.Site.Simulated = false; in.NodeID = f.other("").ID }, first)
	f.fails(err, lifecycle.FailStateDisagreement, "no SSH host key")
	_, err = f.offer(false, func(in *tenantaccess.OfferKeysIn) { in.NodeID = f.other(newKey(t)).ID }, first)
	f.fails(err, lifecycle.FailStateDisagreement, "host key")

	// A node that does not answer has refused nothing.
	f.node.Close()
	_, err = f.offer(false, nil, first)
	f.fails(err, lifecycle.FailSSHSeed, "cannot connect")
}

// other is a record of another node at the same address, with this host key.
func (f *fixture) other(hostKey string) db.Node {
	f.Helper()
	row := dbtest.Node(f, f.store, dbtest.Active())
	require.NoError(f, f.store.Tx(f.Context(), func(tx *db.Tx) error {
		err := tx.SetNodeAddresses(f.Context(), row.ID, db.NodeAddresses{Source: lifecycle.AddressesOfMAAS, IPs: []string{"127.0.0.1"}, SSH: f.node.SSHAddress()})
		if hostKey != "" {
			err = errors.Join(err, tx.SetNodeHostKey(f.Context(), row.ID, hostKey))
		}
		return err
	}))
	return row
}

// TestOfferKeys_RefusedAddress: the record of the node names an address that is not the node's.
func TestOfferKeys_RefusedAddress(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.NoError(t, f.store.Tx(t.Context(), func(tx *db.Tx) error {
		return tx.SetNodeAddresses(t.Context(), f.job.NodeID, db.NodeAddresses{Source: lifecycle.AddressesOfMAAS, IPs: nil, SSH: "169.254.169.254:22"})
	}))
	_, err := f.offer(false, nil, newKey(t))
	f.fails(err, lifecycle.FailConfiguration, "metadata")
	require.Equal(t, []string{"refused"}, outcomes(dbtest.Logins(t, f.store, "job", f.job.JobID)))
}

func outcomes(rows [][]string) []string {
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprint(r[len(r)-1]))
	}
	return out
}
