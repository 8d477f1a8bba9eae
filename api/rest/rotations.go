package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/rotation"
	"github.com/slipway-cloud/slipway/lifecycle"
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

func (s *server) registerRotations() {
	tags := []string{"bmcs"}
	op.Add(s.api, huma.Operation{
		OperationID: "rotate-bmc-credential", Method: http.MethodPost, Path: "/admin/bmcs/{id}/rotations", Tags: tags, Summary: "Replace a BMC's password",
		Description: "Accepts the intent and answers at once; the job shows how far it is and takes the same actions as every job. The new password is made by Slipway, " +
			"tried before it counts, told to MAAS where the node is a machine of MAAS, and known by reference only. A BMC or node that has a live job answers 409 with its id; " +
			"so does a BMC to which logins are stopped.",
		DefaultStatus: http.StatusAccepted,
	}, s.createRotation)
	op.Add(s.api, huma.Operation{
		OperationID: "list-bmc-rotations", Method: http.MethodGet, Path: "/admin/bmcs/{id}/rotations", Tags: tags, Summary: "A BMC's rotations, newest first",
	}, s.listRotations)
	op.Add(s.api, huma.Operation{
		OperationID: "set-bmc-credential", Method: http.MethodPut, Path: "/admin/bmcs/{id}/credential", Tags: tags, Summary: "Use another stored login",
		Description: "For a password that was changed by hand. Nothing is tried and no login block is lifted: next_step says what to do then. " +
			"While a job works with the BMC it answers 409; while the job is parked it is allowed.",
	}, s.setCredential)
}

func (s *server) createRotation(ctx context.Context, in *struct {
	BMCPath
	op.Key
	Body *RotationRequest
}) (*op.Created[Job], error) {
	var ask RotationRequest
	if in.Body != nil {
		ask = *in.Body
	}
	return op.Create(ctx, s.api, in.Key, ask, nil, func(tx *db.Tx) (*op.Created[Job], error) {
		job, hostname, err := rotation.Accept(ctx, tx, in.ID, ask.Reason, op.Actor(ctx))
		if err != nil {
			return nil, err
		}
		return s.acceptedJob("/admin/jobs/", job, hostname), nil
	})
}

// CredentialAnswer is the BMC as it is now, and what to do next.
type CredentialAnswer struct {
	BMC
	NextStep string `json:"next_step" doc:"What to do next, in a sentence"`
}

func (s *server) setCredential(ctx context.Context, in *struct {
	BMCPath
	op.Match
	Body struct {
		CredentialRef string `json:"credential_ref" required:"true" maxLength:"210" doc:"A stored secret: name, or name@version"`
		Reason        string `json:"reason,omitempty" maxLength:"2000"`
	}
}) (*op.Versioned[CredentialAnswer], error) {
	ref := in.Body.CredentialRef
	if err := rotation.CheckCredential(ctx, s.store, ref); err != nil {
		return nil, err
	}
	var live *db.Job
	meta := map[string]any{"credential_ref": ref, "reason": in.Body.Reason}
	out, err := s.changeBMC(ctx, in.ID, "set_credential", meta, func(tx *db.Tx, b db.BMC) (err error) {
		version, err := in.Version(func() (int64, error) { return b.Version, nil })
		if err != nil {
			return err
		}
		meta["old_credential_ref"] = b.CredentialRef
		live, err = rotation.SetCredential(ctx, tx, b, version, ref)
		return err
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(out.Body.Version, CredentialAnswer{BMC: out.Body, NextStep: afterCredential(out.Body, live)}), nil
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

func (s *server) listRotations(ctx context.Context, in *struct {
	BMCPath
	op.Page
}) (*op.Listed[Rotation], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	if _, err := s.store.BMC(ctx, in.ID); err != nil {
		return nil, err
	}
	f := db.JobFilter{Kind: string(contract.KindBMCRotation), BMCID: in.ID}
	rows, err := s.store.ListJobs(ctx, f, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(rows))
	for _, j := range rows {
		ids = append(ids, j.ID)
	}
	begun, err := s.store.BMCRotationsOfJobs(ctx, in.ID, ids)
	if err != nil {
		return nil, err
	}
	view := func(j db.Job) Rotation { return rotationView(j, begun[j.ID]) }
	return op.Paged(rows, in.Limit, func(j db.Job) string { return j.ID }, view), nil
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
