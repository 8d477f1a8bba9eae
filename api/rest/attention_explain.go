package rest

import (
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// explanations say, for each kind of attention, what is wrong and what to do,
// where the row itself does not.
func explanations() map[string]func(*Attention) {
	return map[string]func(*Attention){
		db.AttentionParkedJob:       explainParked,
		db.AttentionJobStuck:        explainStuck,
		db.AttentionStartNotSent:    explainStart,
		db.AttentionOrphanWorkflow:  explainOrphan,
		db.AttentionNodeStuck:       explainNodeStuck,
		db.AttentionNodeQuarantined: explainQuarantine,
		db.AttentionBMCLoginBlocked: explainLoginBlock,
		db.AttentionBMCPinPending:   explainPin,
		db.AttentionAgentLocked:     explainLock,
		db.AttentionAgentEnds:       explainAgentEnds,
		db.AttentionAgentAdopted:    explainAgentAdopted,
		db.AttentionAgentRefused:    explainAgentRefused,
		db.AttentionTaskUncertain:   explainTask,
		db.AttentionSweeper:         explainSilence,
		db.AttentionDrift:           explainDrift,
		db.AttentionReconcile:       explainReconcile,
		db.AttentionInstallFailed:   explainInstall,
		db.AttentionDiscoveryFull:   explainDiscovery,
		db.AttentionAgentSilent:     explainSilentAgent,
		db.AttentionHardwareWanted:  explainWanted,
		db.AttentionTenantLeft:      explainTenant,
		db.AttentionEventNotSent:    explainEvents,
		db.AttentionAuditBroken:     explainAudit,
		db.AttentionAuditSilent:     explainAuditSilence,
		db.AttentionRestore:         explainRestore,
		db.AttentionClockDisagrees:  explainBilling("Set the clocks right by NTP. Nothing is lost: the next tick charges the whole time."),
		db.AttentionEnforcement: explainBilling("Look at the prices and the charges of the last hour. Give back by adjustments what was charged wrongly, then let the releases go on; " +
			"accounts that are still depleted are released then."),
		db.AttentionAccountAside:  explainBilling("Correct what the message names. Each tick tries the account again, and charges the whole time then."),
		db.AttentionKeys:          explainKeys,
		db.AttentionBillingSilent: explainBilling("Check that a worker runs, that Temporal answers, and that the schedule bill/TASK_QUEUE is there and not paused."),
		db.AttentionPayment:       explainPayment("Compare what was asked for with what was paid, then resolve the session by credit, refund or write_off, with a reason."),
		db.AttentionPaymentDiffers: explainPayment("Find the payment at the payment provider, book or refund what is missing, or acknowledge the difference with a reason. " +
			"One that is no more is gone after the next comparison."),
		db.AttentionPaymentDispute: explainPayment("Answer an open dispute at the payment provider before its deadline. After a lost one, clear the dispute when the account may have allocations again."),
		db.AttentionInstanceFailed: explainInstance("Read its action log, then terminate it, or retry the stage of its job: its provider may bill it."),
		db.AttentionInstanceOrphan: explainInstance("Find out whose it is, then delete it in the provider's console. Nothing deletes it by itself."),
		db.AttentionInstanceLook: func(a *Attention) {
			a.NextAction, a.Runbook = "Check the provider's status page, the network, the key and the project. Nothing moves until the zone is compared again.", "docs/runbooks/cloud_unavailable.md"
		},
		db.AttentionCampaignStopped: func(a *Attention) {
			a.NextAction = "Look at what failed with slipway campaign show, then resume the campaign, or cancel it."
			a.Runbook = "docs/machines.md#campaigns"
		},
		db.AttentionRunFailed: explainFailedRun,
		db.AttentionPaymentsSilent: func(a *Attention) {
			a.Runbook = "docs/runbooks/payments_unavailable.md"
			a.NextAction = "Check that a worker runs, that the payment provider answers, and that the schedule payments/TASK_QUEUE is there and not paused. Nothing is lost: the next pass does what is due."
		},
	}
}

// explainFailedRun says what to do about a machine whose run failed.
func explainFailedRun(a *Attention) {
	info := lifecycle.Failure(lifecycle.FailureClass(a.FailureClass))
	a.Runbook = info.Runbook()
	a.NextAction = info.Next + " Retry the run with slipway run retry, start another one, or set the phase of the machine with slipway machine set-phase when it is in order."
}

// explainBilling says what to do about money.
func explainBilling(next string) func(*Attention) {
	return func(a *Attention) {
		a.NextAction, a.Runbook = next, "docs/customers/billing.md#what-requires-an-operator"
	}
}

func explainKeys(a *Attention) {
	a.NextAction = "Start the node or its agent if it is silent: a job tries again within ten minutes. Whoever is root on the node may keep it from refusing a key: " +
		"tell the project's owners that only the release of the allocation ends that access."
	a.Runbook = "docs/customers/allocations.md#when-nothing-proves-a-key-refused"
}

// explainInstance says what to do about an instance, or about what a provider bills.
func explainInstance(next string) func(*Attention) {
	return func(a *Attention) {
		a.NextAction, a.Runbook = next, "docs/customers/instance-providers.md#what-the-pass-does"
	}
}

// explainPayment says what to do about a payment.
func explainPayment(next string) func(*Attention) {
	return func(a *Attention) { a.NextAction, a.Runbook = next, "docs/runbooks/payment_mismatch.md" }
}

func explainAuditSilence(a *Attention) {
	a.NextAction = "See in the workers' logs why the verification stops there (audit log not verified); it goes on by itself while a worker runs and the database answers."
	a.Runbook = "docs/run/incidents.md#verifying-the-audit-log"
}

func explainParked(a *Attention) {
	info := lifecycle.Failure(lifecycle.FailureClass(a.FailureClass))
	a.Runbook = info.Runbook()
	if a.NextAction == "" {
		a.NextAction = info.Next
	}
	if a.Message == "" {
		a.Message = "the job failed"
	}
	if a.WorkflowLost && info.Class != lifecycle.FailWorkflowLost {
		a.Message += "; its workflow is gone as well"
		a.NextAction += " The workflow is started again by the action."
	}
}

func explainStuck(a *Attention) {
	a.NextAction = "Fix what the message names: bring a node back whose agent is not heard, start a worker of the build that is missing, or roll back a build whose code fails; " +
		"the job then goes on by itself. If it cannot, terminate the workflow in Temporal: within a minute the job is parked, and resume continues it on the current build."
}

func explainStart(a *Attention) {
	if a.Message == "" {
		a.Message = "its workflow has not been started"
	} else {
		a.Message = "its workflow could not be started: " + a.Message
	}
	a.NextAction = "Check that a worker runs and that Temporal answers it; the start is repeated by itself."
}

func explainEvents(a *Attention) {
	a.Message += "; whoever follows them sees nothing new since"
	a.NextAction = "Check that a worker runs and reaches the database, and what its log says of the relay; the events are kept and go out by themselves, in their order."
}

func explainAudit(a *Attention) {
	a.NextAction = "Find out who had the rights of the database's owner, and compare its rows with a backup. The line stays until the chain is whole again, after a restore."
	a.Runbook = "docs/run/incidents.md#verifying-the-audit-log"
}

func explainRestore(a *Attention) {
	a.Runbook = "docs/run/backup.md#logins-of-bmcs-after-a-restore"
	switch {
	case strings.HasSuffix(a.ID, ":bmc"):
		a.NextAction = "Wait until each BMC was logged in to. Where the login was rotated since the backup, Slipway looks for it in the sealed copies and in MAAS. " +
			"Where it is in neither, reset it on the BMC, store it and clear the block."
		return
	case strings.HasSuffix(a.ID, ":adopted"):
		a.NextAction = "Rotate the passwords of these BMCs. The line of a BMC goes when its login is another one."
		return
	}
	a.Message += "; no claim takes them meanwhile"
	a.NextAction = "Wait for the next pass over each site, which asks MAAS and the agents. A node that stays here has a silent or an old agent, or a finding of drift: " +
		"start it, update its agent, or do what the finding says."
	a.Runbook = "docs/customers/allocations.md#after-a-restore"
}

func explainOrphan(a *Attention) {
	a.NextAction = "Nothing, as a rule: the sweeper ends it. When the message says that it does not, check which database the workers use, " +
		"then terminate the workflow in Temporal."
}

func explainNodeStuck(a *Attention) {
	a.Message = fmt.Sprintf("the node has been %s for %s and no job works on it", a.Status, time.Duration(a.AgeSeconds)*time.Second)
	if message, next, ofPXE := stuckPXE(lifecycle.NodeStatus(a.Status), a.Hostname); ofPXE {
		a.Message += message
		a.NextAction, a.Runbook = next, "docs/pxe.md#when-a-job-stands-still"
		return
	}
	a.NextAction = "Look at the node's timeline for what happened to its job, then onboard the host again."
	if _, _, between := lifecycle.ResumeOf(lifecycle.NodeStatus(a.Status)); between {
		a.AllowedActions = []string{string(lifecycle.NodeActionResume)}
		a.Recommended = string(lifecycle.NodeActionResume)
		a.NextAction = "Look at the node's timeline for what happened to its job, then resume the node with slipway node resume: it creates a job that owns it."
	}
}

// stuckPXE is said of a PXE node whose job was cancelled: no state leads back,
// and asking for the state again begins the next job.
func stuckPXE(s lifecycle.NodeStatus, hostname string) (message, next string, ok bool) {
	switch s { //nolint:exhaustive // the two states that a job owns
	case lifecycle.NodeDeprovisioning:
		return "; nothing proves its disks erased", fmt.Sprintf("Look at the node's timeline for what happened to its job, then begin again with slipway node deprovision %s. "+
			"If you have destroyed its disks yourself, set it retired with slipway node state %s retired.", hostname, hostname), true
	case lifecycle.NodeMigrating:
		return "; it may stand on either hardware", fmt.Sprintf("Look at the node's timeline for what happened to its job, then begin again with slipway node migrate %s. "+
			"If it runs where it should, set it active with slipway node state %s active.", hostname, hostname), true
	}
	return "", "", false
}

func explainQuarantine(a *Attention) {
	why := a.Message
	a.Message = "the node is kept from scheduling"
	if why != "" {
		a.Message += ": " + why
	}
	for _, action := range lifecycle.AllowedNodeActions(lifecycle.NodeQuarantined, false) {
		a.AllowedActions = append(a.AllowedActions, string(action))
	}
	a.NextAction = "Find out why in the node's timeline and fix it. Then unquarantine it, if it enrolled before, its agent reports it healthy and no tenant has left it unproven (tenant_left); clean it with slipway node decommission; " +
		"or onboard the host again."
}

func explainTenant(a *Attention) {
	a.Message = fmt.Sprintf("a tenant left the node at %s, and nothing proves it clean since; it does not become active again", a.Since.Format(time.RFC3339))
	if lifecycle.NodeStatus(a.Status) == lifecycle.NodeActive {
		a.Message = fmt.Sprintf("a tenant left the node at %s, and it is active without anything that proves it clean", a.Since.Format(time.RFC3339))
	}
	a.NextAction = fmt.Sprintf("Clean it with slipway node decommission %s --mode reimage; where its agent cannot be asked, bring the node back first, or take it out with --mode full_decommission.", a.Hostname)
	a.Runbook = "docs/decommission.md#after-a-tenant"
}

func explainLoginBlock(a *Attention) {
	why := a.Message
	a.Message = "no login to the BMC is tried"
	if why != "" {
		a.Message += ": " + why
	}
	a.AllowedActions = []string{"clear-auth-block"}
	a.Recommended = "clear-auth-block"
	a.NextAction = "Correct the stored credential or the BMC's account, then clear the block; jobs parked for it are retried after that."
	a.Runbook = lifecycle.Failure(lifecycle.FailBMCAuthRejected).Runbook()
}

func explainPin(a *Attention) {
	a.Message = "the BMC shows a certificate that nobody approved, with pin " + a.Message
	a.AllowedActions = []string{"approve-pin"}
	a.Recommended = "approve-pin"
	a.NextAction = "Compare the pin with what the BMC itself shows, and approve it if they agree; if not, find out who answers at its address."
	a.Runbook = lifecycle.Failure(lifecycle.FailBMCPinMismatch).Runbook()
}

func explainLock(a *Attention) {
	why := a.Message
	a.Message = "the node's agent is locked out"
	if why != "" {
		a.Message += ": " + why
	}
	if lifecycle.NodeStatus(a.Status) == lifecycle.NodeMigrating {
		a.NextAction = "Nothing, while the node is put on new hardware: the agent of the old one is shut out, and the new one's enrols by itself. If the old machine is still in use, find out by whom."
		return
	}
	a.AllowedActions, a.Recommended, a.Runbook = []string{reissueAction}, reissueAction, agentRunbook
	a.NextAction = fmt.Sprintf("Find out whether the node was cloned or restored from an image, or who has copied its certificate; then give its agent a new identity with slipway node reissue-agent %s, or onboard the node again.", a.Hostname)
}

// reissueAction is the last part of the path of the operation reissue-agent.
const reissueAction = "reissue-agent"

func explainTask(a *Attention) {
	a.Message = fmt.Sprintf("it is not known whether the node finished %s: %s", a.Stage, a.Message)
	a.AllowedActions = []string{"requeue"}
	a.Recommended = "requeue"
	a.NextAction = "Look at the node for what was done, then have the task done again with slipway task requeue, or retry the stage of the job that waits for it. " +
		"An agent that comes back and has kept the result settles it by itself."
	a.Runbook = lifecycle.Failure(lifecycle.FailNodeTaskUncertain).Runbook()
}

func explainSilence(a *Attention) {
	why := a.Message
	a.Message = fmt.Sprintf("the sweeper has not looked at everything for %d s", a.AgeSeconds)
	if why != "" {
		a.Message += ": " + why
	}
	a.NextAction = "Check that a worker runs and that Temporal answers; then that the schedule sweep/TASK_QUEUE is there and not paused. " +
		"Until it runs, lost workflows are not found."
}

func explainDrift(a *Attention) {
	a.Runbook = "docs/states/drift.md#" + a.Stage
	d, _ := lifecycle.DriftDetectorOf(a.Stage)
	a.NextAction = d.Next
	for _, action := range d.Actions() {
		a.AllowedActions = append(a.AllowedActions, string(action))
	}
}

func explainReconcile(a *Attention) {
	why := a.Message
	what := "the site has not been compared whole with its region, BMCs and agents"
	a.NextAction = "Check that a worker runs and that the site's region answers (probe the site); then that the schedule reconcile/TASK_QUEUE/SITE is there and not paused."
	if a.SiteID == "" {
		what = "the nodes that boot from the network have not been compared with their BMCs and agents"
		a.NextAction = "Check that a worker runs; then that the schedule reconcile/TASK_QUEUE/nodes-without-site is there and not paused."
	}
	a.Message = fmt.Sprintf("%s for %d s", what, a.AgeSeconds)
	if why != "" {
		a.Message += ": " + why
	}
	a.Runbook = "docs/drift.md"
}

func explainInstall(a *Attention) {
	a.Runbook = "docs/pxe.md#when-an-installation-fails"
	if a.JobID != "" {
		a.Message = "what job " + a.JobID + " boots from the network reported an error, and was not begun again: " + a.Message
		a.NextAction = "Look at the machine. It tries again at each boot; the job waits until the deadline of its stage. Fix the workflow if that is what is wrong, and restart the machine."
		return
	}
	a.Message = "the installation failed three times; the last time: " + a.Message
	a.NextAction = "Look at the machine, then assign an install workflow with slipway node assign-workflow and begin again with slipway node state NODE pending --force; " +
		"or take the node out with slipway node state NODE retired."
}

func explainWanted(a *Attention) {
	a.NextAction = "Name it with slipway node replace-hardware " + a.Hostname + " --mac MAC (and --serial, --bmc-address); the job goes on by itself."
	a.Runbook = "docs/pxe.md#migrating"
}

// explainSilentAgent is about a node in service. Every state of a MAAS node that has an agent is
// either active or offline here; a PXE node is active.
func explainSilentAgent(a *Attention) {
	a.NextAction = "See whether the machine runs and reaches the agent API, then look at the agent's log on the node."
	a.Runbook = "docs/agent.md#when-an-agent-is-silent-or-locked"
}

func explainDiscovery(a *Attention) {
	a.Message += fmt.Sprintf("; at %d no new machine is registered any more", db.MaxDiscovered)
	a.NextAction = "Approve what is real, and delete the rest with slipway node purge-discovered: a machine that is real is discovered again at its next boot."
	a.Runbook = "docs/pxe.md#unknown-machines-on-the-boot-network"
}
