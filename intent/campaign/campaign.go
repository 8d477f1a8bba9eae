// Package campaign accepts campaigns, the same plan over many machines, and what operators do with
// them. The machines are selected once. loops/campaigns starts the runs.
package campaign

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/slipway-cloud/slipway/db"
	campaigndb "github.com/slipway-cloud/slipway/db/campaign"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/listfilter"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// The bounds of campaigns.
const (
	MaxMachines = 500
	maxParallel = 100
	maxOpen     = 20 // campaigns of one project, or of the platform, that have not ended
	maxText     = 128
	maxReason   = 500
)

// Request is a campaign that is asked for. MaxParallel and StopAfter of 0 mean 1.
type Request struct {
	RequestID, Name        string
	Type                   lifecycle.RunType
	PlanID                 string // "" is the default plan of the type
	Filter                 string // of machines, as lists take it
	MaxParallel, StopAfter int
	SkipCanary, AcceptRisk bool
	SelectionHash          string // "" for any selection
	// Project is that of a customer who asks; "" is an operator.
	Project string
	// Offers returns the capabilities of a provider, nothing of one that does not exist.
	Offers func(provider string) []runplan.Capability
	// LogsIn reports whether a provider logs in to its machines by SSH.
	LogsIn func(provider string) bool
}

// Selected is a machine of a campaign. Refused says why its run would be refused now, and Busy why
// it would wait; both are "" for one that can begin.
type Selected struct{ MachineID, Refused, Busy string }

// Selection is what a request selects, in the order of the runs.
type Selection struct {
	PlanID   string
	Machines []Selected
	Hash     string
}

// Select returns the machines of a request, with what would be refused now. It writes nothing.
func Select(ctx context.Context, tx *db.Tx, in Request) (Selection, error) {
	filter, err := check(&in)
	if err != nil {
		return Selection{}, err
	}
	out := Selection{PlanID: in.PlanID}
	if _, err := machines.FindPlanOf(ctx, tx, in.Project, in.PlanID); err != nil {
		return out, err
	}
	rows, err := machinesdb.List(ctx, tx, machinesdb.Page{Project: in.Project, Filter: filter, Limit: MaxMachines + 1})
	if err != nil {
		return out, err
	}
	if len(rows) == 0 {
		return out, invalid("filter", "matches no machine")
	}
	if len(rows) > MaxMachines {
		return out, invalid("filter", fmt.Sprintf("matches more than %d machines; add a term, and create more than one campaign", MaxMachines))
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n", in.Type, in.PlanID)
	for _, m := range rows {
		fmt.Fprintln(sum, m.ID)
		one := Selected{MachineID: m.ID}
		if err := machines.CheckRun(ctx, tx, in.start(m.ID)); err != nil {
			outcome, text := Outcome(err)
			switch outcome {
			case Refused:
				one.Refused = text
			case Busy:
				one.Busy = text
			case Unknown:
				return out, err
			}
		}
		out.Machines = append(out.Machines, one)
	}
	out.Hash = hex.EncodeToString(sum.Sum(nil)[:16])
	return out, nil
}

func (r Request) start(machine string) machines.Start {
	return machines.Start{MachineID: machine, Type: r.Type, PlanID: r.PlanID, AcceptRisk: r.AcceptRisk, Project: r.Project, Offers: r.Offers, LogsIn: r.LogsIn}
}

// check refuses what is wrong with a request by itself, fills in what it leaves out, and returns
// its filter.
func check(in *Request) (listfilter.Filter, error) {
	var bad []intent.Field
	wrong := func(field, format string, args ...any) {
		bad = append(bad, intent.Field{Name: field, Message: fmt.Sprintf(format, args...)})
	}
	if in.RequestID == "" || len(in.RequestID) > maxText {
		wrong("request_id", "must be 1 to %d bytes; it makes the request safe to repeat", maxText)
	}
	if len(in.Name) > maxText || !utf8.ValidString(in.Name) {
		wrong("display_name", "must be UTF-8 text of at most %d bytes", maxText)
	}
	if !slices.Contains(lifecycle.RunTypes(), in.Type) {
		wrong("type", "is not one of %s", lifecycle.OneOf(lifecycle.RunTypes()))
	}
	if in.MaxParallel = cmp.Or(in.MaxParallel, 1); in.MaxParallel < 1 || in.MaxParallel > maxParallel {
		wrong("max_parallel", "must be 1 to %d, or 0 for 1", maxParallel)
	}
	if in.StopAfter = cmp.Or(in.StopAfter, 1); in.StopAfter < 1 || in.StopAfter > MaxMachines {
		wrong("stop_after_failures", "must be 1 to %d, or 0 for 1", MaxMachines)
	}
	if in.AcceptRisk && in.Project != "" {
		wrong("accept_risk", "is for operators of the platform")
	}
	filter, err := listfilter.Parse(in.Filter, listfilter.MachineFields())
	switch {
	case err != nil:
		wrong("filter", "%v", err)
	case len(filter) == 0:
		wrong("filter", "is required: it selects the machines; phase!=RETIRED selects all")
	}
	if err := intent.InvalidIf(bad); err != nil {
		return nil, err
	}
	if in.PlanID == "" {
		defaults, err := runplan.Defaults()
		if err != nil {
			return nil, err
		}
		in.PlanID = defaults[in.Type].ID
	}
	return filter, nil
}

func invalid(field, message string) error {
	return &intent.Refusal{Kind: intent.Invalid, Fields: []intent.Field{{Name: field, Message: message}}}
}

// Create writes a campaign with its machines. A repeated request returns the campaign that it has
// created. It is refused where no machine could begin, and where the selection is not the one that
// was shown.
func Create(ctx context.Context, tx *db.Tx, in Request, actor db.Actor) (campaigndb.Campaign, error) {
	var c campaigndb.Campaign
	if err := tx.Lock(ctx, "slipway:campaigns:"+in.Project); err != nil {
		return c, err
	}
	stated := in
	if _, err := check(&stated); err != nil {
		return c, err
	}
	first, err := campaigndb.FindOfRequest(ctx, tx, in.Project, in.RequestID)
	if !errors.Is(err, db.ErrNotFound) {
		if err == nil && (first.Type != stated.Type || first.PlanID != stated.PlanID || first.Filter != stated.Filter) {
			err = invalid("request_id", fmt.Sprintf("was used for campaign %s, which is another one; send another request_id", first.ID))
		}
		return first, err
	}
	selection, err := Select(ctx, tx, stated)
	if err != nil {
		return c, err
	}
	if in.SelectionHash != "" && in.SelectionHash != selection.Hash {
		return c, &intent.Refusal{Kind: intent.PlanStale, PlanHash: selection.Hash, Detail: "the filter selects other machines now than it did when they were shown; validate again, and send the new selection_hash"}
	}
	project := db.OrNil(in.Project)
	open, err := campaigndb.CountOpen(ctx, tx, project)
	if err != nil {
		return c, err
	}
	if open >= maxOpen {
		return c, &intent.Refusal{Kind: intent.Conflict, Detail: fmt.Sprintf("%d campaigns have not ended; cancel one first, or wait for its end", open)}
	}
	ids, messages, able := make([]string, 0, len(selection.Machines)), make([]string, 0, len(selection.Machines)), false
	for _, m := range selection.Machines {
		ids, messages, able = append(ids, m.MachineID), append(messages, m.Refused+m.Busy), able || m.Refused == ""
	}
	if !able {
		return c, &intent.Refusal{Kind: intent.ActionRefused, Detail: "no machine of the campaign could begin; of the first: " + selection.Machines[0].Refused}
	}
	c, err = campaigndb.Create(ctx, tx, campaigndb.New{
		Campaign: campaigndb.Campaign{
			ID: db.NewID("campaign"), ProjectID: project, RequestID: in.RequestID, DisplayName: in.Name, Type: stated.Type, PlanID: stated.PlanID,
			Filter: stated.Filter, SelectionHash: selection.Hash, MaxParallel: stated.MaxParallel, StopAfter: stated.StopAfter, SkipCanary: in.SkipCanary,
			AcceptRisk: in.AcceptRisk,
		}, Machines: ids, Messages: messages, Actor: actor,
	})
	if err != nil {
		return c, err
	}
	meta := map[string]any{"campaign": c.ID, "type": c.Type, "plan": c.PlanID, "machines": len(ids)}
	return c, machines.AuditProject(ctx, tx, "create_campaign", in.Project, meta, actor)
}

// Change is what is done with a campaign. Project is that of a customer who asks; "" is an
// operator.
type Change struct{ ID, Project, Reason string }

// lock locks the campaign of a change. To a customer those of other projects do not exist.
func (h Change) lock(ctx context.Context, tx *db.Tx) (campaigndb.Campaign, error) {
	if len(h.Reason) > maxReason {
		return campaigndb.Campaign{}, invalid("reason", fmt.Sprintf("must be at most %d bytes", maxReason))
	}
	c, err := campaigndb.Lock(ctx, tx, h.ID)
	if err == nil && h.Project != "" && (c.ProjectID == nil || *c.ProjectID != h.Project) {
		return campaigndb.Campaign{}, db.NotFound("campaign " + h.ID)
	}
	return c, err
}

// actor returns the actor of a change, with its reason. Without one, the reason of an operator's
// access to the project stays.
func (h Change) actor(a db.Actor) db.Actor {
	a.Comment = cmp.Or(h.Reason, a.Comment)
	return a
}

// auditCampaign writes a change into the audit log of the project of its customer.
func (h Change) auditCampaign(ctx context.Context, tx *db.Tx, name string, actor db.Actor) error {
	return machines.AuditProject(ctx, tx, name, h.Project, map[string]any{"campaign": h.ID, "reason": h.Reason}, actor)
}

// moveCampaign moves the campaign of a change, unless it is in the state already. name is that of
// the change in the audit log of a project.
func (h Change) moveCampaign(ctx context.Context, tx *db.Tx, name string, c campaigndb.Campaign, t lifecycle.Transition[lifecycle.CampaignState], actor db.Actor) (campaigndb.Campaign, error) {
	if c.Status == t.To {
		return c, nil
	}
	if !slices.Contains(t.From, c.Status) {
		return c, &intent.Refusal{
			Kind: intent.ActionRefused, Existing: c.ID,
			Detail: fmt.Sprintf("campaign %s is %s; %s is for one that is %s", c.ID, c.Status, t.Name, lifecycle.OneOf(t.From)),
		}
	}
	c, err := campaigndb.Move(ctx, tx, c, t, h.Reason, h.actor(actor))
	if err != nil {
		return c, err
	}
	return c, h.auditCampaign(ctx, tx, name, actor)
}

// Pause starts no more runs of a campaign. Active ones go on.
func Pause(ctx context.Context, tx *db.Tx, h Change, actor db.Actor) (campaigndb.Campaign, error) {
	c, err := h.lock(ctx, tx)
	if err != nil {
		return c, err
	}
	return h.moveCampaign(ctx, tx, "pause_campaign", c, lifecycle.CampaignPause, actor)
}

// Resume goes on with a campaign that is paused or has stopped at its failures.
func Resume(ctx context.Context, tx *db.Tx, h Change, actor db.Actor) (campaigndb.Campaign, error) {
	c, err := h.lock(ctx, tx)
	if err != nil {
		return c, err
	}
	return h.moveCampaign(ctx, tx, "resume_campaign", c, lifecycle.CampaignResume, actor)
}

// Cancel gives the machines of a campaign that wait no run. Active runs go on.
func Cancel(ctx context.Context, tx *db.Tx, h Change, actor db.Actor) (campaigndb.Campaign, error) {
	c, err := h.lock(ctx, tx)
	if err != nil {
		return c, err
	}
	if c, err = h.moveCampaign(ctx, tx, "cancel_campaign", c, lifecycle.CampaignCancel, actor); err == nil {
		err = campaigndb.CancelWaiting(ctx, tx, c.ID, "the campaign was cancelled")
	}
	return c, err
}

// Retry gives machines whose run did not succeed another one: those that are named, or all. A
// campaign that was completed goes on with them; one that is paused or stopped does when it is
// resumed.
func Retry(ctx context.Context, tx *db.Tx, h Change, ids []string, actor db.Actor) (campaigndb.Campaign, error) {
	c, err := h.lock(ctx, tx)
	if err != nil {
		return c, err
	}
	if len(ids) > MaxMachines {
		return c, invalid("machine_ids", fmt.Sprintf("are more than %d", MaxMachines))
	}
	if c.Status == lifecycle.CampaignCanceled {
		return c, &intent.Refusal{Kind: intent.ActionRefused, Existing: c.ID, Detail: "campaign " + c.ID + " is CANCELED; create another one"}
	}
	n, err := campaigndb.Retry(ctx, tx, c.ID, ids)
	if err == nil && (n == 0 || len(ids) > 0 && n != int64(len(ids))) {
		err = &intent.Refusal{Kind: intent.ActionRefused, Existing: c.ID, Detail: "not every machine of the request is FAILED, CANCELED or SKIPPED in the campaign; nothing was changed"}
	}
	if err != nil {
		return c, err
	}
	if c.Status == lifecycle.CampaignCompleted {
		return h.moveCampaign(ctx, tx, "retry_campaign", c, lifecycle.CampaignRetry, actor)
	}
	entry := db.Entry{ResourceKind: campaigndb.Resource, ResourceID: c.ID, Kind: db.EntryAction, Name: lifecycle.CampaignRetry.Name, Actor: h.actor(actor)}
	if err := tx.AppendAudit(ctx, entry); err != nil {
		return c, err
	}
	return c, h.auditCampaign(ctx, tx, "retry_campaign", actor)
}
