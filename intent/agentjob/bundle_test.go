package agentjob_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/agentjob"
	"github.com/slipway-cloud/slipway/intent/onboarding"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestReissueBundle_GoesToThoseWhoCanUseIt asks for a bundle for nodes in every position.
func TestReissueBundle_GoesToThoseWhoCanUseIt(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	site := dbtest.Site(t, store)
	profile := dbtest.Profile(t, store, dbtest.At(site.ID))
	c, err := onboarding.Check(t.Context(), store, onboarding.Request{
		SiteID: site.ID, ProfileID: profile.ID, SKUID: dbtest.SKU(t, store).ID, Hostname: "waits", Manual: true,
	})
	require.NoError(t, err)
	var waiting db.Job
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		waiting, _, err = onboarding.Accept(t.Context(), tx, c, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"})
		return err
	}))
	other := dbtest.Job(t, store, dbtest.At(site.ID), dbtest.Kind("decommission"))
	served := dbtest.Node(t, store, dbtest.At(site.ID), dbtest.With(profile.ID), dbtest.Active())
	bare := dbtest.Node(t, store, dbtest.At(site.ID), dbtest.Active())
	for name, c := range map[string]struct {
		node   string
		job    string
		reason intent.Reason
		holder string
	}{
		"its job waits":                      {node: *waiting.NodeID, job: waiting.ID},
		"in service, without a login by SSH": {node: served.ID},
		"another job holds it":               {node: *other.NodeID, reason: intent.ReasonJobHoldsNode, holder: other.ID},
		"no profile":                         {node: bare.ID, reason: intent.ReasonNoProfile},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := store.Tx(t.Context(), func(tx *db.Tx) error {
				got, err := agentjob.ReissueBundle(t.Context(), tx, c.node)
				if err == nil {
					require.Equal(t, []string{c.node, profile.ID, c.job}, []string{got.Node.ID, got.Profile.ID, got.JobID})
				}
				return err
			})
			if c.reason == "" {
				require.NoError(t, err)
				return
			}
			refusal := intent.AsRefusal(err)
			require.NotNil(t, refusal, err)
			require.Equal(t, intent.Conflict, refusal.Kind)
			require.Equal(t, c.reason, refusal.Reason)
			require.Equal(t, c.holder, refusal.Existing)
		})
	}
}
