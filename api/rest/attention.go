package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Attention is one thing that needs an operator.
type Attention struct {
	ID             string    `json:"id" doc:"The same while it lasts"`
	Kind           string    `json:"kind" enum:"parked_job,job_stuck,start_not_sent,orphan_workflow,node_stuck,node_quarantined,bmc_login_blocked,bmc_pin_pending,agent_locked,agent_certificate_ends,agent_certificate_adopted,agent_certificate_refused,task_uncertain,sweeper,drift,reconcile,install_failed,discovery_full,hardware_wanted,agent_silent,tenant_left,event_not_sent,audit_broken,audit_silent,restore_unconfirmed,clock_disagrees,enforcement_stopped,account_set_aside,billing_silent,keys_unconfirmed,payment_mismatch,payment_difference,payment_dispute,payments_silent,instance_failed,instance_orphan,instance_provider,campaign_stopped,run_failed"`
	Since          time.Time `json:"since"`
	AgeSeconds     int64     `json:"age_seconds"`
	SiteID         string    `json:"site_id,omitempty"`
	NodeID         string    `json:"node_id,omitempty"`
	Hostname       string    `json:"hostname,omitempty"`
	BMCID          string    `json:"bmc_id,omitempty"`
	JobID          string    `json:"job_id,omitempty"`
	JobKind        string    `json:"job_kind,omitempty"`
	WorkflowID     string    `json:"temporal_workflow_id,omitempty"`
	WorkflowLost   bool      `json:"workflow_lost,omitempty" doc:"No workflow runs for the job; an action starts one"`
	Status         string    `json:"status,omitempty" doc:"Of the job, of the node where there is no job, or of the task"`
	Stage          string    `json:"stage,omitempty"`
	FailureClass   string    `json:"failure_class,omitempty"`
	Message        string    `json:"message" doc:"What is wrong"`
	NextAction     string    `json:"next_action" doc:"What to do, in a sentence"`
	AllowedActions []string  `json:"allowed_actions" nullable:"false" doc:"Actions of the job, the node, the BMC or the task that are possible now"`
	Recommended    string    `json:"recommended_action,omitempty"`
	Runbook        string    `json:"runbook" doc:"The page that says more"`
	Link           string    `json:"link" doc:"The resource, as a path of this API"`
}

// AttentionQuery narrows the list.
type AttentionQuery struct {
	op.Page
	Kind   string `query:"kind" enum:"parked_job,job_stuck,start_not_sent,orphan_workflow,node_stuck,node_quarantined,bmc_login_blocked,bmc_pin_pending,agent_locked,agent_certificate_ends,agent_certificate_adopted,agent_certificate_refused,task_uncertain,sweeper,drift,reconcile,install_failed,discovery_full,hardware_wanted,agent_silent,tenant_left,event_not_sent,audit_broken,audit_silent,restore_unconfirmed,clock_disagrees,enforcement_stopped,account_set_aside,billing_silent,keys_unconfirmed,payment_mismatch,payment_difference,payment_dispute,payments_silent,instance_failed,instance_orphan,instance_provider,campaign_stopped,run_failed"`
	SiteID string `query:"site_id" maxLength:"200" doc:"Only of this site; what belongs to no site is left out"`
}

func (s *server) registerAttention() {
	op.Add(s.api, huma.Operation{
		OperationID: "list-attention", Method: http.MethodGet, Path: "/admin/attention", Tags: []string{"attention"},
		Summary: "List everything that requires operator action, oldest first",
		Description: "Parked jobs, jobs that do not move, machines whose run failed, starts and events that were not sent, workflows without a job, nodes between two states or in quarantine, " +
			"nodes that a tenant left and nothing proves clean, keys that were withdrawn and may still log in, BMCs that reject their login or show another certificate, locked agents, tasks of which nobody knows whether a node finished them, critical findings of drift, sites that no pass has looked at, and the sweeper itself when it has not looked for a minute. " +
			"Each with what to do. It is computed from the rows when it is asked for: what is fixed is gone from it.",
	}, s.listAttention)
}

func (s *server) listAttention(ctx context.Context, in *AttentionQuery) (*op.Listed[Attention], error) {
	place, err := in.place()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.Attention(ctx, db.AttentionFilter{Kind: in.Kind, SiteID: in.SiteID}, place, in.Limit+1)
	if err != nil {
		return nil, err
	}
	var jobs []string
	for _, r := range rows {
		if r.JobID != "" {
			jobs = append(jobs, r.JobID)
		}
	}
	subjects, err := readSubjects(ctx, s.store, jobs)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	out := op.Paged(rows, in.Limit, placeOf, func(r db.Attention) Attention { return s.attentionView(r, now, subjects[r.JobID]) })
	for i := range out.Body.Data {
		if out.Body.Data[i].Kind == db.AttentionSweeper {
			s.explainSweeper(ctx, &out.Body.Data[i])
		}
	}
	return out, nil
}

const placeSeparator = " "

func placeOf(r db.Attention) string {
	return r.Since.UTC().Format(time.RFC3339Nano) + placeSeparator + r.ID
}

// place reads the cursor: time and id of the last line of the page before.
func (q AttentionQuery) place() (db.AttentionPlace, error) {
	text, err := q.After()
	if err != nil || text == "" {
		return db.AttentionPlace{}, err
	}
	since, id, ok := strings.Cut(text, placeSeparator)
	at, err := time.Parse(time.RFC3339Nano, since)
	if !ok || err != nil {
		return db.AttentionPlace{}, problem.NewInvalid(problem.Field{
			Location: "query.cursor", Message: "is not a cursor of this list; leave it out to begin at the first page",
		})
	}
	return db.AttentionPlace{Since: at, ID: id}, nil
}

// explainSweeper asks whether Temporal is away, since then nothing sweeps.
func (s *server) explainSweeper(ctx context.Context, a *Attention) {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	if _, err := s.cfg.Temporal.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		s.log.WarnContext(ctx, "temporal does not answer", "error", err)
		a.Message += "; Temporal does not answer"
		a.NextAction = "Bring Temporal back; what was accepted meanwhile starts by itself."
	}
}

func (s *server) attentionView(r db.Attention, now time.Time, subject contract.SubjectFacts) Attention {
	a := Attention{
		ID: r.ID, Kind: r.Kind, Since: r.Since.UTC(), AgeSeconds: max(int64(now.Sub(r.Since).Seconds()), 0), SiteID: r.SiteID, NodeID: r.NodeID,
		Hostname: r.Hostname, BMCID: r.BMCID, JobID: r.JobID, JobKind: r.JobKind, WorkflowID: r.WorkflowID, WorkflowLost: r.WorkflowGone,
		Status: r.Status, Stage: r.Stage, FailureClass: r.FailureClass, Message: r.Message, NextAction: r.NextStep,
		Recommended: r.RecommendedAction, AllowedActions: []string{}, Runbook: "docs/run/incidents.md#what-requires-operator-action", Link: linkOf(r),
	}
	if r.JobID != "" && r.Kind != db.AttentionOrphanWorkflow && r.Kind != db.AttentionTaskUncertain {
		facts := lifecycle.JobFacts{WaitingOutside: r.WaitingOutside, WorkflowLost: r.WorkflowGone, CleanUp: r.FailureClass == string(lifecycle.FailCompensation),
			Unobserved: lifecycle.UnobservedStage(r.Stage)}
		for _, action := range contract.AllowedActions(contract.JobKind(r.JobKind), lifecycle.JobStatus(r.Status), facts, subject) {
			a.AllowedActions = append(a.AllowedActions, string(action))
		}
		if !slices.Contains(a.AllowedActions, a.Recommended) {
			a.Recommended = ""
		}
	}
	if explain := explanations()[r.Kind]; explain != nil {
		explain(&a)
	}
	a.Runbook = s.api.DocURL(a.Runbook)
	return a
}

func linkOf(r db.Attention) string {
	task, ofTask := strings.CutPrefix(r.ID, db.AttentionTaskUncertain+":")
	finding, ofDrift := strings.CutPrefix(r.ID, db.AttentionDrift+":")
	switch {
	case ofDrift:
		return op.Prefix + "/admin/drift/" + finding
	case r.Kind == db.AttentionReconcile:
		return op.Prefix + "/admin/drift-passes"
	case ofTask:
		return op.Prefix + "/tasks/" + task
	case r.BMCID != "":
		return op.Prefix + "/admin/bmcs/" + r.BMCID
	case r.JobID != "":
		return op.Prefix + "/admin/jobs/" + r.JobID
	case r.NodeID != "":
		return op.Prefix + "/nodes/" + r.NodeID
	}
	return op.Prefix + "/admin/attention?kind=" + r.Kind
}
