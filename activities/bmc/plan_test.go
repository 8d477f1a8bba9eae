package bmc_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/redfish"
	"github.com/slipway-cloud/slipway/providers/secrets"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

// planRig is one BMC with its record, and a worker's activities.
type planRig struct {
	t      *testing.T
	sim    *redfishsim.Server
	hw     *simhw.Machine
	store  *db.Store
	rec    db.BMC
	acts   *bmcact.Activities
	keeper secrets.Keeper
	run    func(bmcact.PlanIn) bmcact.PowerPlan
}

func newPlanRig(t *testing.T) *planRig {
	t.Helper()
	hw, err := simhw.NewFleet(t.Context(), simhw.NewClock(300)).Add(simhw.GPUServer("Dell", 1))
	require.NoError(t, err)
	sim, err := redfishsim.New(redfishsim.Options{Machine: hw, TLS: true})
	require.NoError(t, err)
	url, stop, err := sim.Start(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)
	r := &planRig{t: t, sim: sim, hw: hw, store: dbtest.Store(t)}
	r.keeper = secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}
	sec, err := secrets.Open(t.Context(), r.store, r.keeper, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	for name, password := range map[string]string{"bmc/login": hw.Spec().BMCPassword, "bmc/wrong": "no such password"} {
		login, err := json.Marshal(map[string]string{"username": hw.Spec().BMCUser, "password": password})
		require.NoError(t, err)
		dbtest.StateUse(t, r.store, spec.SecretBMCLogin, name)
		_, err = sec.Put(t.Context(), name, providers.NewSecret(string(login)))
		require.NoError(t, err)
	}
	node := dbtest.Node(t, r.store)
	r.rec, err = r.store.CreateBMC(t.Context(), db.NewBMC{NodeID: &node.ID, Address: url, Protocol: "redfish", CredentialRef: "bmc/login"})
	require.NoError(t, err)
	acts := &bmcact.Activities{Store: r.store, Secrets: sec, Opener: redfish.Opener{}}
	r.acts = acts
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(acts)
	r.run = func(in bmcact.PlanIn) bmcact.PowerPlan {
		t.Helper()
		v, err := env.ExecuteActivity(acts.PlanPower, in)
		require.NoError(t, err)
		var out bmcact.PowerPlan
		require.NoError(t, v.Get(&out))
		return out
	}
	return r
}

func (r *planRig) in(trustFirst bool) bmcact.PlanIn {
	return bmcact.PlanIn{In: bmcact.ResolveIn{
		JobRef: contract.JobRef{JobID: "job", SiteID: "site"}, BMCID: r.rec.ID, TrustFirstPin: trustFirst,
	}}
}

func (r *planRig) record() db.BMC {
	r.t.Helper()
	b, err := r.store.BMC(r.t.Context(), r.rec.ID)
	require.NoError(r.t, err)
	return b
}

// logins counts every login that was tried.
func (r *planRig) logins() int {
	c := r.sim.Counters()
	return c.Logins + c.BasicLogins + c.FailedLogins
}

// pinned approves the certificate that the BMC shows.
func (r *planRig) pinned() {
	r.t.Helper()
	b, err := redfish.Opener{}.OpenBMC(providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: r.rec.Address})
	require.NoError(r.t, err)
	id, err := b.Probe(r.t.Context())
	require.NoError(r.t, err)
	require.NoError(r.t, r.store.SetBMCPin(r.t.Context(), r.rec.ID, id.PinSHA256))
	r.rec = r.record()
}

// asked is the record as a dry run would bring it.
func (r *planRig) asked(change func(*db.BMC)) bmcact.PlanIn {
	r.t.Helper()
	rec := r.rec
	rec.ID = ""
	change(&rec)
	raw, err := json.Marshal(rec)
	require.NoError(r.t, err)
	in := r.in(true)
	in.In.BMCID, in.BMCRecord = "", raw
	return in
}

// TestPlanPowerLooksWithoutALogin: the certificate is checked as in a run, and
// neither the BMC nor the record is touched.
func TestPlanPowerLooksWithoutALogin(t *testing.T) {
	t.Parallel()
	r := newPlanRig(t)
	before := r.record()
	first := r.run(r.in(true))
	require.Nil(t, first.Failure)
	require.Contains(t, strings.Join(first.Steps, "; "), "approve the certificate pin")
	require.Contains(t, first.Observed, "BMC answers")
	require.False(t, first.LoggedIn)
	strict := r.run(r.in(false))
	require.Equal(t, lifecycle.FailBMCPinMismatch, strict.Failure.Class)
	require.Contains(t, strict.Failure.Message, "nobody has approved")
	require.Equal(t, before, r.record(), "no pin is stored, approved or pending")
	require.Zero(t, r.logins())

	require.NoError(t, r.store.SetBMCPin(t.Context(), r.rec.ID, strings.Repeat("ab", 32)))
	changed := r.run(r.in(true))
	require.Equal(t, lifecycle.FailBMCPinMismatch, changed.Failure.Class)
	require.Contains(t, changed.Failure.Message, "differs from the approved one")
	require.Zero(t, r.logins())
}

// TestPlanPowerWithALogin: one login, when it is asked for; it stores nothing.
func TestPlanPowerWithALogin(t *testing.T) {
	t.Parallel()
	r := newPlanRig(t)
	in := r.in(true)
	in.Login = true
	before := r.record()
	early := r.run(in)
	require.Nil(t, early.Failure)
	require.False(t, early.LoggedIn)
	require.Contains(t, early.Observed, "approves the certificate first")
	require.Equal(t, before, r.record())
	require.Zero(t, r.logins())

	r.pinned()
	got := r.run(in)
	require.Nil(t, got.Failure)
	require.True(t, got.LoggedIn)
	require.Equal(t, r.hw.Spec().Serial, got.Facts.Serial)
	require.Len(t, got.Facts.MACs, len(r.hw.Spec().NICs))
	require.Zero(t, r.sim.Counters().FailedLogins)
	require.LessOrEqual(t, r.sim.Counters().Logins, 1)
	require.Zero(t, r.sim.Counters().Sessions, "it logs out again")
	dry := r.asked(func(*db.BMC) {})
	dry.Login = true
	require.True(t, r.run(dry).LoggedIn)
	other := r.asked(func(b *db.BMC) { b.ID, b.CredentialRef = r.rec.ID, "bmc/wrong" })
	other.Login = true
	tried := r.logins()
	require.Contains(t, r.run(other).Observed, "stored with another login")
	require.Equal(t, tried, r.logins(), "what the gate does not know is not tried")
}

// TestPlanPower_StopsAtTheGate: a rejected login stops further ones as in a run,
// and a stopped one is not tried.
func TestPlanPower_StopsAtTheGate(t *testing.T) {
	t.Parallel()
	r := newPlanRig(t)
	r.pinned()
	rec := r.record()
	rec.CredentialRef = "bmc/wrong"
	_, err := r.store.UpdateBMC(t.Context(), rec)
	require.NoError(t, err)
	in := r.in(true)
	in.Login = true
	rejected := r.run(in)
	require.Equal(t, lifecycle.FailBMCAuthRejected, rejected.Failure.Class)
	require.NotNil(t, r.record().AuthBlockedAt)
	unknown := r.asked(func(b *db.BMC) { b.CredentialRef = "bmc/wrong" })
	unknown.Login = true
	tried := r.logins()
	stopped := r.run(unknown).Failure
	require.Equal(t, lifecycle.FailBMCAuthRejected, stopped.Class)
	require.Contains(t, stopped.Message, "are stopped under its other record "+r.rec.ID, "another hostname is no way around")
	again := r.run(in)
	require.Equal(t, lifecycle.FailBMCAuthRejected, again.Failure.Class)
	require.Contains(t, again.Failure.Message, "are stopped")
	require.Equal(t, tried, r.logins(), "no second try")
	blocked := r.record()
	dry := r.asked(func(b *db.BMC) { b.AuthBlockedAt, b.AuthBlockedReason = blocked.AuthBlockedAt, "before" })
	dry.Login = true
	require.Equal(t, lifecycle.FailBMCAuthRejected, r.run(dry).Failure.Class)
	require.Equal(t, tried, r.logins())
	require.NoError(t, r.store.ClearBMCBlock(t.Context(), r.rec.ID))
	require.NoError(t, r.store.DeleteBMC(t.Context(), r.rec.ID, r.record().Version))
	tried = r.logins()
	require.Equal(t, lifecycle.FailBMCAuthRejected, r.run(unknown).Failure.Class)
	require.Equal(t, tried+1, r.logins())
	require.Contains(t, r.run(unknown).Failure.Message, "are stopped", "a BMC without a record has got one that stops the second try")
	require.Equal(t, tried+1, r.logins())
}

// TestPlanPowerFailures are told, not returned.
func TestPlanPowerFailures(t *testing.T) {
	t.Parallel()
	r := newPlanRig(t)
	away := r.run(r.asked(func(b *db.BMC) { b.Address = "127.0.0.1:9" }))
	require.Equal(t, lifecycle.FailBMCUnreachable, away.Failure.Class)
	missing := r.run(r.asked(func(b *db.BMC) { b.CredentialRef = "bmc/none" }))
	require.Equal(t, lifecycle.FailSecretUnavailable, missing.Failure.Class)
	require.Zero(t, r.logins())
}
