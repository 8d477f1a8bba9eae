package bmc_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// audited lists the logins in a BMC's audit log: actor, login, address and outcome.
func (r *planRig) audited(resource string) []string {
	r.t.Helper()
	rows, err := r.store.ResourceTimeline(r.t.Context(), "bmc", resource, 0, 100)
	require.NoError(r.t, err)
	slices.Reverse(rows) // the oldest first
	var out []string
	for _, row := range rows {
		if row.Name != "login" {
			continue
		}
		var meta struct {
			CredentialRef string `json:"credential_ref"`
			Address       string `json:"address"`
			ClaimedActor  string `json:"claimed_actor"`
		}
		require.NoError(r.t, json.Unmarshal(row.Metadata, &meta))
		require.Equal(r.t, r.rec.Address, meta.Address)
		require.NotNil(r.t, row.ActorID)
		by := *row.ActorID
		if meta.ClaimedActor != "" {
			require.Equal(r.t, string(lifecycle.OwnerEngine), row.Owner)
			by += " for " + meta.ClaimedActor
		}
		out = append(out, by+" "+meta.CredentialRef+" "+row.ToState)
	}
	return out
}

// TestLogin_RefusedBeforeItIsSent: an operator names a login to a BMC that may not receive it.
func TestLogin_RefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*planRig, db.Site)
		class  lifecycle.FailureClass
	}{
		"the login of another site": {func(r *planRig, _ db.Site) {
			other := dbtest.Site(t, r.store)
			r.state(spec.SecretUse{Kind: spec.SecretBMCLogin, Sites: []string{other.ID}})
		}, lifecycle.FailSecretUnavailable},
		"a secret of another kind": {func(r *planRig, s db.Site) {
			r.state(spec.SecretUse{Kind: spec.SecretMAASKey, Sites: []string{s.ID}})
		}, lifecycle.FailSecretUnavailable},
		"an address outside the networks": {func(r *planRig, s db.Site) {
			s.Spec.BMCNetworks = []string{"10.1.0.0/16"}
			r.update(s)
		}, lifecycle.FailConfiguration},
		"loopback of a real site": {func(r *planRig, s db.Site) {
			s.Spec.Simulated = false
			r.update(s)
		}, lifecycle.FailConfiguration},
		"plain http of a real site": {func(r *planRig, s db.Site) {
			s.Spec.Simulated = false
			r.update(s)
			r.rec.Address = "http://10.0.0.9"
			require.NoError(t, r.store.SetBMCAddress(t.Context(), r.rec.ID, r.rec.Address))
		}, lifecycle.FailConfiguration},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPlanRig(t)
			r.pinned()
			r.state(spec.SecretUse{Kind: spec.SecretBMCLogin, Sites: []string{r.site().ID}})
			tc.change(r, r.site())
			before := r.sim.Counters()
			_, err := r.acts.ResolvePowerCredentials(t.Context(), bmcact.ResolveIn{JobRef: contract.JobRef{JobID: "job_1"}, BMCID: r.rec.ID})
			requireClass(t, err, tc.class)
			require.Equal(t, before, r.sim.Counters(), "the BMC was asked for nothing")
			require.Equal(t, []string{"job_1 bmc/login refused"}, r.audited(r.rec.ID))
		})
	}
}

// away is a secret store that gives rules and does not answer when a value is read.
type away struct{ providers.Secrets }

func (away) Resolve(context.Context, providers.SecretRef, providers.Use) (providers.Secret, error) {
	return providers.Secret{}, &providers.Error{Kind: providers.KindUnavailable, Op: "secrets.resolve", Message: "the secret store did not answer"}
}

func TestLogin_OutageIsNoRefusal(t *testing.T) {
	t.Parallel()
	r := newPlanRig(t)
	r.pinned()
	r.acts.Secrets = away{r.acts.Secrets}
	_, err := r.acts.ResolvePowerCredentials(t.Context(), bmcact.ResolveIn{JobRef: contract.JobRef{JobID: "job_1"}, BMCID: r.rec.ID})
	requireClass(t, err, lifecycle.FailStoreUnavailable)
	plan := r.in(false)
	plan.Login = true
	require.Equal(t, lifecycle.FailStoreUnavailable, r.run(plan).Failure.Class)
	require.Empty(t, r.audited(r.rec.ID))
}

// answers is a name server that gives everything one address.
type answers string

func (a answers) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr(string(a))}, nil
}

// TestLogin_NameThatChangesItsAddress: a name server says 10.0.0.9 when the address is checked, and
// loopback when the connection is made.
func TestLogin_NameThatChangesItsAddress(t *testing.T) {
	t.Parallel()
	r := newPlanRig(t)
	r.pinned()
	site := r.site()
	site.Spec.Simulated = false
	r.update(site)
	r.state(spec.SecretUse{Kind: spec.SecretBMCLogin, Sites: []string{site.ID}})
	require.NoError(t, r.store.SetBMCAddress(t.Context(), r.rec.ID, strings.Replace(r.rec.Address, "127.0.0.1", "localhost", 1)))
	sec, err := secrets.Open(t.Context(), r.store, r.keeper, secrets.Options{Resolver: answers("10.0.0.9")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	r.acts.Secrets = sec
	before := r.sim.Counters()
	_, err = r.acts.ResolvePowerCredentials(t.Context(), bmcact.ResolveIn{JobRef: contract.JobRef{JobID: "job_1"}, BMCID: r.rec.ID})
	requireClass(t, err, lifecycle.FailConfiguration)
	require.ErrorContains(t, err, "loopback")
	require.Equal(t, before, r.sim.Counters(), "no byte reached the BMC")
}

func TestLogin_Audited(t *testing.T) {
	t.Parallel()
	r := newPlanRig(t)
	r.pinned()
	plan := r.in(false)
	plan.Login, plan.Actor = true, "ada"
	require.Nil(t, r.run(plan).Failure)
	started, accepted := "engine for ada bmc/login started", "engine for ada bmc/login accepted"
	require.Equal(t, []string{started, accepted}, r.audited(r.rec.ID), "a plan's login only claims who asked")

	_, err := r.acts.ResolvePowerCredentials(t.Context(), bmcact.ResolveIn{JobRef: contract.JobRef{JobID: "job_1"}, BMCID: r.rec.ID})
	require.NoError(t, err)
	_, err = r.acts.LookAtPower(t.Context(), bmcact.LookIn{BMCID: r.rec.ID})
	require.NoError(t, err)
	require.Equal(t, []string{
		started, accepted, "job_1 bmc/login started", "job_1 bmc/login accepted", "reconciler bmc/login started", "reconciler bmc/login accepted",
	}, r.audited(r.rec.ID))

	wrong := r.asked(func(b *db.BMC) { b.ID, b.CredentialRef = "", "bmc/wrong" })
	wrong.In.BMCID, wrong.Login, wrong.Actor = "", true, "ada"
	require.NoError(t, r.store.DeleteBMC(t.Context(), r.rec.ID, r.record().Version))
	require.NotNil(t, r.run(wrong).Failure)
	require.Equal(t, []string{"engine for ada bmc/wrong started", "engine for ada bmc/wrong rejected"}, r.audited(r.rec.Address), "a BMC without a record")
}

// state states the use of the BMC's login.
func (r *planRig) state(use spec.SecretUse) {
	r.t.Helper()
	_, err := r.store.SetSecretUse(r.t.Context(), "bmc/login", use)
	require.NoError(r.t, err)
}

// site is the site of the BMC's node.
func (r *planRig) site() db.Site {
	r.t.Helper()
	node, err := r.store.Node(r.t.Context(), *r.record().NodeID)
	require.NoError(r.t, err)
	site, err := r.store.Site(r.t.Context(), node.SiteID)
	require.NoError(r.t, err)
	return site
}

func (r *planRig) update(s db.Site) {
	r.t.Helper()
	_, err := r.store.UpdateSite(r.t.Context(), s.ID, s.Version, s.Name, s.Spec)
	require.NoError(r.t, err)
}
