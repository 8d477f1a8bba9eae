package stage

import (
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// riskRefusal returns why an action that overrides a safety check is refused, "" when it is proven
// or overrides none. The only such action is adopt_observed_state with accept_risk. Every other
// action stays within the rules of the job.
func (r *runner[S]) riskRefusal(req *request) (string, error) {
	if !req.ask.AcceptRisk {
		return "", nil
	}
	in := contract.ActionCheck{JobID: r.in.JobID, RunID: r.runID, Entry: req.ask.Entry(req.action)}
	in.Entry.Seen = r.knows(in.Entry.Proof)
	for away := 0; ; away++ { // as long as a projection waits
		var v contract.ActionVerdict
		ctx := quickDB(r.ctx, "verify "+string(req.action))
		err := workflow.ExecuteLocalActivity(ctx, projections.VerifyAction, in).Get(ctx, &v)
		switch {
		case err == nil && v.Unproven == "":
			return "", nil
		case err == nil:
			return "accept_risk overrides a safety check, so it is taken only through Slipway's API, which proves who asks; of this action that is not proven: " + v.Unproven, nil
		case isPermanent(err) || away == unavailableLimit:
			return "", err
		}
	}
}

// renameFreezer corrects the message of a freeze when the projection has found that its actor is
// not proven.
func (r *runner[S]) renameFreezer(entries []contract.ActionEntry, res contract.ProjectResult) {
	if r.failure == nil || r.failure.Class != lifecycle.FailFrozen {
		return
	}
	for _, i := range res.Unproven {
		if i < len(entries) && entries[i].Effect == lifecycle.EffectFreeze {
			r.failure.Message = lifecycle.FrozenBy(lifecycle.Claimed(entries[i].Actor), entries[i].Reason)
		}
	}
}
