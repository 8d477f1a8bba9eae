package decommission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
)

// RequirePlan refuses a start without the hash of a plan.
func RequirePlan(hash string) error {
	if hash != "" {
		return nil
	}
	return &intent.Refusal{Kind: intent.PlanMissing, Advice: intent.Advice{Reason: intent.ReasonPlanMissing}, Detail: "a decommission is started with the hash of a plan"}
}

// KeepPlan stores a plan that is shown, so that a start with its hash can be told what changed.
func KeepPlan(ctx context.Context, store *db.Store, c Checked, plan contract.Plan) error {
	raw, err := json.Marshal(plan)
	if err != nil {
		return fmt.Errorf("keep the plan: %w", err)
	}
	return store.KeepNodePlan(ctx, db.NodePlan{NodeID: c.Node.ID, Hash: plan.Hash, Mode: string(c.Input.Mode), Plan: raw})
}

// CheckPlan refuses a start when plan, which was made now, differs from the plan with the hash that
// was sent. The refusal says what changed.
func CheckPlan(ctx context.Context, store *db.Store, c Checked, plan contract.Plan, sent string) error {
	if plan.Hash == sent {
		return nil
	}
	r := &intent.Refusal{Kind: intent.PlanStale, PlanHash: plan.Hash,
		Detail: "the plan is not true any more: it would do something else now; read the new plan, and start with its hash"}
	old, err := store.NodePlan(ctx, c.Node.ID, sent)
	switch {
	case errors.Is(err, db.ErrNotFound):
		r.Detail = "no plan of this node with that hash is known, so it cannot be said what changed; read the new plan, and start with its hash"
		return r
	case err != nil:
		return err
	case old.Mode != string(c.Input.Mode):
		r.Detail = fmt.Sprintf("that plan is for mode %s, not %s; read the new plan, and start with its hash", old.Mode, c.Input.Mode)
		return r
	}
	var before contract.Plan
	if err := json.Unmarshal(old.Plan, &before); err != nil {
		return fmt.Errorf("read the kept plan: %w", err)
	}
	r.Fields = planChanges(before, plan)
	if was, now := driveText(before), driveText(plan); was != now {
		r.Fields = append(r.Fields, intent.Field{Name: "plan.drives", Message: fmt.Sprintf("was %s; now %s", was, now)})
	}
	return r
}

// checkDrives refuses a start when the drives of the node, or those that are protected, are not
// those of the plan any more. Start has recorded them, so that they stay what they are from here
// on.
func checkDrives(ctx context.Context, tx *db.Tx, nodeID string, plan contract.Plan) error {
	if !plan.ReadsDrives() {
		return nil
	}
	expected, err := tx.ExpectedDrives(ctx, nodeID)
	if err != nil {
		return err
	}
	protected, err := tx.ProtectedSerials(ctx, nodeID)
	if err != nil {
		return err
	}
	if slices.Equal(contract.PlanDrives(expected.Drives, protected), plan.Drives) && slices.Equal(protected, plan.ProtectSerials) {
		return nil
	}
	return &intent.Refusal{Kind: intent.PlanStale, Detail: "the drives of the node were changed while its plan was made again; make the plan again and read it"}
}

// planChanges lists the stages that would do something else.
func planChanges(before, now contract.Plan) []intent.Field {
	rows := func(p contract.Plan) map[string]string {
		out := map[string]string{}
		for _, r := range p.Rows {
			text := string(r.Planned)
			if r.Failure != nil {
				text += " (" + string(r.Failure.Class) + ")"
			}
			if len(r.Steps) > 0 {
				text += ": " + strings.Join(r.Steps, "; ")
			}
			out[r.Stage] = text
		}
		return out
	}
	old, fresh := rows(before), rows(now)
	var out []intent.Field
	changed := func(stage string) {
		if old[stage] != fresh[stage] {
			out = append(out, intent.Field{Name: "plan." + stage, Message: fmt.Sprintf("was %s; now %s", orAbsent(old[stage]), orAbsent(fresh[stage]))})
		}
	}
	for _, r := range now.Rows {
		changed(r.Stage)
	}
	for _, r := range before.Rows {
		if _, still := fresh[r.Stage]; !still {
			changed(r.Stage)
		}
	}
	return out
}

// driveText names the drives of a plan in one line.
func driveText(p contract.Plan) string {
	var out []string
	for _, d := range p.Drives {
		out = append(out, fmt.Sprintf("%s (%s, %d bytes)", d.Serial, d.Model, d.Bytes))
	}
	return orAbsent(strings.Join(out, "; ")) + ", protected: " + orAbsent(strings.Join(p.ProtectSerials, ", "))
}

func orAbsent(text string) string {
	if text == "" {
		return "not in the plan"
	}
	return text
}
