package e2e_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/devstack"
	"github.com/slipway-cloud/slipway/internal/simhw"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// world is a running stack with a site that knows how to onboard.
type world struct {
	*devstack.Stack
	site    db.Site
	profile db.Profile
	sku     db.SKU
}

var admin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "test"}

// newWorld starts a stack and seeds site, profile, SKU, secrets and RoCE
// records; the options' zero values are the tests' defaults.
func newWorld(t *testing.T, o devstack.Options, tune ...func(*lifecycle.ProfileSpec)) *world {
	t.Helper()
	if o.Speed == 0 {
		o.Speed = 300
	}
	if o.Count == 0 {
		o.Count = 1
	}
	if o.Durations.ReleaseExpiry == 0 { // MAAS's five minutes for a power-off are a second here, which a busy machine may take
		o.Durations.ReleaseExpiry = time.Duration(o.Speed * float64(6*time.Second))
	}
	if !o.TemporalOnDisk {
		o.TemporalEnv = "SLIPWAY_TEMPORAL_ADDRESS"
	}
	if o.TaskQueue == "" {
		o.TaskQueue = "e2e-" + t.Name()
	}
	o.TemporalUI = -1
	o.OfflineAfter = time.Hour // nodes without an agent, and machines that are slow
	stack, err := devstack.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(stack.Close)
	w := &world{Stack: stack}
	ctx := t.Context()
	require.NoError(t, stack.SeedSecrets(ctx))
	w.site, err = stack.App.Store.CreateSite(ctx, "sim", stack.SiteSpec())
	require.NoError(t, err)
	spec := stack.ProfileSpec()
	for _, f := range tune {
		f(&spec)
	}
	w.profile, err = stack.App.Store.CreateProfile(ctx, w.site.ID, "standard", spec)
	require.NoError(t, err)
	w.sku, err = stack.App.Store.CreateSKU(ctx, "h100x8", stack.SKUSpec())
	require.NoError(t, err)
	for i, m := range stack.Sims.Fleet.All() {
		_, err = stack.App.Store.CreateRoCEAssignment(ctx, w.site.ID, "gpu-"+m.Spec().ID, devstack.RoCEPorts(m, i))
		require.NoError(t, err)
	}
	return w
}

// onboard accepts an onboarding of a machine as the API does, in one
// transaction, and returns the job.
func (w *world) onboard(t *testing.T, m *simhw.Machine) db.Job {
	t.Helper()
	var job db.Job
	err := w.App.Store.Tx(t.Context(), func(tx *db.Tx) error {
		host := "gpu-" + m.Spec().ID
		node, err := tx.CreateNode(t.Context(), db.NewNode{
			Hostname: host, SiteID: w.site.ID, SKUID: &w.sku.ID, ProfileID: &w.profile.ID, Simulated: true, Actor: admin,
		})
		if err != nil {
			return err
		}
		bmc, err := tx.CreateBMC(t.Context(), db.NewBMC{
			NodeID: &node.ID, Address: m.Spec().BMCAddress, Protocol: "redfish", CredentialRef: devstack.BMCSecret(m.Spec().ID),
		})
		if err != nil {
			return err
		}
		input, err := json.Marshal(contract.OnboardingInput{
			SiteID: w.site.ID, ProfileID: w.profile.ID, SKUID: w.sku.ID, Hostname: host, BMCID: bmc.ID,
		})
		if err != nil {
			return err
		}
		job, err = tx.CreateJob(t.Context(), db.NewJob{
			Kind: string(contract.KindOnboarding), NodeID: &node.ID, SiteID: &w.site.ID, ProfileID: &w.profile.ID, Input: input, Actor: admin,
		})
		return err
	})
	require.NoError(t, err)
	return job
}

// job reads a job.
func (w *world) job(t *testing.T, id string) db.Job {
	t.Helper()
	j, err := w.App.Store.Job(context.WithoutCancel(t.Context()), id)
	require.NoError(t, err)
	return j
}

// ends waits until the job is in a state that does not move by itself.
func (w *world) ends(t *testing.T, id string, within time.Duration) db.Job {
	t.Helper()
	var j db.Job
	ok := false
	deadline := time.Now().Add(within)
	for !ok && time.Now().Before(deadline) {
		got, err := w.App.Store.Job(t.Context(), id)
		if err == nil {
			j = got
			ok = j.Status.Parked() || lifecycle.Job.Terminal(j.Status)
		}
		wait(t, 100*time.Millisecond)
	}
	require.True(t, ok, "job %s is still %s at %s: %s", id, j.Status, j.Stage, j.Message)
	return j
}

// wait is a bounded pause between two looks.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}
