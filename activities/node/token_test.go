package node

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// TestATokenLivesWhileItIsWaitedFor: an operator who fixes the node's way to the
// agent API has the stage retried long after the token was made.
func TestATokenLivesWhileItIsWaitedFor(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	sec, err := secrets.Open(t.Context(), store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	node := dbtest.Node(t, store)
	a := &Activities{Store: store, Secrets: sec}
	redeem := func(hash []byte) (got db.TokenOutcome) {
		require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
			var err error
			_, got, err = tx.RedeemEnrollmentToken(t.Context(), hash, []byte("key"), 1)
			return err
		}))
		return got
	}
	in := WaitAgentIn{JobRef: contract.JobRef{JobID: "job_1", NodeID: node.ID}, UserDataRef: cloudinit.SecretName("job_1", 1), Until: time.Now().Add(time.Hour)}
	require.NoError(t, a.keepToken(t.Context(), in), "no user-data, nothing to keep")
	hash := hashToken("spent")
	past := time.Now().Add(-time.Minute)
	_, err = cloudinit.Seal(t.Context(), sec, in.UserDataRef, cloudinit.Sealed{Document: []byte("{}"), TokenHash: hash, ExpiresAt: past})
	require.NoError(t, err)
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error { return tx.IssueEnrollmentToken(t.Context(), node.ID, "", hash, past) }))
	require.Equal(t, db.TokenExpired, redeem(hash))
	look := in
	look.ObserveOnly = true
	require.NoError(t, a.keepToken(t.Context(), look))
	require.Equal(t, db.TokenExpired, redeem(hash), "a look changes nothing")
	for range 2 {
		require.NoError(t, a.keepToken(t.Context(), in))
	}
	stored, err := store.EnrollmentToken(t.Context(), hash)
	require.NoError(t, err)
	require.WithinDuration(t, in.Until, stored.ExpiresAt, time.Second)
	require.NoError(t, store.RevokeEnrollmentTokens(t.Context(), node.ID))
	require.NoError(t, a.keepToken(t.Context(), in))
	require.Equal(t, db.TokenRevoked, redeem(hash), "a revoked one stays so")
	_, err = cloudinit.OpenSealed(t.Context(), sec, providers.SecretRef(in.UserDataRef))
	require.NoError(t, err)
}
