package db

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Job is a staged job as projected.
type Job = gen.Job

// NewJob is an accepted intent.
type NewJob struct {
	ID                                 string // "" makes one
	Kind                               string
	NodeID, SiteID, ProfileID, BatchID *string
	BMCID                              *string         // of a job about a BMC
	ResourceKind, ResourceID           string          // of a job about another resource, as "allocation"
	Input                              json.RawMessage // the request as accepted, without secrets
	// WorkflowID is the deterministic workflow id; "" is kind/id.
	WorkflowID string
	Actor      Actor
}

// CreateJob writes a job in its first state with its audit row, its event and
// the outbox row that starts its workflow. A node, a BMC or a resource that has a live job
// gives *ConflictError with that job's id; so does a workflow id that is taken.
func (tx *Tx) CreateJob(ctx context.Context, in NewJob) (Job, error) {
	j := Job{
		ID: orNewID(in.ID, "job"), Kind: in.Kind, NodeID: in.NodeID, SiteID: in.SiteID, ProfileID: in.ProfileID, BatchID: in.BatchID,
		BMCID: in.BMCID, ResourceKind: in.ResourceKind, ResourceID: in.ResourceID, Status: lifecycle.Job.Initial[0], Input: CleanJSON(in.Input), WorkflowID: in.WorkflowID, CreatedBy: in.Actor.ID,
	}
	if len(j.Input) == 0 {
		j.Input = json.RawMessage("{}")
	}
	if j.WorkflowID == "" {
		j.WorkflowID = j.Kind + "/" + j.ID
	}
	st, err := in.Actor.Stamp(nil)
	if err != nil {
		return Job{}, err
	}
	payload, err := jobPayload(j, "")
	if err != nil {
		return Job{}, err
	}
	_, err = tx.q.InsertJob(ctx, gen.InsertJobParams{
		ID: j.ID, Kind: j.Kind, NodeID: j.NodeID, SiteID: j.SiteID, ProfileID: j.ProfileID, BatchID: j.BatchID, BMCID: j.BMCID,
		ResourceKind: j.ResourceKind, ResourceID: j.ResourceID, Status: j.Status,
		Input: j.Input, WorkflowID: j.WorkflowID, CreatedBy: j.CreatedBy, Payload: payload, AuditID: st.AuditID, TriggeredBy: st.TriggeredBy,
		Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Job{}, tx.jobConflict(ctx, j)
	}
	if err != nil {
		return Job{}, MapError("job "+j.ID, err)
	}
	return tx.Job(ctx, j.ID)
}

// jobConflict names what is in the way of a job: the live one of its node, of its BMC or of its
// resource, or another job's workflow id.
func (tx *Tx) jobConflict(ctx context.Context, j Job) error {
	if j.NodeID != nil {
		other, err := tx.LiveJobOfNode(ctx, *j.NodeID)
		if err == nil {
			return conflictWith("jobs_one_live_per_node", other.ID)
		}
		if !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	if j.BMCID != nil {
		other, err := tx.LiveJobOfBMC(ctx, *j.BMCID)
		if err == nil {
			return conflictWith("jobs_one_live_per_bmc", other.ID)
		}
		if !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	if j.ResourceKind != "" {
		other, err := tx.LiveJobOfResource(ctx, j.ResourceKind, j.ResourceID)
		if err == nil {
			return conflictWith("jobs_one_live_per_resource", other.ID)
		}
		if !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return conflictOf("jobs_workflow_unique")
}

// Job reads one job, or ErrNotFound.
func (s statements) Job(ctx context.Context, id string) (Job, error) {
	j, err := s.q.Job(ctx, id)
	return j, MapError("job "+id, err)
}

// TakeJob reads a job for the run that takes it up, and raises its sequence number: a request that
// has seen the job unstarted and is about to change it finds, under the lock, that the job has
// started. A job that has ended is only read.
func (s statements) TakeJob(ctx context.Context, id string) (Job, error) {
	j, err := s.q.TakeJob(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return s.Job(ctx, id)
	}
	return j, MapError("take up job "+id, err)
}

// LockJob reads one job and keeps others from changing it until the
// transaction ends.
func (tx *Tx) LockJob(ctx context.Context, id string) (Job, error) {
	j, err := tx.q.LockJob(ctx, id)
	return j, MapError("job "+id, err)
}

// LiveJobOfNode is the job that holds the node, or ErrNotFound.
func (s statements) LiveJobOfNode(ctx context.Context, nodeID string) (Job, error) {
	j, err := s.q.LiveJobOfNode(ctx, nodeID)
	return j, MapError("live job of node "+nodeID, err)
}

// RequireNoLiveJob returns *ConflictError with the id of the job when a live job holds the node.
func (tx *Tx) RequireNoLiveJob(ctx context.Context, nodeID string) error {
	job, err := tx.LiveJobOfNode(ctx, nodeID)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return conflictWith("jobs_one_live_per_node", job.ID)
}

// LiveJobOfBMC is the job about the BMC that is under way, or ErrNotFound.
func (s statements) LiveJobOfBMC(ctx context.Context, bmcID string) (Job, error) {
	j, err := s.q.LiveJobOfBMC(ctx, bmcID)
	return j, MapError("live job of BMC "+bmcID, err)
}

// LiveJobOfResource is the job about the resource that is under way, or ErrNotFound.
func (s statements) LiveJobOfResource(ctx context.Context, kind, id string) (Job, error) {
	j, err := s.q.LiveJobOfResource(ctx, gen.LiveJobOfResourceParams{ResourceKind: kind, ResourceID: id})
	return j, MapError("live job of "+kind+" "+id, err)
}

// JobStages lists a job's stages in order; empty before the first projection.
func (s statements) JobStages(ctx context.Context, jobID string) ([]lifecycle.StageRow, error) {
	rows, err := s.q.JobStages(ctx, jobID)
	out := make([]lifecycle.StageRow, len(rows))
	for i, r := range rows {
		out[i] = lifecycle.StageRow(r)
	}
	return out, MapError("stages of job "+jobID, err)
}

// JobFilter narrows a list; empty fields match all.
type JobFilter struct {
	Kind, Status, NodeID, SiteID, BatchID, BMCID string
	ResourceKind, ResourceID                     string   // both, or none
	NeedsHuman                                   *bool    // parked, or not
	RoutineKinds                                 []string // jobs of these kinds are left out unless they are parked
	IDs                                          []string
}

// storedStatus returns the status in the rows of jobs that are shown in the status of the filter,
// and whether they have a failure where that decides.
func (f JobFilter) storedStatus() (status string, gaveUp *bool) {
	switch lifecycle.JobStatus(f.Status) { //nolint:exhaustive // the others are stored as they are shown
	case lifecycle.JobGaveUp:
		return string(lifecycle.JobCancelled), new(true)
	case lifecycle.JobCancelled:
		return f.Status, new(false)
	}
	return f.Status, nil
}

// JobSubject says of the allocation or instance of a job what decides which actions the kind of the
// job refuses.
type JobSubject struct{ Ended, HasServer bool }

// JobSubjects returns the subjects of jobs, by the id of the job. Jobs about something else are
// left out.
func (s statements) JobSubjects(ctx context.Context, ids []string) (map[string]JobSubject, error) {
	ends := []string{}
	for _, state := range lifecycle.Allocation.States {
		if state.Terminal {
			ends = append(ends, string(state.State))
		}
	}
	rows, err := s.q.JobSubjects(ctx, gen.JobSubjectsParams{
		Ids: ids, AllocationEnds: ends, InstanceEnds: []string{string(lifecycle.InstanceTerminated), string(lifecycle.InstanceArchived)},
	})
	out := map[string]JobSubject{}
	for _, r := range rows {
		out[r.ID] = JobSubject{r.Ended, r.HasServer}
	}
	return out, MapError("read the subjects of jobs", err)
}

// LiveJobsOfResources lists the live jobs of resources of one kind, at most one of each.
func (s statements) LiveJobsOfResources(ctx context.Context, kind string, ids []string) ([]Job, error) {
	rows, err := s.q.LiveJobsOfResources(ctx, gen.LiveJobsOfResourcesParams{ResourceKind: kind, ResourceIds: EmptyIfNil(ids)})
	return rows, MapError("list the live jobs of resources", err)
}

// StagesDone returns by job how many stages it has behind it.
func (s statements) StagesDone(ctx context.Context, jobIDs []string) (map[string]int, error) {
	rows, err := s.q.CountStagesDone(ctx, EmptyIfNil(jobIDs))
	out := map[string]int{}
	for _, r := range rows {
		out[r.JobID] = int(r.Done)
	}
	return out, MapError("count the stages that jobs have behind them", err)
}

// ListJobs lists jobs, newest first, from the one after the id given.
func (s statements) ListJobs(ctx context.Context, f JobFilter, after string, limit int) ([]Job, error) {
	status, gaveUp := f.storedStatus()
	rows, err := s.q.ListJobs(ctx, gen.ListJobsParams{
		After: after, Kind: f.Kind, Status: status, GaveUp: gaveUp, NodeID: f.NodeID, SiteID: f.SiteID, BatchID: f.BatchID, BMCID: f.BMCID, ResourceKind: f.ResourceKind, ResourceID: f.ResourceID, NeedsHuman: f.NeedsHuman,
		Ids: EmptyIfNil(f.IDs), RoutineKinds: EmptyIfNil(f.RoutineKinds), MaxRows: PageLimit(limit),
	})
	return rows, MapError("list jobs", err)
}

// JobsPastDeadline lists, by id, jobs at work whose stage deadline is before
// now or that did not move since the cutoff: what the deadline sweeper asks
// Temporal about.
func (s statements) JobsPastDeadline(ctx context.Context, now, cutoff time.Time, after string, limit int) ([]Job, error) {
	rows, err := s.q.JobsPastDeadline(ctx, gen.JobsPastDeadlineParams{Now: now, Cutoff: cutoff, After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("list jobs past their deadline", err)
}
