package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/redfish"
	"github.com/slipway-cloud/slipway/providers/maas"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// rotator rotates as an operator does: over the API.
type rotator struct {
	*world
	token string
	api   *client.Client
}

func newRotator(t *testing.T, w *world) *rotator {
	t.Helper()
	r := &rotator{world: w}
	var err error
	r.token, err = op.CreateToken(t.Context(), r.App.Store, "rotator", []string{"admin"}, time.Hour)
	require.NoError(t, err)
	r.api = w.client(t, r.token)
	return r
}

// rotate asks for a rotation and returns the job's id.
func (r *rotator) rotate(t *testing.T, bmcID string) string {
	t.Helper()
	job, err := client.Value(r.api.RotateBmcCredential(t.Context(), bmcID, client.RotationRequest{Reason: "test"}))
	require.NoError(t, err)
	return job.ID
}

func (r *rotator) act(t *testing.T, job string, a lifecycle.Action) {
	t.Helper()
	_, err := r.api.ActOnJob(t.Context(), job, string(a), client.ActionRequest{Reason: new("test")})
	require.NoError(t, err)
}

// region is a plain client of the simulated MAAS.
func (r *rotator) region(t *testing.T) providers.MAAS {
	t.Helper()
	m, err := maas.Opener{}.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: r.Sims.URL, APIKey: providers.NewSecret(r.Sims.APIKey)})
	require.NoError(t, err)
	return m
}

// active makes an active node that MAAS knows, without the way there.
func (r *rotator) active(t *testing.T, m *simhw.Machine) db.BMC {
	t.Helper()
	spec := m.Spec()
	node := dbtest.Node(t, r.App.Store, dbtest.At(r.site.ID), dbtest.Hostname("gpu-"+spec.ID), dbtest.Active())
	got, err := r.region(t).CreateMachine(t.Context(), providers.MAASCreate{
		Hostname: node.Hostname, Architecture: "amd64/generic", MACs: []string{spec.NICs[0].MAC}, PowerType: "redfish",
		PowerAddress: spec.BMCAddress, PowerUser: spec.BMCUser, PowerPassword: providers.NewSecret(spec.BMCPassword),
	})
	require.NoError(t, err)
	require.NoError(t, r.App.Store.SetNodeMachine(t.Context(), node.ID, db.NodeMachine{SystemID: got.SystemID}))
	return r.bmc(t, m, &node.ID)
}

// bmc makes the record of a machine's BMC with its certificate approved.
func (r *rotator) bmc(t *testing.T, m *simhw.Machine, nodeID *string) db.BMC {
	t.Helper()
	probe, err := redfish.Opener{}.OpenBMC(providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: m.Spec().BMCAddress})
	require.NoError(t, err)
	id, err := probe.Probe(t.Context())
	require.NoError(t, err)
	require.NoError(t, probe.Close(t.Context()))
	b, err := r.App.Store.CreateBMC(t.Context(), db.NewBMC{
		NodeID: nodeID, Address: m.Spec().BMCAddress, Protocol: "redfish", CredentialRef: stack.BMCSecret(m.Spec().ID), PinSHA256: id.PinSHA256,
	})
	require.NoError(t, err)
	return b
}

// rotated checks what a finished rotation leaves: the BMC takes the stored
// login and the old one no more, MAAS controls the power, the history has its
// row, and nothing waits in the second slot.
func (r *rotator) rotated(t *testing.T, m *simhw.Machine, before db.BMC, oldRef, oldPassword, job string) (newPassword string) {
	t.Helper()
	now, err := r.App.Store.BMC(t.Context(), before.ID)
	require.NoError(t, err)
	require.NotEqual(t, before.CredentialRef, now.CredentialRef)
	require.Nil(t, now.AuthBlockedAt)
	login, err := providers.ResolveLogin(t.Context(), r.App.Secrets, providers.SecretRef(now.CredentialRef),
		providers.Use{Kind: spec.SecretBMCLogin, Site: r.site.ID, Address: now.Address})
	require.NoError(t, err)
	require.NotEqual(t, oldPassword, login.Password.Reveal())
	require.NoError(t, m.CheckBMC(login.Username, login.Password.Reveal()))
	require.ErrorIs(t, m.CheckBMC(login.Username, oldPassword), simhw.ErrBMCAuth)
	if now.NodeID != nil {
		node, err := r.App.Store.Node(t.Context(), *now.NodeID)
		require.NoError(t, err)
		require.Equal(t, lifecycle.NodeActive, node.Status)
		power, err := r.region(t).QueryPower(t.Context(), *node.MAASSystemID)
		require.NoError(t, err)
		require.Contains(t, []string{"on", "off"}, power, "MAAS must be able to log in")
	}
	history, err := client.Value(r.api.ListBmcRotations(t.Context(), now.ID, nil))
	require.NoError(t, err)
	require.NotEmpty(t, history.Data)
	row := history.Data[0]
	require.Equal(t, []string{job, "rotated", "test", oldRef, now.CredentialRef},
		[]string{row.JobID, string(row.Outcome), row.Reason, row.OldCredentialRef, row.NewCredentialRef})
	return login.Password.Reveal()
}

// TestBMCRotation_OfActiveNodes onboards nodes of three vendors and rotates the logins of their
// BMCs.
func TestBMCRotation_OfActiveNodes(t *testing.T) {
	t.Parallel()
	log := &safeBuffer{}
	r := newRotator(t, newPrivateWorld(t, stack.Options{Count: 3, Log: log, Namespace: "leaks", DatabaseEnv: databaseVar}))
	onboarding := map[string]string{}
	for _, m := range r.Sims.Fleet.All() {
		onboarding[m.Spec().ID] = r.onboard(t, m).ID
	}
	jobs, old, before := map[string]string{}, map[string]string{}, map[string]db.BMC{}
	for _, m := range r.Sims.Fleet.All() {
		id := m.Spec().ID
		j := r.ends(t, onboarding[id], 3*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
		b, err := r.App.Store.BMCOfNode(t.Context(), *j.NodeID)
		require.NoError(t, err)
		old[id], before[id] = m.Spec().BMCPassword, b
		jobs[id] = r.rotate(t, b.ID)
	}
	for _, m := range r.Sims.Fleet.All() {
		id := m.Spec().ID
		j := r.ends(t, jobs[id], 3*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s %s: %s", m.Spec().Vendor, j.FailedStage, j.Message)
		fresh := r.rotated(t, m, before[id], before[id].CredentialRef, old[id], j.ID)
		c := r.Sims.BMCs[id].Counters()
		require.Zero(t, c.FailedLogins, "no login of a rotation is a guess")
		require.Equal(t, 1, c.PasswordChanges)
		require.Equal(t, 1, r.Sims.MAAS.Counters().Machines[r.systemID(t, m)]["power_settings"])
		history := r.history(t, j)
		require.Contains(t, history, before[id].ID)
		for _, secret := range []string{old[id], fresh, r.Sims.APIKey} {
			require.NotContains(t, history, secret, "a secret is in the history")
			require.NotContains(t, log.String(), secret, "a secret is in the log")
		}
	}
}

// TestBMCRotation_WorkerKilledInEachStage kills the worker after the effect of each stage and
// before its answer: each password is changed once.
func TestBMCRotation_WorkerKilledInEachStage(t *testing.T) {
	runenv.ProofOnly(t, "kills")
	t.Parallel()
	r := newRotator(t, newPrivateWorld(t, stack.Options{Count: len(lifecycle.BMCRotationStages()), NoWorker: true, DatabaseEnv: databaseVar}))
	plan, jobs, old, before := map[string]string{}, map[string]string{}, map[string]string{}, map[string]db.BMC{}
	for i, m := range r.Sims.Fleet.All() {
		id := m.Spec().ID
		old[id], before[id] = m.Spec().BMCPassword, r.active(t, m)
		jobs[id] = r.rotate(t, before[id].ID)
		plan[jobs[id]] = lifecycle.BMCRotationStages()[i]
	}
	sup := superviseWorker(t, r.world, plan)
	for _, m := range r.Sims.Fleet.All() {
		id := m.Spec().ID
		j := r.ends(t, jobs[id], 5*time.Minute)
		stage := plan[j.ID]
		require.Equal(t, lifecycle.JobCompleted, j.Status, "killed in %s: %s: %s", stage, j.FailedStage, j.Message)
		r.rotated(t, m, before[id], before[id].CredentialRef, old[id], j.ID)
		c := r.Sims.BMCs[id].Counters()
		require.Equal(t, 1, c.PasswordChanges, "killed in %s", stage)
		require.Zero(t, c.Lockouts, "killed in %s", stage)
		require.LessOrEqual(t, c.FailedLogins, 1, "killed in %s", stage)
		require.Equal(t, 1, r.Sims.MAAS.Counters().Machines[r.systemID(t, m)]["power_settings"], "killed in %s", stage)
		_, err := os.Stat(filepath.Join(sup.dir, "died-"+j.ID))
		require.NoError(t, err, "the worker never died in %s", stage)
	}
}

// TestBMCRotation_WrongPasswordParks checks that there is one rejected login and no other, until an
// operator has stored the right password and cleared the block.
func TestBMCRotation_WrongPasswordParks(t *testing.T) {
	t.Parallel()
	r := newRotator(t, newWorld(t, stack.Options{Count: 2}))
	m, bare := r.Sims.Fleet.All()[0], r.Sims.Fleet.All()[1]
	sim := r.Sims.BMCs[m.Spec().ID]
	b, right := r.active(t, m), m.Spec().BMCPassword
	wrong, err := json.Marshal(map[string]string{"username": m.Spec().BMCUser, "password": "not-this-one"})
	require.NoError(t, err)
	wrongRef := stack.BMCSecret(m.Spec().ID) + "-wrong"
	dbtest.StateUse(t, r.App.Store, spec.SecretBMCLogin, wrongRef)
	_, err = r.App.Secrets.Put(t.Context(), wrongRef, providers.NewSecret(string(wrong)))
	require.NoError(t, err)
	_, err = r.api.SetBmcCredential(t.Context(), b.ID, client.SetBmcCredentialRequest{CredentialRef: wrongRef}, client.IfMatch("*"))
	require.NoError(t, err)

	job := r.rotate(t, b.ID)
	rejected := func() {
		j := r.ends(t, job, 3*time.Minute)
		require.Equal(t, lifecycle.FailBMCAuthRejected, j.FailureClass, "%s: %s", j.FailedStage, j.Message)
		require.Equal(t, lifecycle.JobFailedManual, j.Status)
		require.Equal(t, 1, sim.Counters().FailedLogins, "the account must not be locked")
	}
	rejected()
	r.act(t, job, lifecycle.ActionRetryStage)
	rejected()
	answer, err := client.Value(r.api.SetBmcCredential(t.Context(), b.ID, client.SetBmcCredentialRequest{CredentialRef: b.CredentialRef}, client.IfMatch("*")))
	require.NoError(t, err)
	require.Contains(t, answer.NextStep, "clear-auth-block")
	r.act(t, job, lifecycle.ActionRetryStage)
	rejected()
	_, err = r.api.ClearBmcAuthBlock(t.Context(), b.ID, client.ClearBmcAuthBlockRequest{Reason: "stored the right one"})
	require.NoError(t, err)
	r.act(t, job, lifecycle.ActionRetryStage)
	j := r.ends(t, job, 3*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
	r.rotated(t, m, b, wrongRef, right, job)
	require.Equal(t, []int{1, 0, 1}, []int{sim.Counters().FailedLogins, sim.Counters().Lockouts, sim.Counters().PasswordChanges})

	// A BMC that no node has is rotated too.
	b, right = r.bmc(t, bare, nil), bare.Spec().BMCPassword
	job = r.rotate(t, b.ID)
	j = r.ends(t, job, 3*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
	r.rotated(t, bare, b, b.CredentialRef, right, job)
}
