package chaos_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/e2e/chaos"
)

// TestAJobThatSparesABMCIsSentOnAndHeldToItsEnd: a worker has died in the midst of
// a login to a BMC that locks its account after three wrong ones. The job waits for
// a person, and what it comes to after that is checked.
func TestAJobThatSparesABMCIsSentOnAndHeldToItsEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("a job in trouble takes a minute")
	}
	o := chaos.Options{Plugs: chaos.Leaving(), Progress: &progress{}}
	for _, p := range o.Plugs {
		for i := range p.Paths {
			if path := &p.Paths[i]; path.Name == "storage_cleanup" {
				prepare := path.Prepare
				path.Prepare = func(ctx context.Context, target *chaos.Target) error {
					if err := prepare(ctx, target); err != nil {
						return err
					}
					return loginOfTheDead(ctx, target)
				}
			}
		}
	}
	c, err := chaos.ParseCase("decommission/storage_cleanup:cleanup_storage.LookAtLeaving=worker_killed.after", o.Plugs)
	require.NoError(t, err)
	o.Cases = []chaos.Case{c}
	report, err := chaos.Run(t.Context(), o)
	require.NoError(t, err)
	for _, g := range report.Guilty() {
		t.Error(g.Blame())
	}
	require.Len(t, report.Results, 1)
	require.Equal(t, 1, report.Results[0].Waits)
	require.Contains(t, report.Table(), "1 cases were parked so that a BMC locks no account")
}

// loginOfTheDead counts a login that was begun and never settled.
func loginOfTheDead(ctx context.Context, target *chaos.Target) error {
	const dead = "job_of_the_dead"
	three := 3
	rec, err := target.Store.BMCOfNode(ctx, target.NodeID)
	if err != nil {
		return err
	}
	if err := target.Store.SetBMCLockout(ctx, rec.ID, &three, time.Hour); err != nil {
		return err
	}
	if rec, err = target.Store.TakeBMCLogin(ctx, rec.ID, dead, time.Minute); err != nil {
		return err
	}
	now, err := target.Store.Clock(ctx)
	if err != nil {
		return err
	}
	if err := target.Store.CountBMCLogin(ctx, rec.ID, dead, now, true, seen(rec)); err != nil {
		return err
	}
	return target.Store.ReleaseBMCLogin(ctx, rec.ID, dead)
}

func seen(rec db.BMC) int { return rec.WrongLogins + rec.OpenLogins }
