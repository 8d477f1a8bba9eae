package agentapi_test

import (
	"crypto/tls"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestEnrolment_RepeatReturnsSameCertificate(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	tok, key := b.token("n1"), newKey(t)
	var first, again protocol.CertificateResponse
	c := b.client(nil)
	c.ok(protocol.PathEnroll, protocol.EnrollRequest{Token: tok, CSRPEM: csr(t, key)}, &first)
	require.Equal(t, "n1", first.NodeID)
	require.EqualValues(t, 1, first.Generation)
	b.ahead.Store(int64(2 * time.Hour)) // the lost answer may be noticed after the token has expired
	c.ok(protocol.PathEnroll, protocol.EnrollRequest{Token: tok, CSRPEM: csr(t, key)}, &again)
	require.Equal(t, first, again)
	require.Empty(t, b.store.Alarms())
}

func TestEnrolment_OneOfTwoKeysWins(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	tok := b.token("n1")
	const keys = 8
	status := make([]int, keys)
	reqs := make([]protocol.EnrollRequest, keys)
	for i := range keys {
		reqs[i] = protocol.EnrollRequest{Token: tok, CSRPEM: csr(t, newKey(t))}
	}
	var wg sync.WaitGroup
	for i := range keys {
		c := b.client(nil)
		wg.Go(func() { status[i], _, _ = c.post(protocol.PathEnroll, reqs[i]) })
	}
	wg.Wait()
	won, lost := 0, 0
	for _, s := range status {
		switch s {
		case http.StatusOK:
			won++
		case http.StatusConflict:
			lost++
		}
	}
	require.Equal(t, 1, won)
	require.Equal(t, keys-1, lost)
	require.Len(t, b.store.Alarms(), keys-1)
	require.Equal(t, agentapi.AlarmTokenReused, b.store.Alarms()[0].Kind)
	require.Equal(t, "n1", b.store.Alarms()[0].NodeID)
}

func TestEnrolment_RefusesTokens(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	c := b.client(nil)
	ask := func(tok string) protocol.EnrollRequest {
		return protocol.EnrollRequest{Token: tok, CSRPEM: csr(t, newKey(t))}
	}
	c.refused(401, protocol.ProblemTokenUnknown, protocol.PathEnroll, ask("no such token"))
	c.refused(401, protocol.ProblemTokenExpired, protocol.PathEnroll, ask(b.store.AddToken("n1", b.now().Add(-time.Second))))
	revoked := b.token("n1")
	b.store.Revoke(revoked)
	c.refused(401, protocol.ProblemTokenRevoked, protocol.PathEnroll, ask(revoked))
	gone := b.token("n2")
	b.store.SetStatus("n2", lifecycle.NodeDeleted)
	c.refused(403, protocol.ProblemNodeRemoved, protocol.PathEnroll, ask(gone))

	c.refused(400, protocol.ProblemInvalid, protocol.PathEnroll, ask(""))
	c.refused(400, protocol.ProblemInvalid, protocol.PathEnroll, protocol.EnrollRequest{Token: "x", CSRPEM: "no pem"})
	c.refused(400, protocol.ProblemInvalid, protocol.PathEnroll, []byte(`{"token":"x"} {}`))
	c.refused(400, protocol.ProblemInvalid, protocol.PathEnroll, []byte(`not json`))
	c.refused(413, protocol.ProblemTooLarge, protocol.PathEnroll, []byte(`{"token":"`+strings.Repeat("x", 2<<20)+`"}`))
	c.refused(404, protocol.ProblemNotFound, "/agent/v1/nothing", nil)
}

func TestEnrolment_NewTokenUnlocks(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	old := b.enrolled("n1")
	require.NoError(t, b.store.Lock(t.Context(), "n1", "test", b.now()))
	old.refused(403, protocol.ProblemLocked, protocol.PathHeartbeat, old.heartbeat())
	fresh := b.enrolled("n1")
	require.EqualValues(t, 2, fresh.cert.Generation)
	var hb protocol.HeartbeatResponse
	fresh.ok(protocol.PathHeartbeat, fresh.heartbeat(), &hb)
	old.refused(403, protocol.ProblemFormer, protocol.PathHeartbeat, old.heartbeat())
}

func TestEnrolment_LimitedPerAddress(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *agentapi.Config) { c.EnrollRate, c.EnrollBurst = 0.01, 3 })
	c := b.client(nil)
	ask := protocol.EnrollRequest{Token: "guess", CSRPEM: csr(t, newKey(t))}
	for range 3 {
		c.refused(401, protocol.ProblemTokenUnknown, protocol.PathEnroll, ask)
	}
	h := c.refused(429, protocol.ProblemTooMany, protocol.PathEnroll, ask)
	require.Equal(t, "100", h.Get("Retry-After"))
	b.ahead.Store(int64(101 * time.Second))
	c.refused(401, protocol.ProblemTokenUnknown, protocol.PathEnroll, ask)
}

func TestOnlyEnrolmentAnswersWithoutACertificate(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	c := b.client(nil)
	c.refused(401, protocol.ProblemCertificate, protocol.PathHeartbeat, protocol.Heartbeat{})
	c.refused(401, protocol.ProblemCertificate, protocol.PathRenew, protocol.RenewRequest{})

	// The server's own certificate is of the same CA and is still no client.
	own, err := b.ca.IssueServer([]string{"127.0.0.1"})
	require.NoError(t, err)
	_, err = b.client(&own).http.Post(b.srv.URL()+protocol.PathHeartbeat, "application/json", strings.NewReader("{}"))
	require.Error(t, err)

	old := &tls.Config{RootCAs: b.ca.Pool(), MaxVersion: tls.VersionTLS12, MinVersion: tls.VersionTLS12}
	_, err = tls.Dial("tcp", b.srv.Addr(), old)
	require.Error(t, err, "TLS 1.2 is refused")
}

func TestACertificateEndsEvenOnAnOpenConnection(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	a := b.enrolled("n1")
	var hb protocol.HeartbeatResponse
	a.ok(protocol.PathHeartbeat, a.heartbeat(), &hb)
	b.ahead.Store(int64(nodeca.NodeLife + time.Hour))
	a.refused(401, protocol.ProblemCertificateEnded, protocol.PathHeartbeat, a.heartbeat())
}

func TestServer_StartReportsMissingConfig(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, agentapi.New(agentapi.Config{}).Start(t.Context()), "needs a store")
}
