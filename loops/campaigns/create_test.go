package campaigns_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	campaigndb "github.com/slipway-cloud/slipway/db/campaign"
	"github.com/slipway-cloud/slipway/db/dbtest"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/campaign"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// TestCampaign_Project selects only machines of the project, and starts none that has left it
// meanwhile, nor any while the project takes no new work.
func TestCampaign_Project(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	ours, other := dbtest.Project(t, w.store).ID, dbtest.Project(t, w.store).ID
	for id, project := range map[string]string{"o-1": ours, "o-2": ours, "x-1": other} {
		w.register(machines.Registration{ID: id, ProjectID: project})
	}
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := machines.CreatePlan(ctx, tx, runplan.Plan{ID: "theirs", StartableBy: runplan.StartableByCustomer, Steps: []runplan.Step{{Name: "a", Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}}}}, false, admin)
		return err
	})
	in := reboots()
	in.Project, in.MaxParallel, in.PlanID = ours, 5, "theirs"
	c := w.mustCreate(in)
	members, err := campaigndb.Members(t.Context(), w.store, c.ID)
	require.NoError(t, err)
	require.Len(t, members, 2)
	require.Equal(t, "o-1", members[0].MachineID)
	w.register(machines.Registration{ID: "o-2", ProjectID: other})
	w.look()
	_, counts := w.state(c.ID)
	require.Equal(t, map[lifecycle.MemberState]int{lifecycle.MemberRunning: 1, lifecycle.MemberSkipped: 1}, counts)
	require.Zero(t, w.runsOf("o-2"))

	in.RequestID, in.Filter = "week-2", "phase=READY AND customer_id="+other
	_, err = w.create(in)
	require.Contains(t, err.Error(), "matches no machine")
	in.Filter, in.AcceptRisk = "labels.env=prod", true
	_, err = w.create(in)
	require.Contains(t, err.Error(), "for operators")
	err = w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := campaign.Pause(t.Context(), tx, campaign.Change{ID: c.ID, Project: other}, admin)
		return err
	})
	require.ErrorIs(t, err, db.ErrNotFound)

	w.end(w.active()[0], lifecycle.RunSucceeded)
	in.AcceptRisk, in.RequestID = false, "week-3"
	closing := w.mustCreate(in)
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		p, err := tenancydb.LockProject(ctx, tx, ours)
		if err == nil {
			_, err = tenancydb.MoveProject(ctx, tx, p, lifecycle.ProjectClose, admin)
		}
		return err
	})
	w.look()
	now, _ := w.state(closing.ID)
	require.Equal(t, lifecycle.CampaignPaused, now.Status)
	require.Empty(t, w.active())
}

// TestCreate_Refuses names what is wrong, and repeats a request.
func TestCreate_Refuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	for want, spoil := range map[string]func(*campaign.Request){
		"request_id must be 1":             func(r *campaign.Request) { r.RequestID = "" },
		"type is not one of":               func(r *campaign.Request) { r.Type = "DANCE" },
		"filter is required":               func(r *campaign.Request) { r.Filter = "" },
		"filter term 1":                    func(r *campaign.Request) { r.Filter = "nonsense" },
		"filter matches no machine":        func(r *campaign.Request) { r.Filter = "labels.env=none" },
		"max_parallel must be 1 to 100":    func(r *campaign.Request) { r.MaxParallel = 101 },
		"stop_after_failures must be":      func(r *campaign.Request) { r.StopAfter = -1 },
		"display_name must be":             func(r *campaign.Request) { r.Name = "\xff" },
		"no machine of the campaign could": func(r *campaign.Request) { r.Type = lifecycle.RunTypeNetReconfig },
		"selects other machines now":       func(r *campaign.Request) { r.SelectionHash = "0000" },
		"plan nothing":                     func(r *campaign.Request) { r.PlanID = "nothing" },
	} {
		in := reboots()
		spoil(&in)
		_, err := w.create(in)
		require.ErrorContains(t, err, want)
	}
	in := reboots()
	var shown campaign.Selection
	require.NoError(t, w.store.ReadTx(t.Context(), func(tx *db.Tx) (err error) {
		shown, err = campaign.Select(t.Context(), tx, in)
		return err
	}))
	require.Len(t, shown.Machines, 2)
	in.SelectionHash = shown.Hash
	first := w.mustCreate(in)
	require.Equal(t, first.ID, w.mustCreate(in).ID, "the same request")
	in.Filter = "phase=READY"
	_, err := w.create(in)
	require.ErrorContains(t, err, "was used for campaign "+first.ID)
	err = w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := machines.StartRun(t.Context(), tx, machines.Start{RequestID: first.ID + "/1", MachineID: "m-01", Type: lifecycle.RunTypeReboot, Offers: offers}, admin)
		return err
	})
	require.ErrorContains(t, err, "for the runs of campaigns", "nobody takes the place of its run")
}
