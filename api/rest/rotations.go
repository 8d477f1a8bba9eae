package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// RotationRequest asks for a BMC's password to be replaced.
type RotationRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"2000" doc:"Why; it stands in the history and in the audit log"`
}

// Rotation is one rotation of a BMC's password: who asked for it, and what came
// of it. Logins are references.
type Rotation struct {
	JobID        string                 `json:"job_id"`
	Status       lifecycle.JobStatus    `json:"status" doc:"The job's state"`
	Outcome      string                 `json:"outcome" enum:"in_progress,needs_human,rotated,undone,cancelled" doc:"What came of it; cancelled is before anything began"`
	Reason       string                 `json:"reason,omitempty"`
	RequestedBy  string                 `json:"requested_by,omitempty"`
	RequestedAt  time.Time              `json:"requested_at"`
	FinishedAt   *time.Time             `json:"finished_at,omitempty"`
	OldRef       string                 `json:"old_credential_ref,omitempty" doc:"The login before"`
	NewRef       string                 `json:"new_credential_ref,omitempty" doc:"The login that the rotation made"`
	FailureClass lifecycle.FailureClass `json:"failure_class,omitempty"`
	Message      string                 `json:"message,omitempty" doc:"Why it waits, or how it ended"`
}

func (s *Server) registerRotations() {
	tags := []string{"bmcs"}
	add(s, huma.Operation{
		OperationID: "rotate-bmc-credential", Method: http.MethodPost, Path: "/admin/bmcs/{id}/rotations", Tags: tags, Summary: "Replace a BMC's password",
		Description: "Accepts the intent and answers at once; the job shows how far it is and takes the same actions as every job. The new password is made by Slipway, " +
			"tried before it counts, told to MAAS where the node is a machine of MAAS, and known by reference only. A BMC or node that has a live job answers 409 with its id; " +
			"so does a BMC to which logins are stopped.",
		DefaultStatus: http.StatusAccepted,
	}, s.createRotation)
	add(s, huma.Operation{
		OperationID: "list-bmc-rotations", Method: http.MethodGet, Path: "/admin/bmcs/{id}/rotations", Tags: tags, Summary: "A BMC's rotations, newest first",
	}, s.listRotations)
	add(s, huma.Operation{
		OperationID: "set-bmc-credential", Method: http.MethodPut, Path: "/admin/bmcs/{id}/credential", Tags: tags, Summary: "Use another stored login",
		Description: "For a password that was changed by hand. Nothing is tried and no login block is lifted: next_step says what to do then. " +
			"While a job works with the BMC it answers 409; while the job is parked it is allowed.",
	}, s.setCredential)
}

func (s *Server) createRotation(ctx context.Context, in *struct {
	BMCPath
	Key
	Body *RotationRequest
}) (*Created[Job], error) {
	var ask RotationRequest
	if in.Body != nil {
		ask = *in.Body
	}
	return idempotent(ctx, s, in.Key, ask, nil, func(tx *db.Tx) (*Created[Job], error) {
		job, hostname, err := s.acceptRotation(ctx, tx, in.ID, ask.Reason)
		if err != nil {
			return nil, err
		}
		return &Created[Job]{
			Status: http.StatusAccepted, Location: prefix + "/admin/jobs/" + job.ID, ETag: etag(job.Version), Body: jobView(job, nil, hostname),
		}, nil
	})
}

// acceptRotation writes the intent: the job with its audit row, event and
// outbox row.
func (s *Server) acceptRotation(ctx context.Context, tx *db.Tx, bmcID, reason string) (db.Job, string, error) {
	b, err := tx.BMC(ctx, bmcID)
	if err != nil {
		return db.Job{}, "", err
	}
	live, err := liveJobOf(ctx, tx, b)
	if err != nil {
		return db.Job{}, "", err
	}
	if live != nil {
		return db.Job{}, "", problem.New(problem.LiveJob, fmt.Sprintf(
			"job %s (%s) is at work on this BMC or its node; wait for it to end, or cancel it", live.ID, whatOf(*live))).With(live.ID)
	}
	if b.AuthBlockedAt != nil {
		return db.Job{}, "", problem.New(problem.Conflict, fmt.Sprintf(
			"logins to this BMC are stopped since %s: %s; store the right login (slipway secret put), name it to the BMC (slipway bmc set-credential %s SECRET, "+
				"or PUT %s/admin/bmcs/%s/credential), lift the block (slipway bmc clear-block %s, or POST .../actions/clear-auth-block), then rotate",
			b.AuthBlockedAt.UTC().Format(time.RFC3339), b.AuthBlockedReason, b.ID, prefix, b.ID, b.ID))
	}
	in := contract.BMCRotationInput{BMCID: b.ID, Reason: reason}
	id := db.NewID("job")
	row := db.NewJob{
		ID: id, Kind: string(contract.KindBMCRotation), NodeID: b.NodeID, BMCID: &b.ID,
		WorkflowID: contract.JobWorkflowID(contract.KindBMCRotation, id), Actor: s.actor(ctx),
	}
	row.Actor.Comment = reason
	if b.NodeID != nil {
		node, err := tx.Node(ctx, *b.NodeID)
		if err != nil {
			return db.Job{}, "", err
		}
		in.Hostname = node.Hostname
		if node.SiteID != "" { // a PXE node belongs to none
			row.SiteID = &node.SiteID
		}
	}
	if row.Input, err = json.Marshal(in); err != nil {
		return db.Job{}, "", fmt.Errorf("rotation input: %w", err)
	}
	job, err := tx.CreateJob(ctx, row)
	return job, in.Hostname, err
}

// liveJobOf is the live job of the BMC's node, or else of the BMC; nil for none.
func liveJobOf(ctx context.Context, tx *db.Tx, b db.BMC) (*db.Job, error) {
	if b.NodeID != nil {
		job, err := tx.LiveJobOfNode(ctx, *b.NodeID)
		if !errors.Is(err, db.ErrNotFound) {
			return &job, err
		}
	}
	job, err := tx.LiveJobOfBMC(ctx, b.ID)
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	return &job, err
}

// CredentialAnswer is the BMC as it is now, and what to do next.
type CredentialAnswer struct {
	BMC
	NextStep string `json:"next_step" doc:"What to do next, in a sentence"`
}

func (s *Server) setCredential(ctx context.Context, in *struct {
	BMCPath
	Match
	Body struct {
		CredentialRef string `json:"credential_ref" required:"true" doc:"A stored secret: name, or name@version"`
		Reason        string `json:"reason,omitempty" maxLength:"2000"`
	}
}) (*Versioned[CredentialAnswer], error) {
	ref := in.Body.CredentialRef
	if err := s.checkCredential(ctx, ref); err != nil {
		return nil, err
	}
	var live *db.Job
	meta := map[string]any{"credential_ref": ref, "reason": in.Body.Reason}
	out, err := s.changeBMC(ctx, in.ID, "set_credential", meta, func(tx *db.Tx, b db.BMC) (err error) {
		version, err := in.version(func() (int64, error) { return b.Version, nil })
		if err != nil {
			return err
		}
		if live, err = liveJobOf(ctx, tx, b); err != nil {
			return err
		}
		if b.RotationState == lifecycle.RotationApplied || b.RotationState == lifecycle.RotationVerified {
			return problem.New(problem.Conflict, "a rotation has set a password of its own on this BMC and is not ended; "+
				"finish or cancel its job, which settles what the BMC takes, and set the login afterwards").With(jobID(live))
		}
		if live != nil && !live.Status.Parked() {
			return problem.New(problem.LiveJob, fmt.Sprintf(
				"job %s (%s) is %s and may be using the login; wait until it ends or parks, or freeze it with mark_manual_intervention_required",
				live.ID, whatOf(*live), live.Status)).With(live.ID)
		}
		meta["old_credential_ref"] = b.CredentialRef
		b.Version, b.CredentialRef = version, ref
		_, err = tx.UpdateBMC(ctx, b)
		return err
	})
	if err != nil {
		return nil, err
	}
	return versioned(out.Body.Version, CredentialAnswer{BMC: out.Body, NextStep: afterCredential(out.Body, live)}), nil
}

// checkCredential refuses a reference to nothing.
func (s *Server) checkCredential(ctx context.Context, ref string) error {
	wrong := func(message string) error {
		return problem.NewInvalid(problem.Field{Location: "body.credential_ref", Message: message})
	}
	if !spec.ValidRef(ref) {
		return wrong("is not a secret reference (name or name@version); store the login first with `slipway secret put`")
	}
	there, err := s.secretExists(ctx, ref)
	if err == nil && !there {
		return wrong("there is no such secret; store the login first with `slipway secret put`")
	}
	return err
}

// afterCredential says what an operator does next: nothing was tried.
func afterCredential(b BMC, live *db.Job) string {
	next := "The login was not tried."
	if b.AuthBlockedAt != nil {
		next += " Logins stay stopped: allow them with clear-auth-block when you are sure of the password."
	}
	if live != nil {
		return next + fmt.Sprintf(" Then retry_stage on job %s.", live.ID)
	}
	return next + " MAAS keeps its own copy of the login: a rotation tries this one, replaces it and tells MAAS."
}

func (s *Server) listRotations(ctx context.Context, in *struct {
	BMCPath
	Page
}) (*Listed[Rotation], error) {
	after, err := in.after()
	if err != nil {
		return nil, err
	}
	if _, err := s.cfg.Store.BMC(ctx, in.ID); err != nil {
		return nil, err
	}
	f := db.JobFilter{Kind: string(contract.KindBMCRotation), BMCID: in.ID}
	rows, err := s.cfg.Store.ListJobs(ctx, f, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(rows))
	for _, j := range rows {
		ids = append(ids, j.ID)
	}
	begun, err := s.cfg.Store.BMCRotationsOfJobs(ctx, in.ID, ids)
	if err != nil {
		return nil, err
	}
	view := func(j db.Job) Rotation { return rotationView(j, begun[j.ID]) }
	return paged(rows, in.Limit, func(j db.Job) string { return j.ID }, view), nil
}

// rotationView shows a job and what it did; of one that began nothing r is zero.
func rotationView(j db.Job, r db.BMCRotation) Rotation {
	out := Rotation{
		JobID: j.ID, Status: j.Status, Outcome: rotationOutcome(j.Status, r.Outcome), RequestedBy: j.CreatedBy, RequestedAt: j.CreatedAt.UTC(),
		FinishedAt: utc(j.FinishedAt), OldRef: r.FromRef, NewRef: r.ToRef, FailureClass: j.FailureClass, Message: j.Message,
	}
	if out.Message == "" {
		out.Message = r.Message
	}
	var in contract.BMCRotationInput
	if json.Unmarshal(j.Input, &in) == nil {
		out.Reason = in.Reason
	}
	return out
}

// rotationOutcome is the rotation's own where it has ended: a job that is
// cancelled after its commit has rotated all the same.
func rotationOutcome(s lifecycle.JobStatus, ended lifecycle.RotationState) string {
	switch {
	case lifecycle.Job.Terminal(s) && ended != "":
		return string(ended)
	case s == lifecycle.JobCompleted || s == lifecycle.JobReconciled:
		return "rotated"
	case s == lifecycle.JobCancelled:
		return "cancelled"
	case s.Parked():
		return "needs_human"
	}
	return "in_progress"
}

func jobID(j *db.Job) string {
	if j == nil {
		return ""
	}
	return j.ID
}
