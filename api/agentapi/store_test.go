package agentapi_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/api/agentapi/agentapitest"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// kind is one implementation of Store: how nodes and tokens come into it.
type kind struct {
	store agentapi.Store
	node  func() string
	token func(node string, expires time.Time) [32]byte
}

func memory(*testing.T) kind {
	m, n := agentapitest.New(), 0
	return kind{store: m, node: func() string { n++; id := fmt.Sprintf("node_%d", n); m.AddNode(id); return id },
		token: func(node string, expires time.Time) [32]byte { return sha256.Sum256([]byte(m.AddToken(node, expires))) }}
}

func onPostgres(t *testing.T) kind {
	d := dbtest.Store(t)
	return kindOf(t, d, nil)
}

func kindOf(t *testing.T, d *db.Store, skuID *string) kind {
	site, err := d.CreateSite(t.Context(), "site-"+hex.EncodeToString(randomBytes()), spec.SiteSpec{MAASURL: "https://maas.example/MAAS", MAASAPIKeyRef: "maas"})
	require.NoError(t, err)
	n := 0
	return kind{
		store: agentapi.NewStore(d),
		node: func() string {
			n++
			var id string
			require.NoError(t, d.Tx(t.Context(), func(tx *db.Tx) error {
				row, err := tx.CreateNode(t.Context(), db.NewNode{Hostname: fmt.Sprintf("gpu-%d", n), SiteID: site.ID, SKUID: skuID,
					Actor: db.Actor{Owner: lifecycle.OwnerAdmin}})
				id = row.ID
				return err
			}))
			return id
		},
		token: func(node string, expires time.Time) [32]byte {
			h := sha256.Sum256(randomBytes())
			require.NoError(t, d.Tx(t.Context(), func(tx *db.Tx) error {
				return tx.IssueEnrollmentToken(t.Context(), node, "", h[:], expires)
			}))
			return h
		},
	}
}

func randomBytes() []byte { b := make([]byte, 8); _, _ = rand.Read(b); return b }

func certificate(generation int64, key string) agentapi.Issued {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return agentapi.Issued{Generation: generation, SPKI: sha256.Sum256([]byte(key)), Serial: key, PEM: "PEM of " + key,
		NotBefore: now, NotAfter: now.Add(24 * time.Hour)}
}

func same(t *testing.T, want, got agentapi.Issued) {
	t.Helper()
	require.WithinDuration(t, want.NotAfter, got.NotAfter, 0)
	require.WithinDuration(t, want.NotBefore, got.NotBefore, 0)
	got.NotAfter, got.NotBefore, got.Enrolment = want.NotAfter, want.NotBefore, want.Enrolment // a store numbers those that are not
	require.Equal(t, want, got)
}

// TestStores_SameBehaviour runs one suite on the store in memory and on
// Postgres, so that the tests over the first say something about the second.
func TestStores_SameBehaviour(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) kind{"memory": memory, "postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := open(t)
			t.Run("tokens", func(t *testing.T) { tokens(t, k) })
			t.Run("generations", func(t *testing.T) { generations(t, k) })
			t.Run("heartbeats", func(t *testing.T) { heartbeats(t, k) })
		})
	}
}

func tokens(t *testing.T, k kind) {
	ctx, soon := t.Context(), time.Now().Add(time.Hour)
	node := k.node()
	_, err := k.store.Token(ctx, sha256.Sum256([]byte("unknown")))
	require.ErrorIs(t, err, agentapi.ErrNoToken)
	redeem := func(hash [32]byte, c agentapi.Issued) (agentapi.Issued, error) {
		return k.store.Redeem(ctx, agentapi.Redemption{TokenHash: hash, NodeID: node, Certificate: c, Address: "127.0.0.1", At: time.Now()})
	}
	_, err = redeem(sha256.Sum256([]byte("unknown")), certificate(1, "a"))
	require.ErrorIs(t, err, agentapi.ErrNoToken)
	_, err = redeem(k.token(node, time.Now().Add(-time.Second)), certificate(1, "a"))
	require.ErrorIs(t, err, agentapi.ErrTokenEnded)

	hash := k.token(node, soon)
	tok, err := k.store.Token(ctx, hash)
	require.NoError(t, err)
	require.Equal(t, node, tok.NodeID)
	require.Nil(t, tok.Redeemed)
	require.False(t, tok.Revoked)
	unfollowed := certificate(1, "a")
	unfollowed.Enrolment = 2
	_, err = redeem(hash, unfollowed)
	require.ErrorIs(t, err, agentapi.ErrGenerationMoved)
	first := certificate(1, "a"+node)
	got, err := redeem(hash, first)
	require.NoError(t, err)
	same(t, first, got)
	tok, err = k.store.Token(ctx, hash)
	require.NoError(t, err)
	same(t, first, *tok.Redeemed)
	again := certificate(2, "a"+node) // a new certificate for the same key
	got, err = redeem(hash, again)
	require.NoError(t, err)
	same(t, first, got)
	_, err = redeem(hash, certificate(2, "copy"))
	require.ErrorIs(t, err, agentapi.ErrTokenUsed)

	// Of many keys at once one wins.
	race := k.token(node, soon)
	var wg sync.WaitGroup
	outcomes := make([]error, 6)
	for i := range outcomes {
		wg.Go(func() { _, outcomes[i] = redeem(race, certificate(2, fmt.Sprintf("race%d%s", i, node))) })
	}
	wg.Wait()
	won := 0
	for _, err := range outcomes {
		if err == nil {
			won++
			continue
		}
		require.ErrorIs(t, err, agentapi.ErrTokenUsed)
	}
	require.Equal(t, 1, won)
}

func generations(t *testing.T, k kind) {
	ctx := t.Context()
	_, err := k.store.Identity(ctx, "node_unknown")
	require.ErrorIs(t, err, agentapi.ErrNoNode)
	require.ErrorIs(t, k.store.Lock(ctx, "node_unknown", "x", time.Now()), agentapi.ErrNoNode)
	node := k.node()
	id, err := k.store.Identity(ctx, node)
	require.NoError(t, err)
	require.Zero(t, id.Current.Generation)
	renew := func(c agentapi.Issued) error {
		return k.store.Renew(ctx, agentapi.Renewal{NodeID: node, Certificate: c})
	}
	enrol := func(c agentapi.Issued) error {
		_, err := k.store.Redeem(ctx, agentapi.Redemption{TokenHash: k.token(node, time.Now().Add(time.Hour)), NodeID: node, Certificate: c, At: time.Now()})
		return err
	}
	require.NoError(t, enrol(certificate(1, "g1"+node)))
	require.ErrorIs(t, renew(certificate(3, "g3"+node)), agentapi.ErrGenerationMoved)
	second := certificate(2, "g2"+node)
	require.NoError(t, renew(second))
	require.ErrorIs(t, renew(certificate(2, "other"+node)), agentapi.ErrGenerationMoved)
	id, err = k.store.Identity(ctx, node)
	require.NoError(t, err)
	same(t, second, id.Current)
	require.False(t, id.Locked)

	require.NoError(t, k.store.Lock(ctx, node, "copied", time.Now()))
	require.NoError(t, k.store.Lock(ctx, node, "copied again", time.Now()))
	id, err = k.store.Identity(ctx, node)
	require.NoError(t, err)
	require.True(t, id.Locked)
	require.ErrorIs(t, renew(certificate(3, "g3"+node)), agentapi.ErrGenerationMoved)
	require.NoError(t, enrol(certificate(3, "g3"+node)))
	id, err = k.store.Identity(ctx, node)
	require.NoError(t, err)
	require.False(t, id.Locked)
	require.NoError(t, k.store.Alarm(ctx, agentapi.Alarm{Kind: agentapi.AlarmTokenReused, NodeID: node, Address: "127.0.0.1", Detail: "test", At: time.Now()}))
}

func heartbeats(t *testing.T, k kind) {
	ctx, node := t.Context(), k.node()
	reported := func() string {
		got, err := k.store.Standings(ctx, []string{node, "node_unknown", node})
		require.NoError(t, err)
		require.Len(t, got, 1, "a node that is not there is missing")
		require.Equal(t, node, got[node].NodeID)
		require.Nil(t, got[node].LockedAt)
		require.Zero(t, got[node].Generation, "it never enrolled")
		return got[node].ReportedBoot
	}
	require.Empty(t, reported())
	heartbeat := agentapi.Heartbeat{NodeID: node, BootID: "b1", AgentVersion: "v", Generation: 1, Address: "127.0.0.1", At: time.Now()}
	require.NoError(t, k.store.WriteHeartbeats(ctx, []agentapi.Heartbeat{heartbeat}))
	require.Empty(t, reported(), "a heartbeat alone is no report")
	heartbeat.Report = &agentapi.Report{BootID: "b1", At: heartbeat.At, Health: spec.HealthReport{CPUs: 4}}
	require.NoError(t, k.store.WriteHeartbeats(ctx, []agentapi.Heartbeat{heartbeat}))
	heartbeat.Report, heartbeat.At = nil, heartbeat.At.Add(time.Second)
	require.NoError(t, k.store.WriteHeartbeats(ctx, []agentapi.Heartbeat{heartbeat}))
	require.Equal(t, "b1", reported(), "it stays when a heartbeat brings none")
	require.NoError(t, k.store.WriteHeartbeats(ctx, nil))
}

func TestWriteHeartbeats_ClassifiesReports(t *testing.T) {
	t.Parallel()
	d := dbtest.Store(t)
	sku, err := d.CreateSKU(t.Context(), "h100x8", spec.SKUSpec{GPUs: 8})
	require.NoError(t, err)
	k := kindOf(t, d, &sku.ID)
	node := k.node()
	id, err := k.store.Identity(t.Context(), node)
	require.NoError(t, err)
	require.Equal(t, sku.ID, id.SKUID)
	heartbeats := []agentapi.Heartbeat{{NodeID: node, SKUID: id.SKUID, BootID: "b", Generation: 1, At: time.Now(),
		Report: &agentapi.Report{BootID: "b", Health: spec.HealthReport{GPUs: make([]spec.GPUReport, 7)}}}}
	for i := range 999 { // nodes that are gone take nothing from the others
		heartbeats = append(heartbeats, agentapi.Heartbeat{NodeID: fmt.Sprintf("node_gone%d", i), BootID: "b", Generation: 1, At: time.Now()})
	}
	require.NoError(t, k.store.WriteHeartbeats(t.Context(), heartbeats))
	got, err := d.LatestHeartbeat(t.Context(), node)
	require.NoError(t, err)
	require.Equal(t, []string{"8 GPUs expected, 7 found"}, got.Unhealthy)

	poison := heartbeats[0]
	poison.AgentVersion, poison.At = "\x00", time.Now()
	require.ErrorIs(t, k.store.WriteHeartbeats(t.Context(), []agentapi.Heartbeat{poison}), agentapi.ErrRejected)
	stale := heartbeats[0]
	stale.Report = &agentapi.Report{BootID: "an earlier boot", Health: spec.HealthReport{CPUs: 1}}
	stale.At = time.Now()
	require.NoError(t, k.store.WriteHeartbeats(t.Context(), []agentapi.Heartbeat{stale}))
	got, err = d.LatestHeartbeat(t.Context(), node)
	require.NoError(t, err)
	require.Len(t, got.Report.GPUs, 7, "a report of an earlier boot is not taken for this one's")
}

// countAudit returns how many audit rows of an identity a node has, of all names for "".
func countAudit(t *testing.T, d *db.Store, node, name string) (count int) {
	t.Helper()
	rows, err := d.NodeTimeline(t.Context(), node, 0, 100)
	require.NoError(t, err)
	for _, row := range rows {
		if name == "" && row.Kind == db.EntryObservation || row.Name == name {
			count++
		}
	}
	return count
}

func TestServer_OnPostgres(t *testing.T) {
	t.Parallel()
	d := dbtest.Store(t)
	k := kindOf(t, d, nil)
	b := start(t, func(c *agentapi.Config) { c.Store = k.store })
	b.ageCertificates()
	node := k.node()
	text := hex.EncodeToString(randomBytes())
	hash := sha256.Sum256([]byte(text))
	require.NoError(t, d.Tx(t.Context(), func(tx *db.Tx) error {
		return tx.IssueEnrollmentToken(t.Context(), node, "", hash[:], time.Now().Add(time.Hour))
	}))
	key := newKey(t)
	var cert, again protocol.CertificateResponse
	b.client(nil).ok(protocol.PathEnroll, protocol.EnrollRequest{Token: text, CSRPEM: csr(t, key)}, &cert)
	b.client(nil).ok(protocol.PathEnroll, protocol.EnrollRequest{Token: text, CSRPEM: csr(t, key)}, &again)
	require.Equal(t, cert.CertificatePEM, again.CertificatePEM)
	for range 5 { // a root tenant has the used token, too: the audit log names him once
		b.client(nil).refused(409, protocol.ProblemTokenUsed, protocol.PathEnroll, protocol.EnrollRequest{Token: text, CSRPEM: csr(t, newKey(t))})
	}
	require.Equal(t, 1, countAudit(t, d, node, string(agentapi.AlarmTokenReused)))
	a := b.with(key, cert)
	in := a.heartbeat()
	in.Report = &spec.HealthReport{CPUs: 12}
	var out protocol.HeartbeatResponse
	a.ok(protocol.PathHeartbeat, in, &out)
	require.Empty(t, out.Actions)
	require.Eventually(t, func() bool {
		got, err := d.LatestHeartbeat(t.Context(), node)
		return err == nil && got.Report != nil && got.Report.CPUs == 12
	}, runenv.Patience(10*time.Second), 10*time.Millisecond)
	next := newKey(t)
	a.ok(protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, next)}, &cert)
	require.Equal(t, 2, countAudit(t, d, node, ""), "the enrolment and the alarm; a routine renewal is no audit row")
	a2 := b.with(next, cert)
	a2.ok(protocol.PathHeartbeat, a2.heartbeat(), &out)
	a.refused(403, protocol.ProblemSuperseded, protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, newKey(t))})
	a2.refused(403, protocol.ProblemLocked, protocol.PathHeartbeat, a2.heartbeat())
	events, err := d.RelayEvents(t.Context(), 100)
	require.NoError(t, err)
	require.Positive(t, events)
}
