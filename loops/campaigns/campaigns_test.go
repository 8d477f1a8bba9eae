package campaigns_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	campaigndb "github.com/slipway-cloud/slipway/db/campaign"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/campaign"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/listfilter"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/loops/campaigns"
	"github.com/slipway-cloud/slipway/providers/fake"
)

var admin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "token:test"}

// offers is what the simulated provider can. A provider "none" can nothing.
func offers(provider string) []runplan.Capability {
	if provider != "fake" {
		return nil
	}
	return fake.New().Adapter().Offers()
}

// world is machines with their campaigns. The test stands for the workers of the runs: it ends
// them.
type world struct {
	t      *testing.T
	store  *db.Store
	driver *campaigns.Driver
}

func newWorld(t *testing.T, count int) *world {
	t.Helper()
	w := &world{t: t, store: dbtest.Store(t)}
	w.driver = &campaigns.Driver{Store: w.store, Offers: offers, Log: slog.New(slog.DiscardHandler), Every: time.Hour}
	for i := range count {
		w.register(machines.Registration{ID: fmt.Sprintf("m-%02d", i+1)})
	}
	return w
}

func (w *world) tx(fn func(context.Context, *db.Tx) error) {
	w.t.Helper()
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error { return fn(w.t.Context(), tx) }))
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.store.DBTX().Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
}

func (w *world) register(in machines.Registration) {
	w.t.Helper()
	if in.Spec.Provider == "" {
		in.Spec.Provider = "fake"
	}
	in.Labels = map[string]string{"env": "prod"}
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := machines.Register(ctx, tx, in, admin)
		return err
	})
}

func reboots() campaign.Request {
	return campaign.Request{RequestID: "week-1", Type: lifecycle.RunTypeReboot, Filter: "labels.env=prod", SkipCanary: true, Offers: offers}
}

func (w *world) create(in campaign.Request) (c campaigndb.Campaign, err error) {
	w.t.Helper()
	actor := admin
	if in.Project != "" {
		actor.Owner = lifecycle.OwnerCustomer
	}
	err = w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		c, err = campaign.Create(w.t.Context(), tx, in, actor)
		return err
	})
	return c, err
}

func (w *world) mustCreate(in campaign.Request) campaigndb.Campaign {
	w.t.Helper()
	c, err := w.create(in)
	require.NoError(w.t, err)
	return c
}

// look drives the campaigns, which are due with all their machines.
func (w *world) look() {
	w.t.Helper()
	w.exec("UPDATE run_campaigns SET next_look_at = now() WHERE next_look_at IS NOT NULL")
	w.exec("UPDATE run_campaign_members SET next_try_at = now()")
	require.NoError(w.t, w.driver.Look(w.t.Context()))
}

// state returns a campaign with the numbers of its machines in each state.
func (w *world) state(id string) (campaigndb.Campaign, map[lifecycle.MemberState]int) {
	w.t.Helper()
	c, err := campaigndb.Get(w.t.Context(), w.store, id)
	require.NoError(w.t, err)
	counts, err := campaigndb.Counts(w.t.Context(), w.store, id)
	require.NoError(w.t, err)
	return c, counts[id]
}

// active returns the active runs.
func (w *world) active() []machinesdb.Run {
	w.t.Helper()
	runs, err := machinesdb.ListRuns(w.t.Context(), w.store, machinesdb.Page{Limit: 1000}, true)
	require.NoError(w.t, err)
	return runs
}

// end ends a run as its job does.
func (w *world) end(run machinesdb.Run, phase lifecycle.RunPhase) {
	w.t.Helper()
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		for _, s := range []machinesdb.Step{{Status: lifecycle.JobRunning}, ended(phase)} {
			m, locked, err := machinesdb.LockForJob(ctx, tx, run.JobID)
			if err != nil {
				return err
			}
			s.Actor = db.Actor{Owner: lifecycle.OwnerJob, ID: run.JobID}
			if err := machinesdb.Project(ctx, tx, m, locked, s); err != nil {
				return err
			}
		}
		_, err := tx.TransitionJob(ctx, run.JobID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		return err
	})
}

func ended(phase lifecycle.RunPhase) machinesdb.Step {
	switch phase { //nolint:exhaustive // the others succeed
	case lifecycle.RunFailed:
		return machinesdb.Step{Status: lifecycle.JobCancelled, Failed: lifecycle.FailCommand, Message: "exit status 3"}
	case lifecycle.RunCanceled:
		return machinesdb.Step{Status: lifecycle.JobCancelled}
	}
	return machinesdb.Step{Status: lifecycle.JobCompleted}
}

func (w *world) change(c campaigndb.Campaign, fn func(context.Context, *db.Tx, campaign.Change, db.Actor) (campaigndb.Campaign, error)) {
	w.t.Helper()
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := fn(ctx, tx, campaign.Change{ID: c.ID, Reason: "a test"}, admin)
		return err
	})
}

// runsOf returns how many runs a machine has had.
func (w *world) runsOf(machine string) int {
	w.t.Helper()
	filter, err := listfilter.Parse("machine_id="+machine, listfilter.RunFields())
	require.NoError(w.t, err)
	runs, err := machinesdb.ListRuns(w.t.Context(), w.store, machinesdb.Page{Filter: filter, Limit: 100}, false)
	require.NoError(w.t, err)
	return len(runs)
}

// TestCampaign_RunsAtMostMaxParallel takes twenty machines through, four at a time, after a first
// one.
func TestCampaign_RunsAtMostMaxParallel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 20)
	in := reboots()
	in.MaxParallel, in.SkipCanary = 4, false
	c := w.mustCreate(in)
	w.look()
	require.Len(t, w.active(), 1, "the canary")
	most := 0
	for range 40 {
		runs := w.active()
		if len(runs) == 0 {
			break
		}
		most = max(most, len(runs))
		w.end(runs[len(runs)-1], lifecycle.RunSucceeded)
		w.look()
		require.LessOrEqual(t, len(w.active()), 4)
	}
	require.Equal(t, 4, most)
	now, counts := w.state(c.ID)
	require.Equal(t, lifecycle.CampaignCompleted, now.Status)
	require.Equal(t, map[lifecycle.MemberState]int{lifecycle.MemberSucceeded: 20}, counts)
	for i := range 20 {
		require.Equal(t, 1, w.runsOf(fmt.Sprintf("m-%02d", i+1)))
	}
	var events int
	require.NoError(t, w.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM outbox WHERE type = 'run_campaign.changed' AND resource_id = $1", c.ID).Scan(&events))
	require.Equal(t, 2, events, "it began and it ended")
}

// TestCampaign_StopsAtItsFailures stops at two failures, is in the attention list, goes on when it
// is resumed, and gives the failed ones another run.
func TestCampaign_StopsAtItsFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	in := reboots()
	in.MaxParallel, in.StopAfter = 3, 2
	c := w.mustCreate(in)
	w.look()
	runs := w.active()
	require.Len(t, runs, 3)
	w.end(runs[0], lifecycle.RunFailed)
	w.look()
	require.Len(t, w.active(), 3, "one failure does not stop it")
	w.end(runs[1], lifecycle.RunFailed)
	w.look()
	w.look()
	now, counts := w.state(c.ID)
	require.Equal(t, lifecycle.CampaignStopped, now.Status)
	require.Contains(t, now.Message, "2 runs failed")
	require.Equal(t, map[lifecycle.MemberState]int{lifecycle.MemberFailed: 2, lifecycle.MemberRunning: 2, lifecycle.MemberWaiting: 2}, counts)
	items, err := w.store.Attention(t.Context(), db.AttentionFilter{Kind: db.AttentionCampaignStopped}, db.AttentionPlace{}, 10)
	require.NoError(t, err)
	require.Len(t, items, 1)
	require.Contains(t, items[0].Message, c.ID)

	w.change(c, campaign.Resume)
	for range 4 {
		for _, r := range w.active() {
			w.end(r, lifecycle.RunSucceeded)
		}
		w.look()
	}
	now, counts = w.state(c.ID)
	require.Equal(t, lifecycle.CampaignCompleted, now.Status)
	require.Equal(t, map[lifecycle.MemberState]int{lifecycle.MemberFailed: 2, lifecycle.MemberSucceeded: 4}, counts)

	w.change(c, func(ctx context.Context, tx *db.Tx, h campaign.Change, a db.Actor) (campaigndb.Campaign, error) {
		return campaign.Retry(ctx, tx, h, nil, a)
	})
	w.look()
	again := w.active()
	require.Len(t, again, 2)
	require.Equal(t, c.ID+"/2", again[0].RequestID)
	for _, r := range again {
		w.end(r, lifecycle.RunSucceeded)
	}
	w.look()
	now, counts = w.state(c.ID)
	require.Equal(t, lifecycle.CampaignCompleted, now.Status)
	require.Equal(t, map[lifecycle.MemberState]int{lifecycle.MemberSucceeded: 6}, counts)
}

// TestCampaign_PauseResumeCancel leaves active runs alone, and starts nothing new meanwhile.
func TestCampaign_PauseResumeCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5)
	in := reboots()
	in.MaxParallel = 2
	c := w.mustCreate(in)
	w.look()
	first := w.active()
	w.change(c, campaign.Pause)
	w.look()
	require.Len(t, w.active(), 2, "they go on")
	w.end(first[0], lifecycle.RunSucceeded)
	w.look()
	require.Len(t, w.active(), 1)
	_, counts := w.state(c.ID)
	require.Equal(t, 1, counts[lifecycle.MemberSucceeded], "what ends meanwhile is seen")
	w.change(c, campaign.Resume)
	w.change(c, campaign.Resume)
	w.look()
	require.Len(t, w.active(), 2)
	w.change(c, campaign.Cancel)
	w.look()
	now, counts := w.state(c.ID)
	require.Equal(t, lifecycle.CampaignCanceled, now.Status)
	require.Equal(t, map[lifecycle.MemberState]int{lifecycle.MemberSucceeded: 1, lifecycle.MemberRunning: 2, lifecycle.MemberCanceled: 2}, counts)
	for _, r := range w.active() {
		w.end(r, lifecycle.RunCanceled)
	}
	w.look()
	_, counts = w.state(c.ID)
	require.Equal(t, map[lifecycle.MemberState]int{lifecycle.MemberSucceeded: 1, lifecycle.MemberCanceled: 4}, counts)
	var looks int
	require.NoError(t, w.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM run_campaigns WHERE next_look_at IS NOT NULL").Scan(&looks))
	require.Zero(t, looks, "nothing happens in it any more")
	for name, fn := range map[string]func(context.Context, *db.Tx, campaign.Change, db.Actor) (campaigndb.Campaign, error){"pause": campaign.Pause, "resume": campaign.Resume} {
		err := w.store.Tx(t.Context(), func(tx *db.Tx) error { _, err := fn(t.Context(), tx, campaign.Change{ID: c.ID}, admin); return err })
		require.Equal(t, intent.ActionRefused, intent.AsRefusal(err).Kind, name)
	}
}

// TestCampaign_BusyAndLostMachines: one with a live operation waits and gets its run later, ones
// that cannot have it are skipped and say why.
func TestCampaign_BusyAndLostMachines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	node := dbtest.Node(t, w.store, dbtest.Active())
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := machines.SetAccess(ctx, tx, "m-01", machines.Access{NodeID: node.ID}, admin)
		return err
	})
	job := dbtest.Job(t, w.store, dbtest.On(node.ID))
	w.register(machines.Registration{ID: "m-04", Spec: spec.MachineSpec{Provider: "none"}})
	in := reboots()
	in.MaxParallel = 10
	c := w.mustCreate(in)
	w.tx(func(ctx context.Context, tx *db.Tx) error { // lost after it was selected
		m, err := machinesdb.Lock(ctx, tx, "m-02")
		if err == nil {
			_, err = machinesdb.MoveTo(ctx, tx, m, lifecycle.MachineRetire, nil, "", admin)
		}
		return err
	})
	w.look()
	_, counts := w.state(c.ID)
	require.Equal(t, map[lifecycle.MemberState]int{lifecycle.MemberWaiting: 1, lifecycle.MemberSkipped: 2, lifecycle.MemberRunning: 1}, counts)
	members, err := campaigndb.Members(t.Context(), w.store, c.ID)
	require.NoError(t, err)
	require.Contains(t, members[0].Message, "live job")
	require.Contains(t, members[1].Message, "RETIRED")
	require.Contains(t, members[3].Message, "PowerControl")
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.TransitionJob(ctx, job.ID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		return err
	})
	w.look()
	require.Equal(t, 1, w.runsOf("m-01"), "it waited")
	require.Len(t, w.active(), 2)
}

// TestCampaign_AfterTheClockWasSetBack drives a campaign whose looks and tries a clock two days
// ahead has set.
func TestCampaign_AfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.mustCreate(reboots())
	w.exec("UPDATE run_campaigns SET next_look_at = now() + interval '2 days'")
	w.exec("UPDATE run_campaign_members SET next_try_at = now() + interval '2 days', updated_at = now() + interval '2 days'")
	require.NoError(t, w.driver.Look(t.Context()))
	require.Len(t, w.active(), 1)
}

// TestCampaign_KilledDriver has a worker die after the run was started and before the campaign says
// so: the transaction has neither. The next worker starts one run.
func TestCampaign_KilledDriver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	c := w.mustCreate(reboots())
	members, err := campaigndb.Members(t.Context(), w.store, c.ID)
	require.NoError(t, err)
	killed := errors.New("killed")
	err = w.store.Tx(t.Context(), func(tx *db.Tx) error {
		ok, err := campaign.StartMember(t.Context(), tx, members[0], offers, nil)
		require.NoError(t, err)
		require.True(t, ok)
		return killed
	})
	require.ErrorIs(t, err, killed)
	require.Zero(t, w.runsOf("m-01"))
	w.look()
	require.Equal(t, 1, w.runsOf("m-01"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.exec("UPDATE run_campaigns SET next_look_at = now()")
	_ = w.driver.Look(ctx) // one that is stopped
	// A worker that still has the machine as waiting starts nothing.
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := campaign.StartMember(ctx, tx, members[0], offers, nil)
		return err
	})
	require.Equal(t, 1, w.runsOf("m-01"))
}

// TestCampaign_ManyDrivers drives one campaign by several workers at once: no machine gets two
// runs, and no more are active than may be.
func TestCampaign_ManyDrivers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 8)
	in := reboots()
	in.MaxParallel = 3
	c := w.mustCreate(in)
	members, err := campaigndb.Members(t.Context(), w.store, c.ID)
	require.NoError(t, err)
	for range 8 {
		w.exec("UPDATE run_campaigns SET next_look_at = now() WHERE next_look_at IS NOT NULL")
		var all sync.WaitGroup
		for n := range 4 {
			all.Go(func() {
				if err := w.driver.Look(t.Context()); err != nil {
					t.Error(err)
				}
				// As one that decided before the others did.
				err := w.store.Tx(t.Context(), func(tx *db.Tx) error {
					_, err := campaign.StartMember(t.Context(), tx, members[n], offers, nil)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		runs := w.active()
		require.LessOrEqual(t, len(runs), 3)
		for _, r := range runs {
			w.end(r, lifecycle.RunSucceeded)
		}
	}
	w.look()
	now, counts := w.state(c.ID)
	require.Equal(t, lifecycle.CampaignCompleted, now.Status)
	require.Equal(t, map[lifecycle.MemberState]int{lifecycle.MemberSucceeded: 8}, counts)
	for _, m := range members {
		require.Equal(t, 1, w.runsOf(m.MachineID))
	}
}

// TestCampaign_AfterARestore starts nothing by itself in a database that was restored: runs that
// the backup does not have may have taken place.
func TestCampaign_AfterARestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	c := w.mustCreate(reboots())
	w.exec("INSERT INTO restores DEFAULT VALUES")
	w.look()
	now, _ := w.state(c.ID)
	require.Equal(t, lifecycle.CampaignPaused, now.Status)
	require.Contains(t, now.Message, "restored")
	require.Empty(t, w.active())
	w.change(c, campaign.Resume)
	w.look()
	require.Len(t, w.active(), 1)
}
