package db

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
)

// Attention is one thing that needs an operator, computed from the rows that are the truth. A field
// that does not apply is empty.
type Attention = gen.AttentionRow

// The kinds of attention, in the order of their views.
const (
	AttentionParkedJob       = "parked_job"                // a job failed and waits for an action
	AttentionJobStuck        = "job_stuck"                 // a job at work does not move
	AttentionStartNotSent    = "start_not_sent"            // a workflow was not started for a minute
	AttentionEventNotSent    = "event_not_sent"            // events were not relayed for a minute
	AttentionOrphanWorkflow  = "orphan_workflow"           // a workflow runs for nobody
	AttentionNodeStuck       = "node_stuck"                // a node stands between two states and no job moves it
	AttentionNodeQuarantined = "node_quarantined"          // a node is kept from scheduling and no job works on it
	AttentionBMCLoginBlocked = "bmc_login_blocked"         // a BMC rejected its login
	AttentionBMCPinPending   = "bmc_pin_pending"           // a BMC shows a certificate that nobody approved
	AttentionAgentLocked     = "agent_locked"              // a node's agent showed a certificate of the past
	AttentionAgentEnds       = "agent_certificate_ends"    // a node's agent has not renewed its certificate, which ends soon or has ended
	AttentionAgentAdopted    = "agent_certificate_adopted" // agents have certificates that the database did not know
	AttentionAgentRefused    = "agent_certificate_refused" // somebody shows a certificate of a node that is refused
	AttentionTaskUncertain   = "task_uncertain"            // nobody knows whether a node finished a task
	AttentionSweeper         = "sweeper"                   // the sweeper itself has not looked for a minute
	AttentionDrift           = "drift"                     // a critical finding of the reconciler is open
	AttentionReconcile       = "reconcile"                 // a site was not looked at whole for some passes
	AttentionHardwareWanted  = "hardware_wanted"           // a migration waits for its new hardware to be named
	AttentionAgentSilent     = "agent_silent"              // the agent of a node in service was not heard for ten minutes
	AttentionInstallFailed   = "install_failed"            // a PXE node's installation failed three times, or what its job boots did
	AttentionDiscoveryFull   = "discovery_full"            // soon no new PXE node can be registered
	AttentionAuditBroken     = "audit_broken"              // the audit log of a resource was altered
	AttentionAuditSilent     = "audit_silent"              // the audit log was not verified whole for a day
	AttentionTenantLeft      = "tenant_left"               // a tenant left a node, and nothing proves it clean
	AttentionRestore         = "restore_unconfirmed"       // nodes have not agreed with a restored database about who is on them
	AttentionClockDisagrees  = "clock_disagrees"           // nothing is charged, since the clocks disagree
	AttentionEnforcement     = "enforcement_stopped"       // too many accounts were depleted at once; nothing is released
	AttentionAccountAside    = "account_set_aside"         // a billing account cannot be charged
	AttentionBillingSilent   = "billing_silent"            // nothing was charged for ten minutes
	AttentionKeys            = "keys_unconfirmed"          // nothing proves that a node refuses keys that were withdrawn
	AttentionPayment         = "payment_mismatch"          // a payment came that could not be credited
	AttentionPaymentDiffers  = "payment_difference"        // the payment provider and the ledger differ
	AttentionPaymentDispute  = "payment_dispute"           // a payer's bank takes a payment back
	AttentionPaymentsSilent  = "payments_silent"           // payments were not compared with the payment provider for an hour
	AttentionInstanceFailed  = "instance_failed"           // an instance has failed three days ago and may be billed
	AttentionInstanceOrphan  = "instance_orphan"           // a cloud provider has something with our tag that belongs to no instance
	AttentionInstanceLook    = "instance_provider"         // instances are not compared with their cloud provider
	AttentionCampaignStopped = "campaign_stopped"          // too many runs of a campaign failed
	AttentionRunFailed       = "run_failed"                // a run failed and left its machine in MAINTENANCE
)

// AttentionKinds lists every kind.
func AttentionKinds() []string {
	return []string{
		AttentionParkedJob, AttentionJobStuck, AttentionStartNotSent, AttentionOrphanWorkflow, AttentionNodeStuck, AttentionNodeQuarantined,
		AttentionBMCLoginBlocked, AttentionBMCPinPending, AttentionAgentLocked, AttentionAgentEnds, AttentionAgentAdopted, AttentionAgentRefused,
		AttentionTaskUncertain, AttentionSweeper, AttentionDrift, AttentionReconcile, AttentionInstallFailed,
		AttentionDiscoveryFull, AttentionHardwareWanted, AttentionAgentSilent, AttentionTenantLeft, AttentionEventNotSent,
		AttentionAuditBroken, AttentionAuditSilent, AttentionRestore,
		AttentionClockDisagrees, AttentionEnforcement, AttentionAccountAside, AttentionBillingSilent, AttentionKeys,
		AttentionPayment, AttentionPaymentDiffers, AttentionPaymentDispute, AttentionPaymentsSilent, AttentionInstanceFailed, AttentionInstanceOrphan, AttentionInstanceLook,
		AttentionCampaignStopped, AttentionRunFailed,
	}
}

// AttentionFilter narrows the list; empty fields match all.
type AttentionFilter struct{ Kind, SiteID string }

// AttentionPlace is the last line of the page before; the zero value is the
// beginning.
type AttentionPlace struct {
	Since time.Time
	ID    string
}

// Attention lists what needs an operator, oldest first, from the line after the
// one given.
func (s statements) Attention(ctx context.Context, f AttentionFilter, after AttentionPlace, limit int) ([]Attention, error) {
	p := gen.AttentionParams{Kind: f.Kind, SiteID: f.SiteID, AfterID: after.ID, MaxRows: PageLimit(limit)}
	if !after.Since.IsZero() {
		p.AfterSince = &after.Since
	}
	q := s.q // to plan it takes as long as to run it
	if f.Kind != "" {
		q = gen.New(freshPlans{s.dbtx}) // the plan has this kind only
	}
	rows, err := q.Attention(ctx, p)
	return rows, MapError("list what needs attention", err)
}

// Trouble counts what operators watch as gauges.
type Trouble struct {
	Attention    map[string]int64 // by kind; kinds without a line are 0
	Parked       map[string]int64 // jobs that wait for an operator, by failure class
	PastDeadline int64            // jobs at work past their stage's deadline
	Starts       Backlog          // workflows that are still to be started
	Events       Backlog          // events without a cursor yet
	Sweep        SweepPass
	Nodes        []NodesInStatus // all that are not deleted
	Audit        AuditCheck
	// CertificatesEnding and CertificatesEnded count agents that should be heard and have not
	// renewed.
	CertificatesEnding, CertificatesEnded int64
}

// NodesInStatus is how many nodes of a lifecycle are in a state.
type NodesInStatus = gen.CountNodesByStatusRow

// Trouble counts, on one snapshot.
func (s *Store) Trouble(ctx context.Context) (Trouble, error) {
	t := Trouble{Attention: map[string]int64{}, Parked: map[string]int64{}}
	err := s.ReadTx(ctx, func(tx *Tx) error {
		kinds, err := tx.q.CountAttention(ctx)
		if err != nil {
			return MapError("count what needs attention", err)
		}
		for _, k := range AttentionKinds() {
			t.Attention[k] = 0
		}
		for _, r := range kinds {
			t.Attention[r.Kind] = r.Items
		}
		parked, err := tx.q.CountParked(ctx)
		if err != nil {
			return MapError("count parked jobs", err)
		}
		for _, r := range parked {
			t.Parked[r.FailureClass] = r.Jobs
		}
		if t.PastDeadline, err = tx.q.CountPastDeadline(ctx); err != nil {
			return MapError("count jobs past their deadline", err)
		}
		if t.Starts, err = tx.OutboxBacklog(ctx, "start_workflow"); err != nil {
			return err
		}
		if t.Events, err = tx.OutboxBacklog(ctx, "event"); err != nil {
			return err
		}
		certificates, err := tx.q.CountCertificates(ctx)
		if err != nil {
			return MapError("count certificates that end", err)
		}
		if t.Audit, err = tx.AuditCheck(ctx); err != nil {
			return err
		}
		if t.Nodes, err = tx.q.CountNodesByStatus(ctx); err != nil {
			return MapError("count nodes by state", err)
		}
		t.CertificatesEnding, t.CertificatesEnded = certificates.Ending, certificates.Ended
		t.Sweep, err = tx.SweepPass(ctx)
		return err
	})
	return t, err
}
