package batch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/batch"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func TestCheck_RefusesWhatIsWrongForEveryItem(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	elsewhere := dbtest.Profile(t, store, dbtest.At(dbtest.Site(t, store).ID))
	for site, want := range map[string][]string{dbtest.Site(t, store).ID: {"profile_id"}, "site_x": {"site_id", "profile_id"}} {
		_, err := batch.Check(t.Context(), store, batch.Request{SiteID: site, ProfileID: elsewhere.ID, Items: []batch.Item{{Hostname: "gpu-1"}}})
		refusal := intent.AsRefusal(err)
		require.NotNil(t, refusal, err)
		var names []string
		for _, f := range refusal.Fields {
			names = append(names, f.Name)
		}
		require.Equal(t, want, names)
	}
}

// TestAccept_EachItemStandsByItself has items of which one is accepted: the second is of the same
// server, so that only the database finds it out, and the third cannot be stored as it is.
func TestAccept_EachItemStandsByItself(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	site := dbtest.Site(t, store)
	_, err := store.PutSecretVersion(t.Context(), "bmc/a", "base64key://", []byte("sealed"), []byte("f"))
	require.NoError(t, err)
	dbtest.StateUse(t, store, spec.SecretBMCLogin, "bmc/a")
	bmc := func(address string) intent.BMC { return intent.BMC{Address: address, CredentialRef: "bmc/a"} }
	c, err := batch.Check(t.Context(), store, batch.Request{
		Name: "rack 7", SiteID: site.ID, ProfileID: dbtest.Profile(t, store, dbtest.At(site.ID)).ID, SKUID: dbtest.SKU(t, store).ID,
		Items: []batch.Item{{Hostname: "gpu-1", BMC: bmc("127.0.0.1")}, {Hostname: "gpu-1", BMC: bmc("127.0.0.2")}, {Hostname: strings.Repeat("x", 300), BMC: bmc("127.0.0.3")}},
	})
	require.NoError(t, err)
	var b db.Batch
	var described []error
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		described = nil
		b, err = batch.Accept(t.Context(), tx, c, func(err error) string { described = append(described, err); return "no: " + err.Error() }, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"})
		return err
	}))
	items, err := store.BatchItems(t.Context(), b.ID, -1, 10)
	require.NoError(t, err)
	require.Len(t, items, 3)
	require.NotNil(t, items[0].JobID)
	require.Nil(t, items[1].JobID)
	require.Equal(t, intent.LiveJob, intent.AsRefusal(described[0]).Kind)
	require.Equal(t, *items[0].JobID, intent.AsRefusal(described[0]).Existing)
	require.Equal(t, strings.Repeat("x", 255), items[2].Hostname)
	require.True(t, strings.HasPrefix(*items[2].Error, "no: "), *items[2].Error)
	jobs, err := store.ListJobs(t.Context(), db.JobFilter{}, "", 10)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Equal(t, b.ID, *jobs[0].BatchID)
}
