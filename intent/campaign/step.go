package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	campaigndb "github.com/slipway-cloud/slipway/db/campaign"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// Kind is what becomes of a machine whose run could not be started.
type Kind int

// The kinds.
const (
	Unknown Kind = iota // the cause is not the machine; the same may succeed later
	Refused             // the run is not possible
	Busy                // something else runs on the machine
)

// Outcome returns what the error of a start means for the machine, with the text that its campaign
// shows. A run never fails for what else runs on the machine.
func Outcome(err error) (Kind, string) {
	var start *runplan.StartRefusal
	var conflict *db.ConflictError
	var illegal *lifecycle.IllegalTransitionError
	refused := intent.AsRefusal(err)
	switch {
	case errors.As(err, &start) && start.Reason == runplan.ReasonActiveRun:
		return Busy, fmt.Sprintf("run %s is active on the machine", start.Existing)
	case errors.As(err, &conflict):
		return Busy, conflict.Error()
	case refused != nil && (refused.Kind == intent.LiveJob || refused.Kind == intent.Conflict):
		return Busy, refused.Error()
	case start != nil, refused != nil, errors.As(err, &illegal), errors.Is(err, db.ErrNotFound):
		return Refused, err.Error()
	}
	return Unknown, "internal error; the worker's log holds the detail"
}

// system is the actor of what a campaign does by itself.
func system(comment string) db.Actor { return db.Actor{Owner: lifecycle.OwnerSystem, Comment: comment} }

// Begin claims a campaign that is due and records which of its runs have ended. Then it pauses,
// stops or completes the campaign, or returns the machines that may get their run. found is false
// when no campaign is due.
func Begin(ctx context.Context, tx *db.Tx, every time.Duration) (due []campaigndb.Member, found bool, err error) {
	look, found, err := campaigndb.ClaimLook(ctx, tx, every)
	if err != nil || !found {
		return nil, false, err
	}
	c := look.RunCampaign
	failed, err := noteEnded(ctx, tx, c.ID)
	if err != nil {
		return nil, true, err
	}
	c.Failures += failed
	all, err := campaigndb.Counts(ctx, tx, c.ID)
	if err != nil {
		return nil, true, err
	}
	counts := all[c.ID]
	open := counts[lifecycle.MemberRunning] > 0 || c.Status == lifecycle.CampaignRunning
	if err := campaigndb.EndLook(ctx, tx, c.ID, failed, open, every); err != nil {
		return nil, true, err
	}
	if t, why := next(look, c, counts); t != nil {
		_, err = campaigndb.Move(ctx, tx, c, *t, why, system(why))
		return nil, true, err
	}
	room := lifecycle.CampaignRoom(c.MaxParallel, c.SkipCanary, counts)
	if c.Status == lifecycle.CampaignRunning && room > 0 {
		due, err = campaigndb.ListDue(ctx, tx, c.ID, room+spare)
	}
	return due, true, err
}

// spare is how many machines more than there is room for are tried, where some are busy.
const spare = 20

// noteEnded moves the machines whose run has ended, and returns how many runs failed.
func noteEnded(ctx context.Context, tx *db.Tx, id string) (failed int, err error) {
	ended, err := campaigndb.ListEnded(ctx, tx, id)
	if err != nil {
		return 0, err
	}
	for _, e := range ended {
		t := lifecycle.MemberAfterRun(e.RunPhase)
		if t.To == lifecycle.MemberFailed {
			failed++
		}
		m := campaigndb.Member{CampaignID: id, Ordinal: e.Ordinal, MachineID: e.MachineID, Status: e.Status}
		if err := campaigndb.MoveMember(ctx, tx, m, t, "", e.RunMessage); err != nil {
			return 0, err
		}
	}
	return failed, nil
}

// next returns how a campaign moves by itself, and why; nil for not at all.
func next(look campaigndb.Look, c campaigndb.Campaign, counts map[lifecycle.MemberState]int) (*lifecycle.Transition[lifecycle.CampaignState], string) {
	if lifecycle.RunCampaign.Terminal(c.Status) || c.Status == lifecycle.CampaignCompleted {
		return nil, ""
	}
	active := c.Status == lifecycle.CampaignRunning
	switch {
	case counts[lifecycle.MemberWaiting]+counts[lifecycle.MemberRunning] == 0:
		return &lifecycle.CampaignComplete, fmt.Sprintf("%d succeeded, %d failed, %d were cancelled, %d skipped", counts[lifecycle.MemberSucceeded],
			counts[lifecycle.MemberFailed], counts[lifecycle.MemberCanceled], counts[lifecycle.MemberSkipped])
	case c.Status != lifecycle.CampaignStopped && c.Failures >= c.StopAfter && counts[lifecycle.MemberWaiting] > 0:
		return &lifecycle.CampaignStop, fmt.Sprintf("%d runs failed, and it stops after %d; %d machines wait", c.Failures, c.StopAfter, counts[lifecycle.MemberWaiting])
	case active && look.Restored:
		return &lifecycle.CampaignPause, "the database was restored: compare which machines had their run, then resume or cancel the campaign"
	case active && !look.TakesWork:
		return &lifecycle.CampaignPause, "its project takes no new work"
	}
	return nil, ""
}

// StartMember starts the run of a machine that Begin has returned, with the row of the campaign
// that says so in the same transaction: a worker that dies in between has done neither. The request
// id of the run names the campaign and the attempt, so that no machine gets two runs of one
// attempt. ok is false when the campaign has no room any more; nothing was started then.
func StartMember(ctx context.Context, tx *db.Tx, m campaigndb.Member, offers func(string) []runplan.Capability, logsIn func(string) bool) (ok bool, err error) {
	c, err := campaigndb.Lock(ctx, tx, m.CampaignID)
	if err != nil || c.Status != lifecycle.CampaignRunning {
		return false, err
	}
	all, err := campaigndb.Counts(ctx, tx, c.ID)
	if err != nil || lifecycle.CampaignRoom(c.MaxParallel, c.SkipCanary, all[c.ID]) == 0 {
		return false, err
	}
	now, waits, err := stillWaits(ctx, tx, m)
	if err != nil || !waits {
		return err == nil, err
	}
	in := Request{Type: c.Type, PlanID: c.PlanID, AcceptRisk: c.AcceptRisk, Offers: offers, LogsIn: logsIn}
	if c.ProjectID != nil {
		in.Project = *c.ProjectID
	}
	owner, err := campaigndb.OwnerOf(ctx, tx, c) // an operator may have created it for the project
	if err != nil {
		return false, err
	}
	actor := db.Actor{Owner: owner, ID: c.CreatedBy, Comment: c.ID}
	start := in.start(m.MachineID)
	start.Campaign, start.RequestID = c.ID, fmt.Sprintf("%s/%d", c.ID, m.Attempt)
	run, err := machines.StartRun(ctx, tx, start, actor)
	if err != nil {
		return true, err
	}
	return true, campaigndb.MoveMember(ctx, tx, now, lifecycle.MemberStart, run.ID, "")
}

// SkipMember gives a machine that waits no run, and says why.
func SkipMember(ctx context.Context, tx *db.Tx, m campaigndb.Member, why string) error {
	if _, err := campaigndb.Lock(ctx, tx, m.CampaignID); err != nil {
		return err
	}
	now, waits, err := stillWaits(ctx, tx, m)
	if err != nil || !waits {
		return err
	}
	return campaigndb.MoveMember(ctx, tx, now, lifecycle.MemberSkip, "", why)
}

// stillWaits reads a machine of a campaign that is locked. It waits unless another worker was
// faster.
func stillWaits(ctx context.Context, tx *db.Tx, m campaigndb.Member) (now campaigndb.Member, waits bool, err error) {
	now, err = campaigndb.GetMember(ctx, tx, m.CampaignID, m.Ordinal)
	return now, err == nil && now.Status == lifecycle.MemberWaiting && now.Attempt == m.Attempt, err
}
