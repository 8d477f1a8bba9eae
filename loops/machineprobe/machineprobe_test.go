package machineprobe_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/loops/machineprobe"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/redfish"
	"github.com/slipway-cloud/slipway/providers/fake"
	"github.com/slipway-cloud/slipway/providers/secrets"
	sshprovider "github.com/slipway-cloud/slipway/providers/ssh"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/sshd"
)

var admin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "test"}

// world is a machine without a node at a site whose networks are loopback ones.
type world struct {
	t      *testing.T
	store  *db.Store
	passes *machineprobe.Passes
	site   string
	key    string // a pin that no server has
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, store: dbtest.Store(t)}
	vault, err := secrets.Open(t.Context(), w.store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vault.Close()) })
	w.site = dbtest.Site(t, w.store, func(p *dbtest.Params) { p.Site.NodeNetworks = []string{"127.0.0.0/8"} }).ID
	_, signer := sshd.NewKey(t)
	w.key = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	w.passes = &machineprobe.Passes{
		Store: w.store, Secrets: vault, Log: slog.New(slog.DiscardHandler), Every: time.Hour, Limit: runenv.Patience(10 * time.Second),
		Adapters: providers.MachineAdapters{"ssh": sshprovider.New().Adapter(), "fake": fake.New().Adapter()},
		BMCs:     map[string]providers.BMCOpener{"redfish": redfish.Opener{}},
	}
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

// put registers the machine m-1, or changes it, and says how it is reached.
func (w *world) put(s spec.MachineSpec, access machines.Access) {
	w.t.Helper()
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		if _, err := machines.Register(ctx, tx, machines.Registration{ID: "m-1", Spec: s}, admin); err != nil {
			return err
		}
		_, err := machines.SetAccess(ctx, tx, "m-1", access, admin)
		return err
	})
}

// due has the probe of every machine due.
func (w *world) due() { w.t.Helper(); w.exec("UPDATE machines SET next_probe_at = now()") }

func (w *world) machine() machinesdb.Machine {
	w.t.Helper()
	m, err := machinesdb.Get(w.t.Context(), w.store, "m-1")
	require.NoError(w.t, err)
	return m
}

// state returns the reasons of Reachable and BMCReachable, with a ! where the condition does not
// hold.
func (w *world) state() [2]string {
	w.t.Helper()
	m := w.machine()
	var out [2]string
	for i, c := range []lifecycle.ConditionType{lifecycle.ReachableCondition, lifecycle.BMCReachableCondition} {
		found, seen := m.Conditions.Find(c)
		switch {
		case !seen:
			out[i] = "-"
		case found.Status:
			out[i] = found.Reason
		default:
			out[i] = "!" + found.Reason
		}
	}
	return out
}

// silentPeer is an address that accepts connections and says nothing.
type silentPeer struct {
	address string
	count   atomic.Int32
	conns   chan net.Conn
}

func newSilentPeer(t *testing.T) *silentPeer {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &silentPeer{address: l.Addr().String(), conns: make(chan net.Conn, 100)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			m.conns <- c
			m.count.Add(1)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); m.hangUp() })
	return m
}

// hangUp ends the connections.
func (m *silentPeer) hangUp() {
	for len(m.conns) > 0 {
		_ = (<-m.conns).Close()
	}
}

// asked waits for the first connection.
func (m *silentPeer) asked(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return m.count.Load() == 1 }, runenv.Patience(10*time.Second), 5*time.Millisecond)
}

func startBMC(t *testing.T) string {
	t.Helper()
	hw, err := simhw.NewFleet(t.Context(), simhw.NewClock(1)).Add(simhw.GPUServer("Dell", 1))
	require.NoError(t, err)
	bmc, err := redfishsim.New(redfishsim.Options{Machine: hw, TLS: true, Seed: 3})
	require.NoError(t, err)
	url, stop, err := bmc.Start(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)
	return url
}

// failing is a secret store that is down.
type failing struct{ providers.Secrets }

// AddressRule implements providers.Secrets.
func (failing) AddressRule(context.Context, providers.SecretRef, providers.Use) (spec.AddressRule, error) {
	return spec.AddressRule{}, &providers.Error{Kind: providers.KindUnavailable, Op: "test", Message: "the store is down"}
}

// refusing is a dialer that this process has no file left for.
type refusing struct{ providers.HostProbe }

// VerifyHost implements providers.HostProbe.
func (refusing) VerifyHost(context.Context, providers.SSHTarget) error {
	return &providers.Error{Kind: providers.KindUnreachable, Op: "test", Err: fmt.Errorf("dial: %w", syscall.EMFILE)}
}

// TestLook_Conditions follows a machine with a real SSH server and a simulated BMC.
func TestLook_Conditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ca := sshd.NewKey(t)
	server, bmc := sshd.Start(t, ca), startBMC(t)
	right := machines.Access{SiteID: w.site, HostKey: strings.TrimSpace(server.HostKey)}
	reached := spec.MachineSpec{Provider: "ssh", SSHEndpoint: server.Address, BMCEndpoint: bmc}
	closed, silent := sshd.FreeAddress(t), newSilentPeer(t).address
	outside := dbtest.Site(t, w.store, func(p *dbtest.Params) {
		p.Site.NodeNetworks, p.Site.BMCNetworks = []string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}
	}).ID
	look := func(name string, s spec.MachineSpec, access machines.Access, known bool, want ...string) {
		t.Helper()
		w.put(s, access)
		w.due()
		if err := w.passes.Look(t.Context()); known {
			require.NoError(t, err, name)
		} else {
			require.Error(t, err, name)
		}
		require.Equal(t, [2]string(want), w.state(), name)
	}

	look("nothing to ask", spec.MachineSpec{Provider: "ssh"}, right, true, "-", "-")
	look("no pin", reached, machines.Access{SiteID: w.site}, true, "-", "BMCAnswers")
	look("both answer", reached, right, true, "SSHAnswers", "BMCAnswers")
	first := w.machine()
	look("again", reached, right, true, "SSHAnswers", "BMCAnswers")
	require.Equal(t, first.Conditions, w.machine().Conditions, "an equal answer moves no time")
	log, err := os.ReadFile(server.LogFile)
	require.NoError(t, err)
	require.Contains(t, string(log), "SSH2_MSG_KEXINIT received")
	require.NotContains(t, string(log), "userauth-request", "nobody has tried to log in")

	w.passes.Secrets = failing{w.passes.Secrets}
	look("the secret store is down", reached, right, false, "Unknown", "Unknown")
	w.passes.Secrets = w.passes.Secrets.(failing).Secrets
	adapter := w.passes.Adapters["ssh"]
	w.passes.Adapters["ssh"] = providers.MachineAdapter{HostProbe: refusing{}}
	look("no file is left", reached, right, false, "Unknown", "BMCAnswers")
	w.passes.Adapters["ssh"] = adapter
	look("outside of the networks", reached, machines.Access{SiteID: outside, HostKey: right.HostKey}, false, "Unknown", "Unknown")
	look("no site", reached, machines.Access{HostKey: right.HostKey}, true, "Unknown", "Unknown")

	look("another host key", reached, machines.Access{SiteID: w.site, HostKey: w.key}, true, "!HostKeyChanged", "BMCAnswers")
	look("the pinned one again", reached, right, true, "SSHAnswers", "BMCAnswers")
	look("nobody listens", spec.MachineSpec{Provider: "ssh", SSHEndpoint: closed, BMCEndpoint: closed}, right, true, "!SSHSilent", "!BMCSilent")
	look("it answers again", reached, right, true, "SSHAnswers", "BMCAnswers")
	w.passes.Limit = 500 * time.Millisecond
	look("it says nothing", spec.MachineSpec{Provider: "ssh", SSHEndpoint: silent, BMCEndpoint: silent}, right, true, "!SSHSilent", "!BMCSilent")
	require.True(t, w.machine().Conditions[0].LastTransition.After(first.Conditions[0].LastTransition))
	look("removed endpoints", spec.MachineSpec{Provider: "ssh"}, right, true, "!Unknown", "!Unknown")
}

// TestLook_LinkedMeanwhile links the machine to a node while its probes wait.
func TestLook_LinkedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, change := range map[string]func(*testing.T){
		"linked": func(t *testing.T) { w.put(w.machine().Spec, machines.Access{NodeID: dbtest.Node(t, w.store).ID}) },
		"access set": func(*testing.T) {
			w.put(w.machine().Spec, machines.Access{SiteID: w.site, HostKey: w.machine().HostKey})
		},
		"not reached":  func(*testing.T) { w.put(spec.MachineSpec{Provider: "ssh"}, machines.Access{SiteID: w.site}) },
		"claimed late": func(*testing.T) { w.due() },
	} {
		t.Run(name, func(t *testing.T) {
			peer := newSilentPeer(t)
			w.put(spec.MachineSpec{Provider: "ssh", SSHEndpoint: peer.address}, machines.Access{SiteID: w.site, HostKey: w.key})
			w.due()
			ended := make(chan error, 1)
			go func() { ended <- w.passes.Look(t.Context()) }()
			peer.asked(t)
			change(t)
			peer.hangUp()
			require.NoError(t, <-ended)
			require.Equal(t, [2]string{"-", "-"}, w.state(), "what was found is of another time")
		})
	}
}

// TestLook_ProbedOnce has two workers look at the same time, again before the probe is due, and
// after the clock of the database was set back.
func TestLook_ProbedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	peer := newSilentPeer(t)
	w.passes.Limit = 300 * time.Millisecond
	w.put(spec.MachineSpec{Provider: "ssh", SSHEndpoint: peer.address}, machines.Access{SiteID: w.site, HostKey: w.key})
	w.due()
	other := *w.passes
	var both sync.WaitGroup
	for _, p := range []*machineprobe.Passes{w.passes, &other} {
		both.Go(func() { require.NoError(t, p.Look(t.Context())) })
	}
	both.Wait()
	require.Equal(t, int32(1), peer.count.Load())
	require.Equal(t, "!SSHSilent", w.state()[0])
	require.NoError(t, w.passes.Look(t.Context()))
	require.Equal(t, int32(1), peer.count.Load(), "it is not due")

	for range 3 { // an operator who changes it again and again has it probed no more often
		w.put(spec.MachineSpec{Provider: "ssh", SSHEndpoint: peer.address, Rack: fmt.Sprint(time.Now().UnixNano())}, machines.Access{SiteID: w.site, HostKey: w.key})
		require.NoError(t, w.passes.Look(t.Context()))
	}
	require.Equal(t, int32(1), peer.count.Load())
	w.exec("UPDATE machines SET next_probe_at = next_probe_at - interval '10 seconds'")
	require.NoError(t, w.passes.Look(t.Context()))
	require.Equal(t, int32(2), peer.count.Load(), "it was changed 10 s ago")
	w.exec("UPDATE machines SET next_probe_at = now() + interval '2 days'")
	require.NoError(t, w.passes.Look(t.Context()))
	require.Equal(t, int32(3), peer.count.Load(), "no worker claims it for two days")
}

// TestLook_NotProbed has machines to which nobody may connect.
func TestLook_NotProbed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	peer := newSilentPeer(t)
	access := machines.Access{SiteID: w.site, HostKey: w.key}
	for _, provider := range []string{"fake", "unknown"} {
		w.put(spec.MachineSpec{Provider: provider, SSHEndpoint: peer.address, BMCEndpoint: peer.address}, access)
		w.due()
		require.NoError(t, w.passes.Look(t.Context()))
	}
	w.put(spec.MachineSpec{Provider: "ssh", SSHEndpoint: peer.address, BMCEndpoint: peer.address}, machines.Access{NodeID: dbtest.Node(t, w.store).ID})
	w.due()
	require.NoError(t, w.passes.Look(t.Context()))
	w.put(w.machine().Spec, access)
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := machines.SetPhase(ctx, tx, "m-1", lifecycle.MachineRetired, "test", admin)
		return err
	})
	w.due()
	require.NoError(t, w.passes.Look(t.Context()))
	require.Zero(t, peer.count.Load())
	require.Equal(t, [2]string{"-", "-"}, w.state())
}

// TestLook_ProcessEnds stops a worker in the middle of a probe.
func TestLook_ProcessEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	peer := newSilentPeer(t)
	w.put(spec.MachineSpec{Provider: "ssh", SSHEndpoint: peer.address}, machines.Access{SiteID: w.site, HostKey: w.key})
	w.due()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan struct{})
	go func() { w.passes.Run(ctx); close(ended) }()
	peer.asked(t)
	stop()
	<-ended
	require.Equal(t, [2]string{"-", "-"}, w.state(), "a worker that stops says nothing of the machine")
}

// recorder is a protocol of BMCs of which nothing answers.
type recorder struct {
	name  string
	asked *[]string
}

// OpenBMC implements providers.BMCOpener.
func (r recorder) OpenBMC(t providers.BMCTarget) (providers.BMC, error) {
	*r.asked = append(*r.asked, r.name+" "+t.Address+t.User+t.Password.Reveal())
	return nil, &providers.Error{Kind: providers.KindUnreachable, Op: "test"}
}

// TestLook_BMCProtocol states endpoints of BMCs in each form.
func TestLook_BMCProtocol(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var asked []string
	w.passes.BMCs = map[string]providers.BMCOpener{"redfish": recorder{"redfish", &asked}, "ipmi": recorder{"ipmi", &asked}}
	var want []string
	for _, c := range [][2]string{{"redfish", "127.0.0.1"}, {"ipmi", "127.0.0.1:623"}, {"redfish", "https://127.0.0.1:623"}, {"redfish", "127.0.0.1:8443"}} {
		w.put(spec.MachineSpec{Provider: "ssh", BMCEndpoint: c[1]}, machines.Access{SiteID: w.site})
		w.due()
		require.NoError(t, w.passes.Look(t.Context()))
		want = append(want, c[0]+" "+c[1])
	}
	require.Equal(t, want, asked, "with no login")
	require.Equal(t, [2]string{"-", "!BMCSilent"}, w.state())
}
