package onboarding_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/onboarding"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func newRequest(t *testing.T, store *db.Store) onboarding.Request {
	t.Helper()
	site := dbtest.Site(t, store)
	return onboarding.Request{
		SiteID: site.ID, ProfileID: dbtest.Profile(t, store, dbtest.At(site.ID)).ID, SKUID: dbtest.SKU(t, store).ID, Hostname: "gpu-1", Manual: true,
	}
}

func accept(t *testing.T, store *db.Store, c onboarding.Checked) (job db.Job, node db.Node, err error) {
	t.Helper()
	err = store.Tx(t.Context(), func(tx *db.Tx) error {
		job, node, err = onboarding.Accept(t.Context(), tx, c, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"})
		return err
	})
	return job, node, err
}

func TestCheck_NamesEveryWrongField(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	_, err := onboarding.Check(t.Context(), store, onboarding.Request{
		SiteID: "site_x", ProfileID: "prof_x", SKUID: "sku_x", Hostname: "No", BMC: intent.BMC{Address: "10.0.0.1/x", CredentialRef: "bmc/none", CipherSuite: 3},
	})
	refusal := intent.AsRefusal(err)
	require.NotNil(t, refusal, err)
	require.Equal(t, intent.Invalid, refusal.Kind)
	var names []string
	for _, f := range refusal.Fields {
		names = append(names, f.Name)
		if f.Name == "bmc.credential_ref" {
			require.Equal(t, intent.ReasonSecretMissing, f.Reason)
		}
	}
	require.Equal(t, []string{"site_id", "profile_id", "sku_id", "hostname", "bmc.address", "bmc.ipmi_cipher_suite", "bmc.credential_ref"}, names)
}

func TestAccept_TakesUpOnlyALeftNode(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	c, err := onboarding.Check(t.Context(), store, newRequest(t, store))
	require.NoError(t, err)
	job, node, err := accept(t, store, c)
	require.NoError(t, err)
	require.True(t, onboarding.IsManual(job))
	require.Equal(t, contract.JobWorkflowID(contract.KindOnboarding, job.ID), job.WorkflowID)

	_, _, err = accept(t, store, c)
	require.Equal(t, intent.LiveJob, intent.AsRefusal(err).Kind)
	require.Equal(t, job.ID, intent.AsRefusal(err).Existing)

	c.Hostname = dbtest.Node(t, store, dbtest.At(c.SiteID), dbtest.Active()).Hostname
	_, _, err = accept(t, store, c)
	require.Equal(t, intent.Conflict, intent.AsRefusal(err).Kind)
	require.NotEqual(t, node.ID, intent.AsRefusal(err).Existing)
}

// A node that was bootstrapped by hand has one job, however often its agent enrols.
func TestStartEnrolled_StartsOneManualJob(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	r := newRequest(t, store)
	var node db.Node
	for range 2 {
		require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) (err error) {
			if node.ID == "" {
				node, err = tx.CreateNode(t.Context(), db.NewNode{Hostname: r.Hostname, SiteID: r.SiteID, SKUID: &r.SKUID, ProfileID: &r.ProfileID})
			}
			if err != nil {
				return err
			}
			return onboarding.StartEnrolled(t.Context(), tx, node.ID)
		}))
	}
	jobs, err := store.ListJobs(t.Context(), db.JobFilter{NodeID: node.ID}, "", 10)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	var in contract.OnboardingInput
	require.NoError(t, json.Unmarshal(jobs[0].Input, &in))
	require.True(t, in.Manual)
	require.Equal(t, r.Hostname, in.Hostname)
}

// TestAccept_AnotherBMCAddress: a node that is onboarded again at another BMC address gets another
// record. The data of the earlier BMC stays with it: its login, its pin and the stop of logins to
// it.
func TestAccept_AnotherBMCAddress(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	c, err := onboarding.Check(t.Context(), store, newRequest(t, store))
	require.NoError(t, err)
	c.Manual = false
	onboard := func(address, login string) db.BMC {
		t.Helper()
		c.BMC = intent.BMC{Address: address, Protocol: "redfish", CredentialRef: login}
		job, node, err := accept(t, store, c)
		require.NoError(t, err)
		require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
			for _, move := range []lifecycle.Transition[lifecycle.JobStatus]{lifecycle.JobStart, lifecycle.JobComplete} {
				if _, err := tx.TransitionJob(t.Context(), job.ID, move, nil, db.Actor{Owner: lifecycle.OwnerSystem}); err != nil {
					return err
				}
			}
			return nil
		}))
		b, err := store.BMCOfNode(t.Context(), node.ID)
		require.NoError(t, err)
		var in contract.OnboardingInput
		require.NoError(t, json.Unmarshal(job.Input, &in))
		require.Equal(t, b.ID, in.BMCID)
		return b
	}
	first := onboard("https://192.0.2.1", "bmc/one")
	require.NoError(t, store.SetBMCPin(t.Context(), first.ID, "abcd"))
	require.NoError(t, store.BlockBMCLogin(t.Context(), first.ID, "it rejected a login"))
	same := onboard("192.0.2.1", "bmc/two")
	require.Equal(t, first.ID, same.ID, "the same address, written in another way")
	require.Equal(t, []string{"abcd", "bmc/two"}, []string{same.PinSHA256, same.CredentialRef})
	require.NotNil(t, same.AuthBlockedAt)

	moved := onboard("https://192.0.2.2", "bmc/three")
	require.NotEqual(t, first.ID, moved.ID)
	require.Empty(t, moved.PinSHA256, "nobody has approved this one")
	require.Nil(t, moved.AuthBlockedAt)
	left, err := store.BMC(t.Context(), first.ID)
	require.NoError(t, err)
	require.Nil(t, left.NodeID)
	require.Equal(t, []string{"192.0.2.1", "bmc/two", "abcd"}, []string{left.Address, left.CredentialRef, left.PinSHA256})
	require.NotNil(t, left.AuthBlockedAt)
}

// TestAccept_BMCOfAnotherNode: two nodes at one BMC would switch and erase each other's machine.
func TestAccept_BMCOfAnotherNode(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	c, err := onboarding.Check(t.Context(), store, newRequest(t, store))
	require.NoError(t, err)
	c.Manual = false
	c.BMC = intent.BMC{Address: "https://10.0.0.7", Protocol: "redfish", CredentialRef: "bmc/a"}
	_, first, err := accept(t, store, c)
	require.NoError(t, err)

	host := c.Hostname
	c.Hostname, c.BMC.Address = "gpu-other", "10.0.0.7:443"
	var taken *db.ConflictError
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error { // a batch goes on and commits
		_, _, err := onboarding.Accept(t.Context(), tx, c, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"})
		require.ErrorAs(t, err, &taken)
		return nil
	}))
	require.Equal(t, first.ID, taken.Existing)
	require.Contains(t, taken.Message, "node "+host)
	_, err = store.LiveNodeOfHost(t.Context(), c.SiteID, "gpu-other")
	require.ErrorIs(t, err, db.ErrNotFound, "nothing is left of what was refused")

	c.BMC.SystemID = "Node2"
	_, _, err = accept(t, store, c)
	require.ErrorAs(t, err, &taken, "which system the other one is, is not known yet")
}
