package agentapi_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestRenewal_RepeatAfterLostAnswer(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	b.ageCertificates()
	a := b.enrolled("n1")
	next := newKey(t)
	var first, again protocol.CertificateResponse
	a.ok(protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, next)}, &first)
	require.EqualValues(t, 2, first.Generation)
	// The answer is lost: the agent still has generation 1 and the new key.
	a.refused(403, protocol.ProblemSuperseded, protocol.PathHeartbeat, a.heartbeat())
	a.ok(protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, next)}, &again)
	require.Equal(t, first, again)

	a2 := b.with(next, again)
	var hb protocol.HeartbeatResponse
	a2.ok(protocol.PathHeartbeat, a2.heartbeat(), &hb)
	require.Empty(t, b.store.Alarms(), "a lost answer is no theft")
}

// A root tenant has the agent's key, and asks again and again: the node keeps its certificate, and
// nothing is stored.
func TestRenewal_NotDueKeepsTheCertificate(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	a := b.enrolled("n1")
	before := b.issued()
	for range 15 {
		var out protocol.CertificateResponse
		a.ok(protocol.PathRenew, a.renewal(), &out)
		require.Equal(t, a.cert.CertificatePEM, out.CertificatePEM)
	}
	require.Equal(t, before, b.issued())
	b.moveTo(nodeca.NodeLife * 2 / 5)
	next := a.renewed()
	require.EqualValues(t, 2, next.cert.Generation)
	next.heartbeatAccepted()
	require.Empty(t, b.store.Alarms())
}

// Each certificate has a bucket on each route: a former tenant's old certificate takes no place of
// the node's own agent, and a busy route none of another route.
func TestCertificate_HasARateOnEachRoute(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	b.ageCertificates()
	former := b.enrolled("n1")
	a := former.renewed()
	for _, path := range []string{protocol.PathRenew, protocol.PathHeartbeat} {
		var body any = former.heartbeat()
		if path == protocol.PathRenew {
			body = protocol.RenewRequest{}
		}
		status := 0
		for range 300 {
			if status, _, _ = former.post(path, body); status == http.StatusTooManyRequests {
				break
			}
		}
		h := former.refused(http.StatusTooManyRequests, protocol.ProblemTooMany, path, body)
		require.NotEmpty(t, h.Get("Retry-After"))
	}
	a.heartbeatAccepted()
	require.EqualValues(t, 3, a.renewed().cert.Generation)
}

func TestRenewal_ConcurrentRepeat(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	b.ageCertificates()
	a := b.enrolled("n1")
	req := protocol.RenewRequest{CSRPEM: csr(t, newKey(t))}
	got := make([]string, 6)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { _, _, raw := a.post(protocol.PathRenew, req); got[i] = string(raw) })
	}
	wg.Wait()
	for _, g := range got {
		require.Equal(t, got[0], g)
		require.Contains(t, g, `"generation":2`)
	}
	require.Empty(t, b.store.Alarms())
}

func TestRenewal_WithStolenGenerationLocksIdentity(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	b.ageCertificates()
	stolen := b.enrolled("n1") // key and certificate were copied now
	next := newKey(t)
	var cert protocol.CertificateResponse
	stolen.ok(protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, next)}, &cert)
	a := b.with(next, cert)

	stolen.refused(403, protocol.ProblemSuperseded, protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, newKey(t))})
	require.Len(t, b.store.Alarms(), 1)
	require.Equal(t, agentapi.AlarmGenerationReused, b.store.Alarms()[0].Kind)
	// The server cannot know which of the two is the node, so it refuses both.
	a.refused(403, protocol.ProblemLocked, protocol.PathHeartbeat, a.heartbeat())
	a.refused(403, protocol.ProblemLocked, protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, newKey(t))})
	stolen.refused(403, protocol.ProblemLocked, protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, next)})
}

func TestRenewal_AfterStolenRenewalLocksIdentity(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	b.ageCertificates()
	node := b.enrolled("n1")
	copyKey := newKey(t)
	var cert protocol.CertificateResponse
	node.ok(protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, copyKey)}, &cert)
	copied := b.with(copyKey, cert)
	node.refused(403, protocol.ProblemSuperseded, protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, newKey(t))})
	copied.refused(403, protocol.ProblemLocked, protocol.PathHeartbeat, copied.heartbeat())
}

func TestRemovedNode_Refused(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	a := b.enrolled("n1")
	var hb protocol.HeartbeatResponse
	for _, s := range []lifecycle.NodeStatus{lifecycle.NodeRetired, lifecycle.NodeRemoving, lifecycle.NodeQuarantined} {
		b.store.SetStatus("n1", s)
		a.ok(protocol.PathHeartbeat, a.heartbeat(), &hb)
	}
	b.store.SetStatus("n1", lifecycle.NodeDeleted)
	a.refused(403, protocol.ProblemNodeRemoved, protocol.PathHeartbeat, a.heartbeat())
	a.refused(403, protocol.ProblemNodeRemoved, protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, newKey(t))})
}
