package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/onboarding"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// world is a simulated site that knows how to onboard, and the stack that manages it.
type world struct {
	*stack.Stack
	site    db.Site
	profile db.Profile
	sku     db.SKU
}

var admin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "test"}

// newWorld starts a site of the test's own on the stack that all tests share, with machines,
// secrets, profile, SKU and RoCE records. Zero options are the tests' defaults.
func newWorld(t *testing.T, o stack.Options, tune ...func(*spec.ProfileSpec)) *world {
	t.Helper()
	n := siteNumbers.Add(1)
	o = siteDefaults(o)
	o.Site = fmt.Sprintf("sim-%d", n)
	stack, err := sharedStack(t).NewSite(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(stack.Close)
	w := &world{Stack: stack}
	w.seed(t, o.Site, fmt.Sprintf("h100x8-%d", n), tune)
	t.Cleanup(func() { w.abandon(t) })
	return w
}

// newPrivateWorld starts a whole stack for one test: for one that stops a server or a worker, that
// has a configuration, a namespace or a log of its own, or that looks at the whole database.
func newPrivateWorld(t *testing.T, o stack.Options, tune ...func(*spec.ProfileSpec)) *world {
	t.Helper()
	require.NoError(t, startServers())
	o = stackDefaults(siteDefaults(o))
	if o.TaskQueue == "" {
		o.TaskQueue = "e2e-" + t.Name()
	}
	stack, err := stack.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(stack.Close)
	w := &world{Stack: stack}
	w.seed(t, "sim", "h100x8", tune)
	return w
}

// siteDefaults fills what the options say of a site.
func siteDefaults(o stack.Options) stack.Options {
	if o.Speed == 0 {
		o.Speed = 300
	}
	if o.Count == 0 {
		o.Count = 1
	}
	if o.FirstMachine == 0 {
		o.FirstMachine = machineNumbers(o.Count)
	}
	if o.Durations.ReleaseExpiry == 0 { // MAAS's five minutes for a power-off are a second here, which a busy machine may take
		o.Durations.ReleaseExpiry = time.Duration(o.Speed * float64(6*time.Second))
	}
	return o
}

// seed stores what an onboarding at the site needs.
func (w *world) seed(t *testing.T, site, sku string, tune []func(*spec.ProfileSpec)) {
	t.Helper()
	spec := w.ProfileSpec()
	for _, f := range tune {
		f(&spec)
	}
	seeded, err := w.Seed(t.Context(), site, sku, spec)
	require.NoError(t, err)
	w.site, w.profile, w.sku = seeded.Site, seeded.Profile, seeded.SKU
}

// onboard accepts an onboarding of a machine as the API does, in one
// transaction, and returns the job.
func (w *world) onboard(t *testing.T, m *simhw.Machine) db.Job {
	t.Helper()
	var job db.Job
	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		job, _, err = onboarding.Accept(t.Context(), tx, w.request(m, "gpu-"+m.Spec().ID), admin)
		return err
	}))
	return job
}

// request is an onboarding of a machine at the world's site.
func (w *world) request(m *simhw.Machine, host string) onboarding.Checked {
	return onboarding.Checked{
		Request: onboarding.Request{
			SiteID: w.site.ID, ProfileID: w.profile.ID, SKUID: w.sku.ID, Hostname: host,
			BMC: intent.BMC{Address: m.Spec().BMCAddress, Protocol: intent.ProtocolRedfish, CredentialRef: stack.BMCSecret(m.Spec().ID)},
		},
		Site: w.site, Profile: w.profile,
	}
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
	deadline := time.Now().Add(runenv.Patience(within))
	for time.Now().Before(deadline) {
		got, err := w.App.Store.Job(t.Context(), id)
		if err == nil {
			j = got
			if j.Status.Parked() || lifecycle.Job.Terminal(j.Status) {
				return j
			}
		}
		wait(t, 100*time.Millisecond)
	}
	require.FailNow(t, fmt.Sprintf(runenv.Deadline+"job %s is still %s at %s: %s", id, j.Status, j.Stage, j.Message))
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
