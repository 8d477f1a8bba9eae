package drift_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/drift"
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
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestPass_LargeSite prints what a pass of many nodes costs: 200, and 10,000 in `make proof
// AREA=fleet`. The region's list is the simulator's machine many times over, the BMCs are one
// simulated BMC that answers at as many addresses; what is read, stored and compared is real.
func TestPass_LargeSite(t *testing.T) {
	nodes := runenv.Scale(t, "SLIPWAY_DRIFT_NODES", 200, 10_000)
	requireOpenFiles(t, nodes)
	w := newWorld(t) // for the form of a machine
	region := newLargeRegion(t, w, nodes)
	rack := newRack(t, w.hw, nodes)
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	vault, err := secrets.Open(t.Context(), store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vault.Close()) })
	dbtest.StateUse(t, store, spec.SecretMAASKey, "maas/key")
	_, err = vault.Put(t.Context(), "maas/key", providers.NewSecret(apiKey))
	require.NoError(t, err)
	site := dbtest.Site(t, store, func(p *dbtest.Params) {
		p.Site = spec.SiteSpec{MAASURL: region.url + "/MAAS", MAASAPIKeyRef: "maas/key", BMCNetworks: []string{"127.0.0.0/8"}, Simulated: true}
	})
	populate(t, dsn, store, site.ID, rack, nodes)
	policy := drift.DefaultPolicy()
	policy.Settle, policy.Probes, policy.ProbeEvery, policy.AtOnce, policy.Share = 0, nodes, time.Hour, 50, 0.05
	acts := &drift.Activities{
		Store: store, Secrets: vault, Opener: maas.Opener{}, Openers: map[string]providers.BMCOpener{"redfish": redfish.Opener{}}, Policy: policy,
		Log: slog.New(slog.DiscardHandler),
	}
	var last drift.Pass
	for _, what := range []string{"the first pass, with every BMC", "the next, without BMCs", "one that finds faults"} {
		faulty := what == "one that finds faults"
		if faulty {
			region.change(100) // every hundredth is released, the one after it gone
		}
		before := region.requests()
		heap := watchHeap()
		began := time.Now()
		r := onePass(t, acts, site.ID, &last)
		took := time.Since(began)
		t.Logf("%s: %d nodes in %s (%d a second), %d requests of the region, %d BMCs asked, peak heap %d MiB over %d MiB at rest, %d findings",
			what, r.Nodes, took.Round(time.Millisecond), int(float64(r.Nodes)/took.Seconds()), region.requests()-before, r.BMCs.Probes, heap()>>20, restHeap()>>20, r.Findings)
		require.Equal(t, nodes, r.Nodes)
		require.Equal(t, 2+nodes/providers.MaxPowerAddresses, region.requests()-before, "one list, one name, one question for two hundred BMC addresses")
		require.Less(t, heap()>>20, uint64(400), "memory is bounded by pages, not by the site")
		if !faulty {
			require.Zero(t, r.Findings, "%v", openOf(t, store, site.ID))
			continue
		}
		require.Equal(t, 2*nodes/100, r.Opened)
	}
	most, total := rack.counts()
	t.Logf("BMCs: %d requests in all for %d BMCs, at most %d of one, none with a login", total, nodes, most)
	require.LessOrEqual(t, most, 2)
	r := onePass(t, acts, site.ID, &last)
	require.Equal(t, int64(nodes/20), r.Quarantine.Limit)
	require.Len(t, r.Quarantine.Nodes, nodes*2/100)
}

// requireOpenFiles fails the test when this process may not open a file for each
// BMC and 2,000 more.
func requireOpenFiles(t *testing.T, nodes int) {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	need := nodes + 2_000
	if limit.Cur < uint64(need) { //nolint:gosec // above 0
		t.Fatalf("this process may open %d files; %d nodes need %d: run `ulimit -n %d` first, as root if the hard limit is lower", limit.Cur, nodes, need, need)
	}
}

func openOf(t *testing.T, store *db.Store, site string) []string {
	t.Helper()
	rows, err := driftdb.ListFindings(t.Context(), store, driftdb.Filter{SiteID: site, Status: lifecycle.FindingOpen}, "", 5)
	require.NoError(t, err)
	var out []string
	for _, r := range rows {
		out = append(out, r.Finding.Detector+": "+r.Finding.Message)
	}
	return out
}

func restHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// watchHeap samples the heap until its result is called, and returns its peak.
func watchHeap() func() uint64 {
	runtime.GC()
	ctx, stop := context.WithCancel(context.Background())
	var peak uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	return func() uint64 { stop(); <-done; return peak }
}

// systemID is the id of machine i in the large region.
func systemID(i int) string { return fmt.Sprintf("%06d", i) }

// largeRegion serves the list of a region with many machines, made from the text of one.
type largeRegion struct {
	url string

	mu    sync.Mutex
	asked int
	every int // each such machine is released, and the one after it gone
}

func (g *largeRegion) requests() int    { g.mu.Lock(); defer g.mu.Unlock(); return g.asked }
func (g *largeRegion) change(every int) { g.mu.Lock(); defer g.mu.Unlock(); g.every = every }
func address(i int) string              { return fmt.Sprintf("127.%d.%d.%d", 10+i/60_000, i/240%250, i%240+1) }
func macOf(i, card int) string {
	return fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", i>>16&255, i>>8&255, i&255, card)
}
func serialOf(i int) string                { return fmt.Sprintf("SN%08d", i) }
func ipOf(i int) string                    { return fmt.Sprintf("10.%d.%d.%d", 20+i>>16&255, i>>8&255, i&255) }
func bmcAddress(i int, port string) string { return "https://" + net.JoinHostPort(address(i), port) }

func newLargeRegion(t *testing.T, w *world, nodes int) *largeRegion {
	t.Helper()
	g := &largeRegion{}
	res := w.raw("machines/" + w.id + "/")
	var one map[string]any
	require.NoError(t, json.Unmarshal(res, &one))
	one["system_id"], one["hostname"], one["fqdn"], one["enable_hw_sync"] = "@ID@", "@HOST@", "@HOST@.maas", false
	one["hardware_info"].(map[string]any)["system_serial"] = "@SERIAL@" //nolint:forcetypeassert // the simulator's form
	one["hardware_uuid"], one["ip_addresses"] = "@SERIAL@", []string{"@IP@"}
	for i, n := range one["interface_set"].([]any) { //nolint:forcetypeassert // the simulator's form
		n.(map[string]any)["mac_address"] = fmt.Sprintf("@MAC%d@", i) //nolint:forcetypeassert // the simulator's form
	}
	doc, err := json.Marshal(one)
	require.NoError(t, err)
	text := string(doc)
	t.Logf("a machine of the list has %d bytes, the list %d MiB", len(text), len(text)*nodes>>20)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.asked++
		every := g.every
		g.mu.Unlock()
		rw.Header().Set("Content-Type", "application/json")
		switch path := strings.TrimPrefix(r.URL.Path, "/MAAS/api/2.0/"); {
		case path == "users/":
			_, _ = io.WriteString(rw, `{"username": "admin", "is_superuser": true}`)
		case r.URL.Query().Get("op") == "power_parameters":
			out := map[string]any{}
			for _, id := range r.URL.Query()["id"] {
				i := 0
				_, _ = fmt.Sscanf(id, "%06d", &i)
				out[id] = map[string]any{"power_address": "https://" + address(i)}
			}
			_ = json.NewEncoder(rw).Encode(out)
		case path == "machines/":
			sep := "["
			for i := range nodes {
				if every > 0 && i%every == 1 {
					continue
				}
				pairs := []string{"@ID@", systemID(i), "@HOST@", fmt.Sprintf("gpu-%05d", i), "@SERIAL@", serialOf(i), "@IP@", ipOf(i)}
				for c := range 4 {
					pairs = append(pairs, fmt.Sprintf("@MAC%d@", c), macOf(i, c))
				}
				m := strings.NewReplacer(pairs...).Replace(text)
				if every > 0 && i%every == 0 {
					m = strings.Replace(m, `"status":6`, `"status":4`, 1)
				}
				_, _ = io.WriteString(rw, sep+m)
				sep = ","
			}
			_, _ = io.WriteString(rw, "]")
		default:
			http.NotFound(rw, r)
		}
	}))
	t.Cleanup(srv.Close)
	g.url = srv.URL
	return g
}

// raw reads a document of the region.
func (w *world) raw(path string) []byte {
	w.t.Helper()
	k := strings.Split(apiKey, ":")
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.front.url+"/MAAS/api/2.0/"+path, nil)
	require.NoError(w.t, err)
	req.Header.Set("Authorization", fmt.Sprintf(`OAuth realm="MAAS API", oauth_consumer_key="%s", oauth_token="%s", oauth_signature_method="PLAINTEXT", `+
		`oauth_signature="%%26%s", oauth_timestamp="%d", oauth_nonce="%d", oauth_version="1.0"`, k[0], k[1], k[2], time.Now().Unix(), time.Now().UnixNano()))
	res, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, res.StatusCode, string(body))
	return body
}

// rack is one simulated BMC behind many addresses, over TLS.
type rack struct {
	port, pin string

	mu    sync.Mutex
	asked map[string]int
}

func newRack(t *testing.T, hw *simhw.Machine, nodes int) *rack {
	t.Helper()
	sim, err := redfishsim.New(redfishsim.Options{Machine: hw})
	require.NoError(t, err)
	r := &rack{asked: map[string]int{}}
	handler := http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		if at, ok := q.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			r.mu.Lock()
			r.asked[at.String()]++
			r.mu.Unlock()
		}
		sim.ServeHTTP(rw, q)
	})
	pair, pin := rackCertificate(t)
	r.pin = pin
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	srv := &http.Server{Handler: handler, TLSConfig: config, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	t.Cleanup(func() { _ = srv.Close() })
	r.port = "0"
	for i := range nodes {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address(i), r.port))
		require.NoError(t, err)
		if i == 0 {
			_, r.port, err = net.SplitHostPort(l.Addr().String())
			require.NoError(t, err)
		}
		go func() { _ = srv.ServeTLS(l, "", "") }()
	}
	return r
}

// rackCertificate is one for all BMCs. Its key is of elliptic curves, with which a
// handshake costs this process a twentieth of one with RSA.
func rackCertificate(t *testing.T) (pair tls.Certificate, pin string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, hex.EncodeToString(sum[:])
}

func (r *rack) counts() (most, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.asked {
		most, total = max(most, n), total+n
	}
	return most, total
}

// populate fills a site past the triggers, which would make it a matter of
// minutes: nodes in service with BMCs, certificates, heartbeats and reports.
func populate(t *testing.T, dsn string, store *db.Store, site string, r *rack, nodes int) {
	t.Helper()
	sku := dbtest.SKU(t, store, func(p *dbtest.Params) { p.SKU = spec.SKUSpec{GPUs: 8} })
	report, err := json.Marshal(spec.HealthReport{Simulated: true, GPUs: make([]spec.GPUReport, 8)})
	require.NoError(t, err)
	conn := dbtest.Owner(t, dsn)
	_, err = conn.Exec(t.Context(), "SET session_replication_role = replica")
	require.NoError(t, err)
	var ids, hosts, systems, serials, addresses []string
	for i := range nodes {
		ids, hosts = append(ids, fmt.Sprintf("%08d", i)), append(hosts, fmt.Sprintf("gpu-%05d", i))
		systems, serials, addresses = append(systems, systemID(i)), append(serials, serialOf(i)), append(addresses, bmcAddress(i, r.port))
	}
	for _, s := range []struct {
		sql  string
		args []any
	}{
		{`INSERT INTO nodes (id, lifecycle, status, hostname, site_id, sku_id, serial, maas_system_id, state_changed_at)
			SELECT 'node_' || i, 'maas', 'active', h, $1, $2, s, m, now() - interval '1 hour' FROM unnest($3::text[], $4::text[], $5::text[], $6::text[]) AS u (i, h, s, m)`,
			[]any{site, sku.ID, ids, hosts, serials, systems}},
		{`INSERT INTO bmcs (id, node_id, address, protocol, credential_ref, pin_sha256)
			SELECT 'bmc_' || i, 'node_' || i, a, 'redfish', 'bmc/login', $1 FROM unnest($2::text[], $3::text[]) AS u (i, a)`, []any{r.pin, ids, addresses}},
		{`INSERT INTO heartbeats (node_id, boot_id, agent_version, generation, received_at, report, report_boot_id, reported_at)
			SELECT 'node_' || i, 'boot-' || i, '1.0.0', 1, now() + interval '10 minutes', $1, 'boot-' || i, now() FROM unnest($2::text[]) AS u (i)`, []any{report, ids}},
		{`INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after)
			SELECT 'node_' || i, 1, i, sha256('k'), 'PEM', now(), now() + interval '1 day' FROM unnest($1::text[]) AS u (i)`, []any{ids}},
		{`INSERT INTO agent_identities (node_id, generation) SELECT 'node_' || i, 1 FROM unnest($1::text[]) AS u (i)`, []any{ids}},
		{"ANALYZE", nil},
	} {
		_, err := conn.Exec(t.Context(), s.sql, s.args...)
		require.NoError(t, err)
	}
}
