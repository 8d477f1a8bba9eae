package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// PlannedAction is what a stage would do if the job came to it now.
type PlannedAction string

// The actions that a plan tells of a stage.
const (
	PlannedSkip    PlannedAction = "skip"         // not needed for this job
	PlannedDone    PlannedAction = "already_done" // the outcome is there, or this job has been through the stage
	PlannedRun     PlannedAction = "run"          // it would do what the steps say
	PlannedWait    PlannedAction = "wait"         // it would wait for the outside
	PlannedFail    PlannedAction = "cannot"       // the job would park here
	PlannedUnknown PlannedAction = "unknown"      // what it does depends on what cannot be seen now
)

// Plan is what a job would do, given what was observed; making one changes
// nothing. It serves every kind of job.
type Plan struct {
	Kind    JobKind     `json:"kind"`
	Subject PlanSubject `json:"subject"`
	// Status is the job's; "" for a job that does not exist.
	Status lifecycle.JobStatus `json:"status,omitempty"`
	// Summary says in a sentence how far the job would get.
	Summary string `json:"summary"`
	// NeedsHuman is set when the job would park, or is parked, for an operator.
	NeedsHuman bool                `json:"needs_human"`
	Rows       []PlanRow           `json:"rows"`
	Observed   *lifecycle.Observed `json:"observed,omitempty"`
	ObservedAt time.Time           `json:"observed_at"`
	// Drives are those that the node is expected to have, of a job that erases drives; DrivesFrom
	// says who named them. ProtectSerials are never erased.
	Drives         []PlanDrive `json:"drives,omitempty"`
	DrivesFrom     string      `json:"drives_from,omitempty"`
	ProtectSerials []string    `json:"protect_serials,omitempty"`
	// Hash covers what decides: subject, drives, and of each row the stage, what it
	// would do, its steps and the failure class. Two plans of one hash would do
	// the same; times, power and the wording of what was seen are not in it.
	Hash string `json:"plan_hash"`
}

// PlanSubject is whom a plan is about.
type PlanSubject struct {
	JobID    string `json:"job_id,omitempty"` // "" before there is a job
	NodeID   string `json:"node_id,omitempty"`
	SiteID   string `json:"site_id,omitempty"`
	Hostname string `json:"hostname,omitempty"`
}

// ReadsDrives reports whether the job would erase drives of the node or look at them.
func (p Plan) ReadsDrives() bool {
	return slices.ContainsFunc(p.Rows, func(r PlanRow) bool {
		switch r.Stage {
		case lifecycle.StageScrubGPU, lifecycle.StageCleanupStorage, lifecycle.StageValidateClean, lifecycle.StageReleaseMAAS:
			return r.Planned != PlannedSkip && r.Planned != PlannedDone
		}
		return false
	})
}

// PlanDrive is a drive that a node is expected to have.
type PlanDrive struct {
	Serial    string `json:"serial"`
	Model     string `json:"model,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
	Protected bool   `json:"protected,omitempty"` // it is not erased
}

// PlanDrives returns the drives of a node as a plan shows them.
func PlanDrives(expected []spec.ExpectedDrive, protected []string) []PlanDrive {
	var out []PlanDrive
	for _, d := range expected {
		out = append(out, PlanDrive{Serial: d.Serial, Model: d.Model, Bytes: d.Bytes, Protected: slices.ContainsFunc(protected, func(p string) bool {
			return spec.DriveKey(p) == spec.DriveKey(d.Serial)
		})})
	}
	return out
}

// PlanRow is one stage of a plan.
type PlanRow struct {
	Ordinal int           `json:"ordinal"`
	Stage   string        `json:"stage"`
	Planned PlannedAction `json:"would"`
	// Steps are the changes that it would make outside, in order.
	Steps []string `json:"steps,omitempty"`
	// Observed is what was observed for this stage.
	Observed string `json:"seen,omitempty"`
	Why      string `json:"why,omitempty"`
	// NeedsHuman is set when the stage would wait for an operator.
	NeedsHuman bool `json:"needs_human,omitempty"`
	// Failure is why the job would park here.
	Failure *PlanFailure `json:"failure,omitempty"`
}

// PlanFailure is a failure that a plan expects, with what is known of its class.
type PlanFailure struct {
	Class   lifecycle.FailureClass `json:"class"`
	Message string                 `json:"message"`
	// ParksAs is the state the job would park in, after Tries automatic tries.
	ParksAs     lifecycle.JobStatus `json:"parks_as"`
	Tries       int                 `json:"tries"`
	NeedsHuman  bool                `json:"needs_human"`
	Recommended lifecycle.Action    `json:"recommended_action,omitempty"`
	Next        string              `json:"next_step,omitempty"`
}

// NewPlanFailure adds to a failure what is known of its class.
func NewPlanFailure(f Failure) *PlanFailure {
	info := lifecycle.Failure(f.Class)
	return &PlanFailure{
		Class: f.Class, Message: f.Message, ParksAs: info.ParkStatus(), Tries: info.AutoAttempts, NeedsHuman: info.Manual,
		Recommended: info.Recommended, Next: info.Next,
	}
}

// PastRow is the row of a stage that a job has behind it; ok is false when the
// stage is still to do.
func PastRow(r lifecycle.StageRow) (row PlanRow, ok bool) {
	row = PlanRow{Ordinal: r.Ordinal, Stage: r.Name, Why: r.Message}
	switch r.State {
	case lifecycle.StageSucceeded:
		row.Planned = PlannedDone
		row.Why = joined("this job has done it", r.Message)
	case lifecycle.StageAdopted:
		row.Planned = PlannedDone
		row.Why = joined("adopted as it was observed", r.Message)
	case lifecycle.StageSkipped:
		row.Planned = PlannedSkip
	case lifecycle.StagePending, lifecycle.StageRunning, lifecycle.StageFailed, lifecycle.StageCompensated, lifecycle.StageUndone:
		return row, false
	}
	return row, true
}

func joined(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, ": ")
}

// EndedPlan is the plan of a job that does not go on by itself: nothing is left
// to do, or its work is being undone.
func EndedPlan(kind JobKind, subject PlanSubject, status lifecycle.JobStatus, stages []lifecycle.StageRow, at time.Time) Plan {
	p := Plan{Kind: kind, Subject: subject, Status: status, ObservedAt: at}
	why := "the job has ended"
	p.Summary = "The job has ended (" + string(status) + "); nothing is left to do."
	if status == lifecycle.JobCompensating {
		why = "the job is undoing its work"
		p.Summary = "The job is undoing its work; ask again when that has ended."
	}
	for _, s := range stages {
		row, past := PastRow(s)
		if !past {
			row.Planned, row.Why = PlannedSkip, joined(why, string(s.State), s.Message)
		}
		p.Rows = append(p.Rows, row)
	}
	return p.Hashed()
}

// Concluded writes the summary from the rows and computes the hash. The first stage that would park
// or wait for an operator decides.
func (p Plan) Concluded() Plan {
	p.Summary, p.NeedsHuman = "The job would run to its end.", p.Status.Parked()
	if p.Status.Parked() {
		p.Summary = "Taken up again where it is parked, the job would run to its end."
	}
	for _, r := range p.Rows {
		if r.Planned == PlannedFail && r.Failure != nil {
			p.Summary = "The job would park at " + r.Stage + ": " + string(r.Failure.Class) + ". " + r.Failure.Next
			p.NeedsHuman = true
			return p.Hashed()
		}
		if r.Planned == PlannedWait && r.NeedsHuman && r.Why != "" {
			p.Summary = "The job would wait for an operator at " + r.Stage + ". " + strings.ToUpper(r.Why[:1]) + r.Why[1:] + "."
			p.NeedsHuman = true
			return p.Hashed()
		}
		if r.Planned == PlannedUnknown {
			p.Summary = "Nothing is in the way as far as can be seen; some stages depend on what only the run will show."
		}
	}
	return p.Hashed()
}

// Hashed computes the hash.
func (p Plan) Hashed() Plan {
	type fact struct {
		Stage   string                 `json:"stage"`
		Planned PlannedAction          `json:"would"`
		Steps   []string               `json:"steps,omitempty"`
		Class   lifecycle.FailureClass `json:"class,omitempty"`
	}
	decides := struct {
		Kind    JobKind     `json:"kind"`
		Subject PlanSubject `json:"subject"`
		Facts   []fact      `json:"facts"`
		Drives  []PlanDrive `json:"drives,omitempty"`
		Protect []string    `json:"protect_serials,omitempty"`
	}{Kind: p.Kind, Subject: p.Subject, Drives: p.Drives, Protect: p.ProtectSerials}
	for _, r := range p.Rows {
		f := fact{Stage: r.Stage, Planned: r.Planned, Steps: r.Steps}
		if r.Failure != nil {
			f.Class = r.Failure.Class
		}
		decides.Facts = append(decides.Facts, f)
	}
	p.Hash = digest(decides)
	return p
}

// digest is the SHA-256 of a value's JSON in hex; plain structs of text always
// have one.
func digest(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// PlanInput asks for the plan of a live job, or, with a request and no job, for
// a dry run.
type PlanInput struct {
	Kind JobKind  `json:"kind"`
	Job  JobInput `json:"job"`
	// Request and BMC are the request of a dry run. BMC is the record that the
	// request would leave, as the database has it; it refers to the login and
	// holds none.
	Request *OnboardingInput `json:"request,omitempty"`
	BMC     json.RawMessage  `json:"bmc,omitempty"`
	// Login allows one login to the BMC; without it only what a BMC tells
	// everybody is read.
	Login bool `json:"login,omitempty"`
	// Actor is who asked, where Login is set: the audit log names them.
	Actor string `json:"actor,omitempty"`
}

// PlanWorkflowID is the workflow id of a plan: one for a job, one for equal dry
// runs, so that asking twice at once looks once.
func PlanWorkflowID(in PlanInput) string {
	id := "plan/" + in.Job.JobID
	if in.Job.JobID == "" {
		id = "plan/dry-" + digest(in)[:24]
	}
	if in.Login {
		id += "/login"
	}
	return id
}

// PlannedJobID stands in a dry run where the id of the job will stand.
const PlannedJobID = "job_of_this_plan"
