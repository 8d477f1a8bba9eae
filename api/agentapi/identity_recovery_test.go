package agentapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/nodeca"
)

// renewed renews the agent's certificate and returns the agent with the next one.
func (a *agent) renewed() *agent {
	a.b.Helper()
	key := newKey(a.b.T)
	var cert protocol.CertificateResponse
	a.ok(protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(a.b.T, key)}, &cert)
	return a.b.with(key, cert)
}

func (a *agent) heartbeatAccepted() {
	a.b.Helper()
	var hb protocol.HeartbeatResponse
	a.ok(protocol.PathHeartbeat, protocol.Heartbeat{BootID: "boot-1", Generation: a.cert.Generation}, &hb)
}

func (a *agent) heartbeatRefused(status int, typ string) {
	a.b.Helper()
	a.refused(status, typ, protocol.PathHeartbeat, protocol.Heartbeat{BootID: "boot-1", Generation: a.cert.Generation})
}

func (b *bench) issued() agentapi.Issued {
	b.Helper()
	id, err := b.store.Identity(b.Context(), "n1")
	require.NoError(b, err)
	return id.Current
}

func (b *bench) locked() bool {
	b.Helper()
	id, err := b.store.Identity(b.Context(), "n1")
	require.NoError(b, err)
	return id.Locked
}

func (b *bench) moveTo(ahead time.Duration) { b.ahead.Store(int64(ahead)) }

func (a *agent) renewal() protocol.RenewRequest {
	return protocol.RenewRequest{CSRPEM: csr(a.b.T, newKey(a.b.T))}
}

func TestRenewal_WithAnExpiredCertificate(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *agentapi.Config) { c.RenewGrace = 30 * 24 * time.Hour })
	a, other := b.enrolled("n1"), b.enrolled("n2")
	b.moveTo(nodeca.NodeLife + 29*24*time.Hour)
	a.heartbeatRefused(401, protocol.ProblemCertificateEnded)
	next := a.renewed()
	require.EqualValues(t, 2, next.cert.Generation)
	next.heartbeatAccepted()
	b.moveTo(nodeca.NodeLife + 31*24*time.Hour)
	other.refused(403, protocol.ProblemGraceOver, protocol.PathRenew, other.renewal())
	require.False(t, b.locked())
}

// A restored database knows generation 1 of a node whose agent has renewed since.
func TestAdoption_OfAForgottenGeneration(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	b.ageCertificates()
	first := b.enrolled("n1")
	known := b.issued()
	third := first.renewed().renewed()
	b.store.Forget("n1", known)
	third.heartbeatAccepted()
	require.EqualValues(t, 3, b.issued().Generation)
	require.EqualValues(t, 4, third.renewed().cert.Generation)

	b.store.Forget("n1", known) // and the agent comes back when its certificate has expired
	b.moveTo(nodeca.NodeLife + time.Hour)
	third.renewed().heartbeatAccepted()
	require.False(t, b.locked())
	require.Empty(t, b.store.Alarms())
}

// The database knows the enrolment before the last, and locked it.
func TestAdoption_OfAForgottenEnrolment(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	former := b.enrolled("n1")
	known := b.issued()
	b.moveTo(time.Hour)
	present := b.enrolled("n1")
	b.store.Forget("n1", known)
	require.NoError(t, b.store.Lock(t.Context(), "n1", "copied", b.now().Add(-time.Minute)))
	former.heartbeatRefused(403, protocol.ProblemLocked)
	present.heartbeatAccepted()
	b.moveTo(2 * time.Hour)
	former.heartbeatRefused(403, protocol.ProblemFormer)
	require.Equal(t, 1, b.store.Refusals("n1", agentapi.RefusalFormer))
}

// The copy of a former tenant is refused wherever it is shown, and locks nobody out.
func TestFormerEnrolment_LocksNobody(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	b.ageCertificates()
	former := b.enrolled("n1").renewed().renewed()
	b.moveTo(time.Hour)
	b.aged.Store(0)
	present := b.enrolled("n1")
	former.refused(403, protocol.ProblemFormer, protocol.PathRenew, former.renewal())
	require.Zero(t, b.store.Refusals("n1", agentapi.RefusalFormer), "right after the enrolment it may be a request under way")
	b.moveTo(2 * time.Hour)
	for range 30 {
		former.heartbeatRefused(403, protocol.ProblemFormer)
	}
	require.Less(t, b.store.Refusals("n1", agentapi.RefusalFormer), 30, "what one address repeats is recorded no more")
	require.NotZero(t, b.store.Refusals("n1", agentapi.RefusalFormer))
	require.False(t, b.locked())
	present.heartbeatAccepted()
	require.Empty(t, b.store.Alarms())
}

// An old copy could otherwise shut its node out at any time.
func TestExpiredCopy_LocksNobody(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	copied := b.enrolled("n1")
	b.moveTo(4 * 24 * time.Hour)
	present := copied.renewed()
	b.moveTo(nodeca.NodeLife + time.Hour)
	copied.refused(403, protocol.ProblemSuperseded, protocol.PathRenew, copied.renewal())
	require.Equal(t, 1, b.store.Refusals("n1", agentapi.RefusalExpiredCopy))
	require.False(t, b.locked())
	present.heartbeatAccepted()
}

func TestCertificate_NeverRecorded(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	b.enrolled("n1")
	seen := map[agentapi.RefusalKind]int{}
	for name, c := range map[string]struct {
		id   nodeca.Identity
		typ  string
		kind agentapi.RefusalKind
	}{
		"absurd generation": {nodeca.Identity{NodeID: "n1", Generation: 1 << 60, Enrolment: 1}, protocol.ProblemDenied, agentapi.RefusalAbsurd},
		"absurd enrolment":  {nodeca.Identity{NodeID: "n1", Generation: 2, Enrolment: 1 << 60}, protocol.ProblemDenied, agentapi.RefusalAbsurd},
		"another key":       {nodeca.Identity{NodeID: "n1", Generation: 1, Enrolment: 1}, protocol.ProblemSuperseded, agentapi.RefusalForked},
	} {
		key := newKey(t)
		made, err := b.ca.IssueNode(key.Public(), c.id)
		require.NoError(t, err)
		a := b.with(key, protocol.CertificateResponse{CertificatePEM: string(made.PEM), Generation: c.id.Generation})
		a.heartbeatRefused(403, c.typ)
		seen[c.kind]++
		require.Equal(t, seen[c.kind], b.store.Refusals("n1", c.kind), name)
	}
	require.False(t, b.locked())
}

// The identity ended with its node or system; the next one begins.
func TestDenied_OnEveryRoute(t *testing.T) {
	t.Parallel()
	f := newField(t)
	former := f.agent
	require.NoError(t, f.db.Tx(t.Context(), func(tx *db.Tx) error { return tx.EndAgentIdentity(t.Context(), f.node, "another system is installed") }))
	everyRoute := func(typ string) {
		for path, body := range map[string]any{protocol.PathHeartbeat: protocol.Heartbeat{}, protocol.PathRenew: former.renewal(), protocol.PathTaskClaim: protocol.ClaimRequest{},
			protocol.PathTaskRenew: protocol.RenewTaskRequest{}, protocol.PathTaskResult: protocol.ResultRequest{}} {
			former.refused(403, typ, path, body)
		}
	}
	everyRoute(protocol.ProblemLocked)
	f.agent = f.enrol(f.node)
	everyRoute(protocol.ProblemDenied)
	f.moveTo(nodeca.NodeLife + time.Hour)
	former.refused(403, protocol.ProblemDenied, protocol.PathRenew, former.renewal())
	f.moveTo(0)
	f.agent.heartbeatAccepted()
}

// The privileged half of an agent refuses tasks of a generation before the newest that it has seen.
func TestEnrolment_FollowsTheAgentsGeneration(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	for after, want := range map[int64]int64{0: 1, 41: 42, 1 << 39: 100_000} {
		node := "n" + string(rune('a'+want%26))
		var cert protocol.CertificateResponse
		b.client(nil).ok(protocol.PathEnroll, protocol.EnrollRequest{Token: b.token(node), CSRPEM: csr(t, newKey(t)), AfterGeneration: after}, &cert)
		require.Equal(t, want, cert.Generation)
	}
	b.client(nil).refused(400, protocol.ProblemInvalid, protocol.PathEnroll, protocol.EnrollRequest{Token: b.token("nx"), CSRPEM: csr(t, newKey(t)), AfterGeneration: -1})
}
