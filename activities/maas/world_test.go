package maas_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	"github.com/slipway-cloud/slipway/providers/secrets"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

// world is one simulated region with one machine, and a node and job for it in
// a database of the test's own. Each activity runs as a worker runs it.
type world struct {
	t       *testing.T
	env     *testsuite.TestActivityEnvironment
	mu      sync.Mutex // the environment runs one activity at a time
	acts    *maasact.Activities
	sim     *maassim.Server
	hw      *simhw.Machine
	store   *db.Store
	secrets *secrets.Secrets
	ref     contract.JobRef
	host    string
	bmc     contract.BMCFacts
	profile spec.ProfileSpec
	id      string // of the machine in MAAS, once created
}

const (
	apiKey = "sim:token:activities-test-key"
	every  = spec.Duration(20 * time.Millisecond)
)

func newWorld(t *testing.T, faults ...maassim.Fault) *world {
	t.Helper()
	fleet := simhw.NewFleet(t.Context(), simhw.NewClock(3000))
	machine := simhw.GPUServer("Dell", 1)
	machine.BMCAddress = "https://127.0.0.1:8443"
	hw, err := fleet.Add(machine)
	require.NoError(t, err)
	// At this speed MAAS's five minutes for a power-off are 0.1 s, which a busy machine may take.
	slow := maassim.Durations{ReleaseExpiry: time.Hour}
	sim, err := maassim.New(maassim.Options{Fleet: fleet, APIKey: apiKey, Seed: 7, Durations: slow})
	require.NoError(t, err)
	addrs, stop, err := sim.Start(t.Context(), "127.0.0.1:0", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)
	w := &world{t: t, sim: sim, hw: hw, store: dbtest.Store(t), host: "gpu-1"}
	for _, f := range faults {
		w.fault(f)
	}
	w.secrets, err = secrets.Open(t.Context(), w.store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.secrets.Close()) })
	dbtest.StateUse(t, w.store, spec.SecretMAASKey, "maas/key")
	dbtest.StateUse(t, w.store, spec.SecretBMCLogin, "bmc/login")
	w.secret("maas/key", apiKey)
	login, err := json.Marshal(map[string]string{"username": machine.BMCUser, "password": machine.BMCPassword})
	require.NoError(t, err)
	w.secret("bmc/login", string(login))
	w.records("http://"+addrs.API+"/MAAS", machine)
	w.acts = &maasact.Activities{Store: w.store, Secrets: w.secrets, Opener: maas.Opener{}}
	var suite testsuite.WorkflowTestSuite
	w.env = suite.NewTestActivityEnvironment()
	w.env.SetTestTimeout(time.Minute)
	w.env.RegisterActivity(w.acts)
	return w
}

// records makes site, profile, node, BMC and job, as an accepted request does.
func (w *world) records(url string, machine simhw.Spec) {
	site := dbtest.Site(w.t, w.store, func(p *dbtest.Params) {
		p.Site = spec.SiteSpec{MAASURL: url, MAASAPIKeyRef: "maas/key", BMCNetworks: []string{"127.0.0.0/8"}, Simulated: true}
	})
	w.profile = spec.ProfileSpec{
		RequireHWSync: true, BootDisk: spec.BootDiskRule{ModelContains: "BOSS"}, PollInterval: every,
	}.WithDefaults()
	node := dbtest.Node(w.t, w.store, dbtest.At(site.ID), dbtest.Hostname(w.host))
	job := dbtest.Job(w.t, w.store, dbtest.On(node.ID))
	bmc, err := w.store.CreateBMC(w.t.Context(), db.NewBMC{
		NodeID: &node.ID, Address: machine.BMCAddress, Protocol: "redfish", CredentialRef: "bmc/login",
	})
	require.NoError(w.t, err)
	w.ref = contract.JobRef{JobID: job.ID, NodeID: node.ID, SiteID: site.ID, Stage: "test"}
	w.bmc = contract.BMCFacts{BMCID: bmc.ID, Address: machine.BMCAddress, Serial: machine.Serial, UUID: machine.UUID}
	for _, n := range machine.NICs {
		w.bmc.MACs = append(w.bmc.MACs, n.MAC)
	}
}

func (w *world) secret(name, value string) {
	w.t.Helper()
	_, err := w.secrets.Put(w.t.Context(), name, providers.NewSecret(value))
	require.NoError(w.t, err)
}

func (w *world) fault(f maassim.Fault) {
	w.t.Helper()
	_, err := w.sim.AddFault(f)
	require.NoError(w.t, err)
}

// run executes one activity.
func run[I, O any](w *world, act func(context.Context, I) (O, error), in I) (O, error) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var out O
	v, err := w.env.ExecuteActivity(act, in)
	if err == nil {
		err = v.Get(&out)
	}
	return out, err
}

// must executes one activity that is expected to succeed.
func must[I, O any](w *world, act func(context.Context, I) (O, error), in I) O {
	w.t.Helper()
	out, err := run(w, act, in)
	require.NoError(w.t, err)
	return out
}

// fails executes one activity and returns its failure's message.
func fails[I, O any](w *world, want lifecycle.FailureClass, act func(context.Context, I) (O, error), in I) string {
	w.t.Helper()
	_, err := run(w, act, in)
	require.Error(w.t, err)
	var app *temporal.ApplicationError
	require.True(w.t, errors.As(err, &app), "%v", err)
	require.Equal(w.t, string(want), app.Type(), app.Message())
	return app.Message()
}

// counts is the counter of one effect on all machines.
func (w *world) counts(what string) int { return w.sim.Counters().Total[what] }

func (w *world) machine() maasact.MachineIn {
	return maasact.MachineIn{JobRef: w.ref, SystemID: w.id, Poll: every}
}

func (w *world) createIn() maasact.CreateIn {
	return maasact.CreateIn{JobRef: w.ref, Hostname: w.host, Profile: w.profile, BMC: w.bmc}
}

func (w *world) storageIn() maasact.StorageIn {
	return maasact.StorageIn{JobRef: w.ref, SystemID: w.id, Rule: w.profile.BootDisk, Layout: "flat"}
}

func (w *world) networkIn() maasact.NetworkIn {
	return maasact.NetworkIn{JobRef: w.ref, SystemID: w.id, Hostname: w.host}
}

func (w *world) deployIn(attempt int) maasact.DeployIn {
	return maasact.DeployIn{
		JobRef: w.ref, SystemID: w.id, Profile: w.profile, UserDataRef: cloudinit.SecretName(w.ref.JobID, 1), Attempt: attempt,
	}
}

func (w *world) waitIn(patience time.Duration) maasact.WaitDeployedIn {
	return maasact.WaitDeployedIn{MachineIn: w.machine(), Attempt: 1, Until: time.Now().Add(patience)}
}

func (w *world) releaseIn() maasact.ReleaseIn {
	return maasact.ReleaseIn{MachineIn: w.machine(), OnlyOurs: true}
}

func (w *world) removeIn(created bool) maasact.RemoveIn {
	return maasact.RemoveIn{MachineIn: w.machine(), Created: created, Hostname: w.host, BMC: w.bmc}
}

// created makes the record; ready takes it through commissioning; prepared also
// lays it out and seals user-data; deploying starts the deployment.
func (w *world) created() *world {
	w.t.Helper()
	f := must(w, w.acts.CreateOrFindMachine, w.createIn())
	w.id = f.SystemID
	return w
}

func (w *world) ready() *world {
	w.t.Helper()
	w.created()
	must(w, w.acts.CommissionMachine, w.machine())
	require.Equal(w.t, "Ready", must(w, w.acts.WaitForReady, w.machine()).Status)
	return w
}

func (w *world) prepared() *world {
	w.t.Helper()
	w.ready()
	must(w, w.acts.ConfigureStorage, w.storageIn())
	must(w, w.acts.EnsurePXEInterfaceAuto, w.networkIn())
	w.seal()
	return w
}

func (w *world) deploying() *world {
	w.t.Helper()
	w.prepared()
	must(w, w.acts.DeployMachine, w.deployIn(1))
	return w
}

// activityOf is the shape of every activity.
type activityOf[I, O any] = func(context.Context, I) (O, error)

// seal stores user-data as render_cloud_init does.
func (w *world) seal() {
	w.t.Helper()
	_, err := cloudinit.Seal(w.t.Context(), w.secrets, cloudinit.SecretName(w.ref.JobID, 1), cloudinit.Sealed{
		Document: []byte("#cloud-config\n{}\n"), IssuedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour),
	})
	require.NoError(w.t, err)
}

// client is a plain client of the region: somebody else who works in MAAS.
func (w *world) client() providers.MAAS {
	w.t.Helper()
	site, err := w.store.Site(w.t.Context(), w.ref.SiteID)
	require.NoError(w.t, err)
	m, err := maas.Opener{}.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: site.Spec.MAASURL, APIKey: providers.NewSecret(apiKey)})
	require.NoError(w.t, err)
	return m
}

// subnetOf is the CIDR of a VLAN's subnet, and addressIn a free address in it.
func subnetOf(w *world, vlan int) string {
	w.t.Helper()
	subnets, err := w.client().Subnets(w.t.Context())
	require.NoError(w.t, err)
	for _, s := range subnets {
		if s.ID == vlan {
			return s.CIDR
		}
	}
	w.t.Fatalf("no subnet of VLAN %d", vlan)
	return ""
}

func addressIn(w *world, vlan int) string {
	w.t.Helper()
	p, err := netip.ParsePrefix(subnetOf(w, vlan))
	require.NoError(w.t, err)
	a := p.Masked().Addr()
	for range 77 {
		a = a.Next()
	}
	return a.String()
}

// addresses returns the addresses of the node's record, after who named them.
func (w *world) addresses() []string {
	w.t.Helper()
	n, err := w.store.Node(w.t.Context(), w.ref.NodeID)
	require.NoError(w.t, err)
	return append([]string{string(n.IPAddressesSource)}, n.IPAddresses...)
}
