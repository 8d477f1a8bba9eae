package problem

import (
	"fmt"

	"github.com/slipway-cloud/slipway/intent"
)

// apiPath is where the operations are that hints name.
const apiPath = "/api/v1"

// fromRefusal renders a refusal of an intent, with the command and the call that help.
func fromRefusal(r *intent.Refusal) *Problem {
	kind := map[intent.Kind]Kind{
		intent.Invalid: Invalid, intent.Conflict: Conflict, intent.LiveJob: LiveJob, intent.ActionRefused: ActionRefused,
		intent.IllegalTransition: IllegalTransition, intent.PlanMissing: PlanMissing, intent.PlanStale: PlanStale,
		intent.NoCapacity: NoCapacity, intent.RateLimited: TooManyRequests,
	}[r.Kind]
	p := New(kind, r.Detail+Hint(r.Advice)).With(r.Existing).Allow(r.Allowed)
	p.PlanHash = r.PlanHash
	if r.Shortfall != nil {
		short := Shortfall(*r.Shortfall)
		p.Shortfall = &short
	}
	at := ""
	if r.Kind == intent.Invalid {
		at = "body."
		p.Detail = defaultInvalidDetail
	}
	for _, f := range r.Fields {
		p.Errors = append(p.Errors, Field{Location: at + f.Name, Message: f.Message + fieldHint(f.Reason)})
	}
	return p
}

// Hint names the command and the call that follow an advice; "" for none. It continues a sentence.
func Hint(r intent.Advice) string {
	switch r.Reason {
	case intent.ReasonSanitize:
		return fmt.Sprintf(": slipway node decommission %s --mode reimage", r.Hostname)
	case intent.ReasonPlanMissing:
		return ": slipway node decommission makes one, shows it and starts it; or POST " + apiPath +
			"/admin/decommissions/plan with the same node and mode, read what it would do, and start with its plan_hash"
	case intent.ReasonMAASNode:
		return ": see slipway node decommission"
	case intent.ReasonMAASNodeState:
		return " (slipway node ACTION NODE, or POST " + apiPath + "/nodes/{id}/actions/{action})"
	case intent.ReasonMAASBMC:
		return " (slipway node onboard; slipway bmc set-credential)"
	case intent.ReasonNoProfile:
		return " (slipway node bootstrap, or POST " + apiPath + "/admin/nodes)"
	case intent.ReasonPXENode:
		return fmt.Sprintf(" (slipway node state %s STATE, or POST %s/nodes/%s/state)", r.Hostname, apiPath, r.NodeID)
	case intent.ReasonJobHoldsNode:
		return cancelHint(r.JobID)
	case intent.ReasonJobHoldsState:
		return cancelHint(r.JobID) + "; force is force: true (--force)"
	case intent.ReasonLoginsBlocked:
		return fmt.Sprintf(": slipway secret put; slipway bmc set-credential %s SECRET, or PUT %s/admin/bmcs/%s/credential; slipway bmc clear-block %s, or POST .../actions/clear-auth-block",
			r.BMCID, apiPath, r.BMCID, r.BMCID)
	case intent.ReasonNoEraseWorkflow:
		group := fmt.Sprintf("slipway node label %s device-group=GROUP", r.Hostname)
		if r.Group != "" {
			group = fmt.Sprintf("slipway device-group put %s --erase-workflow WORKFLOW", r.Group)
		}
		return fmt.Sprintf(" (slipway node assign-workflow %s WORKFLOW --erase, or PATCH with erase_workflow_id; %s)", r.Hostname, group)
	case intent.ReasonNoInstallWorkflow:
		return fmt.Sprintf(" (slipway node assign-workflow %s WORKFLOW, or PATCH with install_workflow_id)", r.Hostname)
	case intent.ReasonInstallUnassigned:
		return " (slipway node assign-workflow, or PATCH with install_workflow_id)"
	case intent.ReasonInstallFailed:
		return " (slipway node assign-workflow, or PATCH with install_workflow_id; --force, or force: true)"
	case intent.ReasonNoMigration:
		return fmt.Sprintf(": begin with slipway node migrate %s", r.Hostname)
	case intent.ReasonIdentityGone:
		return fmt.Sprintf(": slipway node reissue-agent %s --reason WHY gives it a new identity, or POST %s/nodes/{id}/actions/reissue-agent", r.Hostname, apiPath)
	case intent.ReasonReissuePXE:
		return fmt.Sprintf(": slipway node state %s pending --force, or POST %s/nodes/{id}/state", r.Hostname, apiPath)
	case intent.ReasonReissueByHand:
		return fmt.Sprintf(": slipway node bootstrap --reissue %s, or POST %s/admin/nodes/%s/bootstrap", r.Hostname, apiPath, r.NodeID)
	case intent.ReasonSecretMissing, intent.ReasonSecretUse, intent.ReasonBMCOfOldHardware, intent.ReasonReleaseMissing: // of fields
	}
	return ""
}

func cancelHint(jobID string) string {
	return fmt.Sprintf(" (slipway job cancel %s, or POST %s/admin/jobs/%s/actions/cancel)", jobID, apiPath, jobID)
}

func fieldHint(r intent.Reason) string {
	switch r { //nolint:exhaustive // the others are of whole refusals
	case intent.ReasonSecretMissing:
		return "; store it first with `slipway secret put`"
	case intent.ReasonSecretUse:
		return "; an administrator states its use with `slipway secret set-use`"
	case intent.ReasonBMCOfOldHardware:
		return " (--bmc-address and --bmc-credential-ref, or --keep-bmc)"
	case intent.ReasonReleaseMissing:
		return " (slipway agent-release add)"
	default:
		return ""
	}
}
