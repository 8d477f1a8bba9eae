package drift_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/activities/drift"
	"github.com/slipway-cloud/slipway/activities/isolation"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/redfish"
	"github.com/slipway-cloud/slipway/providers/maas"
	"github.com/slipway-cloud/slipway/providers/secrets"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	apiKey = "sim:token:drift-test-key"
	agent  = "1.4.0"
	mark   = "job_that-deployed-it"
)

// world is a region with one deployed machine, its BMC over TLS, and the node
// that it is, active and with a heartbeat, in a database of the test's own. Its
// time is the region's, which moves only when it is stepped.
type world struct {
	t     *testing.T
	fleet *simhw.Fleet
	sim   *maassim.Server
	hw    *simhw.Machine
	bmc   *redfishsim.Server
	front *front
	dsn   string
	store *db.Store
	acts  *drift.Activities
	maas  providers.MAAS
	site  db.Site
	node  db.Node
	rec   db.BMC
	id    string // of the machine in MAAS
	last  drift.Pass
	vault *secrets.Secrets
}

// putLogin stores the login of a BMC.
func (w *world) putLogin(name, user, password string) {
	w.t.Helper()
	dbtest.StateUse(w.t, w.store, spec.SecretBMCLogin, name)
	_, err := w.vault.Put(w.t.Context(), name, providers.NewSecret(fmt.Sprintf(`{"username": %q, "password": %q}`, user, password)))
	require.NoError(w.t, err)
}

// pin returns the pin of the certificate that a BMC shows.
func (w *world) pin(address string) string {
	w.t.Helper()
	b, err := redfish.Opener{}.OpenBMC(providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: address})
	require.NoError(w.t, err)
	id, err := b.Probe(w.t.Context())
	require.NoError(w.t, err)
	return id.PinSHA256
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, fleet: simhw.NewFleet(t.Context(), simhw.NewClock(1)), dsn: dbtest.Database(t)}
	w.store = dbtest.Open(t, w.dsn)
	var err error
	w.hw, err = w.fleet.Add(simhw.GPUServer("Dell", 1))
	require.NoError(t, err)
	w.bmc, err = redfishsim.New(redfishsim.Options{Machine: w.hw, TLS: true, Seed: 3, Adjust: func(p *redfishsim.Personality) { p.HostDPUs = 2 }})
	require.NoError(t, err)
	_, stop, err := w.bmc.Start(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)
	w.sim, err = maassim.New(maassim.Options{
		Fleet: w.fleet, APIKey: apiKey, Seed: 7, Durations: maassim.Durations{NodeTimeout: 1000 * time.Hour, ReleaseExpiry: 1000 * time.Hour},
	})
	require.NoError(t, err)
	addrs, stop, err := w.sim.Start(t.Context(), "127.0.0.1:0", "")
	require.NoError(t, err)
	t.Cleanup(stop)
	w.front = newFront(t, addrs.API)
	vault, err := secrets.Open(t.Context(), w.store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vault.Close()) })
	hardware := w.hw.Spec()
	dbtest.StateUse(t, w.store, spec.SecretMAASKey, "maas/key")
	_, err = vault.Put(t.Context(), "maas/key", providers.NewSecret(apiKey))
	require.NoError(t, err)
	w.vault = vault
	w.putLogin("bmc/login", hardware.BMCUser, hardware.BMCPassword)
	w.maas, err = maas.Opener{}.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: addrs.URL(), APIKey: providers.NewSecret(apiKey)})
	require.NoError(t, err)
	w.machine()
	w.records()
	openers := map[string]providers.BMCOpener{"redfish": redfish.Opener{}}
	policy := drift.DefaultPolicy()
	policy.Settle, policy.ProbeEvery, policy.LoginEvery, policy.HealthEvery, policy.Share = 0, 0, 0, 0, 0
	w.acts = &drift.Activities{
		Store: w.store, Secrets: vault, Opener: maas.Opener{}, Openers: openers, Policy: policy, Log: slog.New(slog.DiscardHandler),
		Logins: &bmcact.Activities{Store: w.store, Secrets: vault, Openers: openers}, Ahead: w.ahead,
		Network: isolation.Policy{Known: []spec.ProbeTarget{{Name: "postgres", Address: "10.0.0.1:5432"}}},
	}
	w.recordHeartbeat(nil)
	w.pass()
	w.recordHeartbeat(nil)
	w.pass()
	require.Empty(t, w.open(), "a machine that is as it should be")
	return w
}

// ahead is how far the region's time is ahead.
func (w *world) ahead() time.Duration { return time.Until(w.fleet.Clock().Now()) }

// now is the region's time.
func (w *world) now() time.Time { return w.fleet.Clock().Now() }

// step moves the region's time until the machine is in a status.
func (w *world) step(to ...providers.MAASStatus) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		m, err := w.maas.Machine(w.t.Context(), w.id)
		require.NoError(w.t, err)
		for _, s := range to {
			if m.Status == s {
				return true
			}
		}
		w.fleet.Clock().Step(20 * time.Second)
		return false
	}, runenv.Patience(30*time.Second), time.Millisecond, "the machine never was %v", to)
	if w.node.ID != "" {
		w.recordHeartbeat(nil) // the agent is heard meanwhile, however far the time has moved
	}
}

// machine makes the record and deploys it, as Slipway's user.
func (w *world) machine() {
	w.t.Helper()
	hardware := w.hw.Spec()
	in := providers.MAASCreate{
		Hostname: "gpu-1", Architecture: hardware.Architecture, PowerType: "redfish", PowerAddress: hardware.BMCAddress, PowerUser: hardware.BMCUser,
		PowerPassword: providers.NewSecret(hardware.BMCPassword),
	}
	for _, n := range hardware.NICs {
		in.MACs = append(in.MACs, n.MAC)
	}
	m, err := w.maas.CreateMachine(w.t.Context(), in)
	require.NoError(w.t, err)
	w.id = m.SystemID
	_, err = w.maas.Commission(w.t.Context(), w.id, providers.MAASCommission{TestingScripts: "none"})
	require.NoError(w.t, err)
	w.step(providers.MAASReady)
	w.deploy()
}

// deploy deploys the machine from Ready.
func (w *world) deploy() {
	w.t.Helper()
	_, err := w.maas.Allocate(w.t.Context(), w.id, "slipway", "")
	require.NoError(w.t, err)
	require.NoError(w.t, w.maas.SetWorkloadAnnotations(w.t.Context(), w.id, map[string]string{"slipway-job": mark}))
	_, err = w.maas.Deploy(w.t.Context(), w.id, providers.MAASDeploy{DistroSeries: "ubuntu/jammy", EnableHWSync: true, UserData: []byte("#cloud-config\n{}\n")})
	require.NoError(w.t, err)
	w.step(providers.MAASDeployed)
}

// redeploy brings the machine back from wherever it is, with the addresses that
// it had: other ones would be another finding.
func (w *world) redeploy() {
	w.t.Helper()
	m, err := w.maas.Machine(w.t.Context(), w.id)
	require.NoError(w.t, err)
	if m.Status != providers.MAASReady {
		require.NoError(w.t, w.maas.Release(w.t.Context(), w.id, providers.MAASRelease{}))
		w.step(providers.MAASReady)
	}
	w.deploy()
}

// release releases the machine as somebody else.
func (w *world) release() {
	w.t.Helper()
	require.NoError(w.t, w.sim.External("release", w.id))
	w.step(providers.MAASReady)
}

func (w *world) records() {
	t, hardware := w.t, w.hw.Spec()
	w.site = dbtest.Site(t, w.store, func(p *dbtest.Params) {
		p.Site = spec.SiteSpec{MAASURL: w.front.url + "/MAAS", MAASAPIKeyRef: "maas/key", BMCNetworks: []string{"127.0.0.0/8"}, Simulated: true}
	})
	sku := dbtest.SKU(t, w.store, func(p *dbtest.Params) {
		p.SKU = spec.SKUSpec{GPUs: 8, DriverMinVersion: "550.54", NICsUp: 4, DataDisks: 4, MinMemoryMiB: 1 << 20, RequireECC: true}
	})
	profile := dbtest.Profile(t, w.store, dbtest.At(w.site.ID), func(p *dbtest.Params) { p.Profile.RequireHWSync = true })
	w.node = dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(w.site.ID), dbtest.Of(sku.ID), dbtest.With(profile.ID), dbtest.Hostname("gpu-1"))
	machine := db.NodeMachine{SystemID: w.id, Serial: hardware.Serial, HardwareUUID: hardware.UUID}
	for _, n := range hardware.NICs {
		machine.MACs = append(machine.MACs, n.MAC)
	}
	require.NoError(t, w.store.SetNodeMachine(t.Context(), w.node.ID, machine))
	var err error
	w.rec, err = w.store.CreateBMC(t.Context(), db.NewBMC{
		NodeID: &w.node.ID, Address: hardware.BMCAddress, Protocol: "redfish", CredentialRef: "bmc/login", PinSHA256: w.pin(hardware.BMCAddress),
	})
	require.NoError(t, err)
	w.sql("INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after) "+
		"VALUES ($1, 1, '1', sha256('k'), 'PEM', now() - interval '1 hour', now() + interval '20 years')", w.node.ID)
	w.sql("INSERT INTO agent_identities (node_id, generation) VALUES ($1, 1)", w.node.ID)
}

// sql changes, as the owner of the database, what has no operation of its own.
func (w *world) sql(statement string, args ...any) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), dbtest.OwnerDSN(w.t, w.dsn))
	require.NoError(w.t, err)
	defer func() { _ = conn.Close(w.t.Context()) }()
	_, err = conn.Exec(w.t.Context(), statement, args...)
	require.NoError(w.t, err, statement)
}

// recordHeartbeat stores a heartbeat of the node with a report that meets its SKU, changed by f.
func (w *world) recordHeartbeat(f func(*db.Heartbeat)) {
	w.t.Helper()
	w.recordHeartbeatOf(w.node.ID, "boot-1", f)
}

func (w *world) recordHeartbeatOf(node, boot string, f func(*db.Heartbeat)) {
	w.t.Helper()
	hardware, no, none, mib := w.hw.Spec(), false, 0, int64(1<<20)
	b := db.Heartbeat{NodeID: node, BootID: boot, AgentVersion: agent, Generation: 1, ReceivedAt: w.now(), Report: &spec.HealthReport{
		Simulated: true, MemoryMiB: &mib, Driver: "550.90.07",
	}}
	for i := range 8 {
		on := true
		b.Report.GPUs = append(b.Report.GPUs, spec.GPUReport{UUID: strconv.Itoa(i), ECCEnabled: &on, UncorrectedECC: &none, RemapFailed: &no, RemapPending: &no})
	}
	for _, n := range hardware.NICs {
		b.Report.NICs = append(b.Report.NICs, spec.NICReport{Name: n.Name, MAC: n.MAC, Up: true})
	}
	for _, d := range hardware.Disks {
		b.Report.Disks = append(b.Report.Disks, spec.DiskReport{Name: d.Name, Bytes: d.Bytes, Boot: d.Name == "sda"})
	}
	if f != nil {
		f(&b)
	}
	require.NoError(w.t, w.store.RecordHeartbeats(w.t.Context(), []db.Heartbeat{b}))
}

// pass makes one whole pass, as the workflow sequences it.
func (w *world) pass() drift.Report {
	w.t.Helper()
	return onePass(w.t, w.acts, w.site.ID, &w.last)
}

func onePass(t *testing.T, acts *drift.Activities, siteID string, last *drift.Pass) drift.Report {
	t.Helper()
	ctx := t.Context()
	p, err := acts.BeginPass(ctx, drift.BeginIn{SiteID: siteID})
	require.NoError(t, err)
	var r drift.Report
	r.List, err = acts.ListMachines(ctx, p)
	require.NoError(t, err)
	if p.Listed = r.List.Problem == ""; !p.Listed {
		r.Problems = append(r.Problems, r.List.Problem)
	}
	r.BMCs, err = acts.VisitBMCs(ctx, p)
	require.NoError(t, err)
	r.Networks, err = acts.ProbeNetworks(ctx, p)
	require.NoError(t, err)
	for in := (drift.PageIn{Pass: p}); ; {
		out, err := acts.ComparePage(ctx, in)
		require.NoError(t, err)
		r.Add(out.PassCounts)
		if in.After = out.After; in.After == "" {
			break
		}
	}
	sets, err := acts.CompareSets(ctx, p)
	require.NoError(t, err)
	r.Add(sets)
	r.Quarantine, err = acts.QuarantineDrifted(ctx, p)
	require.NoError(t, err)
	require.NoError(t, acts.FinishPass(ctx, drift.FinishIn{Pass: p, Report: r, Problem: strings.Join(r.Problems, "; ")}))
	*last = p
	return r
}

// open lists the detectors of open findings.
func (w *world) open() []string {
	w.t.Helper()
	var out []string
	for _, f := range w.findings(lifecycle.FindingOpen) {
		out = append(out, f.Detector)
	}
	return out
}

func (w *world) findings(status lifecycle.FindingStatus) []driftdb.Finding {
	w.t.Helper()
	rows, err := driftdb.ListFindings(w.t.Context(), w.store, driftdb.Filter{Status: status, SiteID: w.site.ID}, "", 1000)
	require.NoError(w.t, err)
	var out []driftdb.Finding
	for _, r := range rows {
		out = append(out, r.Finding)
	}
	return out
}

// finding is the open finding of a detector.
func (w *world) finding(detector string) driftdb.Finding {
	w.t.Helper()
	for _, f := range w.findings("") {
		if f.Detector == detector && f.Status != lifecycle.FindingClosed {
			return f
		}
	}
	require.Failf(w.t, "not found", "no live finding of %s; open are %v", detector, w.open())
	return driftdb.Finding{}
}

// act does what an operator decides.
func (w *world) act(id string, action lifecycle.DriftAction) (driftdb.Finding, error) {
	var f driftdb.Finding
	err := w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		var err error
		f, err = driftdb.ActOnFinding(w.t.Context(), tx, id, 0, action, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "ada", Comment: "I looked"})
		return err
	})
	return f, err
}

// front stands before the region, counts, and says things that the region does
// not: hardware that nobody can change from outside.
type front struct {
	url string

	mu    sync.Mutex
	asked map[string]int
	twist func([]map[string]any) []map[string]any
	down  bool
}

func newFront(t *testing.T, api string) *front {
	f := &front{asked: map[string]int{}}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: api})
	proxy.ModifyResponse = func(r *http.Response) error {
		f.mu.Lock()
		twist := f.twist
		f.mu.Unlock()
		if twist == nil || r.Request.URL.Path != "/MAAS/api/2.0/machines/" || r.Request.URL.RawQuery != "" {
			return nil
		}
		var list []map[string]any
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
			return err
		}
		_ = r.Body.Close()
		doc, err := json.Marshal(twist(list))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(doc)), int64(len(doc))
		r.Header.Set("Content-Length", strconv.Itoa(len(doc)))
		return err
	}
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked[strings.TrimPrefix(r.URL.Path, "/MAAS/api/2.0/")+"?"+r.URL.Query().Get("op")]++
		down := f.down
		f.mu.Unlock()
		if down {
			http.Error(rw, "the region is away", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(srv.Close)
	f.url = srv.URL
	return f
}

// says changes the region's list from now on; nil tells the fixList again.
func (f *front) says(twist func([]map[string]any) []map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.twist = twist
}

// each changes every machine of the list.
func each(f func(m map[string]any)) func([]map[string]any) []map[string]any {
	return func(list []map[string]any) []map[string]any {
		for _, m := range list {
			f(m)
		}
		return list
	}
}

func (f *front) goes(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

func (f *front) requests() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for k, v := range f.asked {
		out[k] = v
	}
	return out
}

// call is a call of the region that Slipway itself never makes.
func (w *world) call(method, path string, form url.Values) {
	w.t.Helper()
	k := strings.Split(apiKey, ":")
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.front.url+"/MAAS/api/2.0/"+path, strings.NewReader(form.Encode()))
	require.NoError(w.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", fmt.Sprintf(`OAuth realm="MAAS API", oauth_consumer_key="%s", oauth_token="%s", oauth_signature_method="PLAINTEXT", `+
		`oauth_signature="%%26%s", oauth_timestamp="%d", oauth_nonce="%d", oauth_version="1.0"`, k[0], k[1], k[2], time.Now().Unix(), time.Now().UnixNano()))
	res, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, res.StatusCode, string(body))
}
