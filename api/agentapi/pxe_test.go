package agentapi_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// admitted is in which states the agent of a PXE node is served.
var admitted = map[lifecycle.NodeStatus]bool{
	lifecycle.NodeInstalling: true, lifecycle.NodeInstalled: true, lifecycle.NodeActive: true, lifecycle.NodeReprovision: true,
	lifecycle.NodeDeprovisioning: true, lifecycle.NodeMigrating: true,
}

// Every state of a PXE node: who has no identity, and who has one.
func TestPXEAgent_ServedStates(t *testing.T) {
	t.Parallel()
	for _, state := range lifecycle.NodePXE.States {
		b := start(t, nil)
		b.ageCertificates()
		a := b.enrolled("n1")
		status, typ := http.StatusServiceUnavailable, protocol.ProblemBusy
		if state.Terminal {
			status, typ = http.StatusForbidden, protocol.ProblemNodeRemoved
		}
		b.store.SetLifecycle("n1", lifecycle.NodePXE.Lifecycle, state.State)
		enrol := protocol.EnrollRequest{Token: b.token("n1"), CSRPEM: csr(t, newKey(t))}
		if !admitted[state.State] {
			for path, body := range map[string]any{protocol.PathEnroll: enrol, protocol.PathHeartbeat: a.heartbeat(), protocol.PathRenew: protocol.RenewRequest{CSRPEM: csr(t, newKey(t))}} {
				h := a.refused(status, typ, path, body)
				require.Equal(t, state.Terminal, h.Get("Retry-After") == "", state.State)
			}
			continue
		}
		var hb protocol.HeartbeatResponse
		a.ok(protocol.PathHeartbeat, a.heartbeat(), &hb)
		var cert protocol.CertificateResponse
		a.ok(protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, newKey(t))}, &cert)
		b.client(nil).ok(protocol.PathEnroll, enrol, &cert)
		require.EqualValues(t, 3, cert.Generation, state.State)
	}
}

// A PXE node over the database: it has no site, and nothing of its agent moves
// its state.
func TestPXEAgent_EnrolsAndClaims(t *testing.T) {
	t.Parallel()
	f := newField(t, shortLease)
	n := dbtest.PXENode(t, f.db, "52:54:00:00:00:01", lifecycle.NodeDeprovisioning)
	require.Empty(t, n.SiteID)
	f.node, f.agent = n.ID, f.enrol(n.ID)
	in := f.agent.heartbeat()
	in.Report = &spec.HealthReport{CPUs: 12}
	var out protocol.HeartbeatResponse
	f.agent.ok(protocol.PathHeartbeat, in, &out)
	require.Eventually(t, func() bool {
		got, err := f.db.LatestHeartbeat(t.Context(), n.ID)
		return err == nil && got.BootID == "boot-1" && got.Report != nil && got.Report.CPUs == 12 && got.Address != ""
	}, runenv.Patience(10*time.Second), 10*time.Millisecond)
	scrub := f.enqueue(lifecycle.TaskKindScrub, "scrub")
	require.Equal(t, scrub.ID, open(t, f.agent.cert.TaskKeys, f.claim(protocol.ClaimRequest{BootID: "boot-1"}).Task).ID)

	held, err := f.db.Task(t.Context(), scrub.ID)
	require.NoError(t, err)

	// The live system keeps nothing over a boot, so its next boot is another installation.
	first := f.agent
	f.agent = f.enrol(n.ID)
	require.EqualValues(t, 2, f.agent.cert.Generation)
	first.refused(http.StatusForbidden, protocol.ProblemFormer, protocol.PathHeartbeat, first.heartbeat())
	require.Eventually(t, func() bool {
		require.Nil(t, f.claim(protocol.ClaimRequest{BootID: "boot-2"}).Task)
		task, err := f.db.Task(t.Context(), scrub.ID)
		require.NoError(t, err)
		if task.Status == lifecycle.TaskDispatched {
			return false // the older installation may still run
		}
		require.False(t, task.StatusAt.Before(*held.LeaseUntil))
		return true
	}, runenv.Patience(10*time.Second), 20*time.Millisecond)
	require.Equal(t, lifecycle.TaskUncertain, f.status(scrub.ID), "an erasure is not begun a second time by itself")
	require.NoError(t, f.db.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.RequeueTask(t.Context(), scrub.ID, db.Actor{Owner: lifecycle.OwnerAdmin})
		return err
	}))
	require.Equal(t, scrub.ID, open(t, f.agent.cert.TaskKeys, f.claim(protocol.ClaimRequest{BootID: "boot-2"}).Task).ID)

	now, err := f.db.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, n.Status, now.Status)
	_, total, err := f.db.NodeHistory(t.Context(), n.ID, 1, 0)
	require.NoError(t, err)
	require.EqualValues(t, 6, total, "from discovered to deprovisioning, and nothing since")
}

// The revocation of a node's tokens and the redemption of one lock the node and the token in the
// same order.
func TestToken_RedeemedWhileOthersAreIssued(t *testing.T) {
	t.Parallel()
	d := dbtest.Store(t)
	k := kindOf(t, d, nil)
	node := k.node()
	done := make(chan error, 1)
	issue := func() ([32]byte, error) {
		h := sha256.Sum256(randomBytes())
		return h, d.Tx(t.Context(), func(tx *db.Tx) error {
			return tx.IssueEnrollmentToken(t.Context(), node, "", h[:], time.Now().Add(time.Hour))
		})
	}
	go func() {
		for range 50 {
			if _, err := issue(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	generation, ended := int64(1), 0
	for range 50 {
		h, err := issue()
		require.NoError(t, err)
		_, err = k.store.Redeem(t.Context(), agentapi.Redemption{TokenHash: h, NodeID: node, Certificate: certificate(generation, hex.EncodeToString(h[:])), Address: "127.0.0.1", At: time.Now()})
		if err != nil {
			require.ErrorIs(t, err, agentapi.ErrTokenEnded)
			ended++
			continue
		}
		generation++
	}
	require.NoError(t, <-done)
	id, err := k.store.Identity(t.Context(), node)
	require.NoError(t, err)
	require.EqualValues(t, generation-1, id.Current.Generation)
	t.Log("revoked before they were used:", ended)
}
