// Package instance is what is asked of instances: it checks, decides and writes in the transaction
// that it is given.
package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Offer is what a provider is configured to make: in which account, in which zones, and of which
// image where a request names none.
type Offer struct {
	Provider string
	Account  string
	Zones    []string
	Image    string
}

// Create is the request of an instance.
type Create struct {
	spec.InstanceSpec
	ProjectID string
	// Offers are the providers that are configured.
	Offers []Offer
	// Limit is how many live instances the project may have, for a request of one of its members;
	// nil is none, for operators.
	Limit *int
	// ReadsMoney says that whoever asks may read the balance that pays.
	ReadsMoney bool
}

// Make writes an instance with the job that makes it.
func Make(ctx context.Context, tx *db.Tx, in Create, actor db.Actor) (instancedb.Instance, db.Job, error) {
	var none instancedb.Instance
	if err := in.Validate(); err != nil {
		return none, db.Job{}, err
	}
	i := slices.IndexFunc(in.Offers, func(o Offer) bool { return o.Provider == in.Provider })
	if i < 0 {
		return none, db.Job{}, intent.InvalidIf([]intent.Field{{Name: "provider", Message: "is not configured; see the settings instance.*"}})
	}
	if !slices.Contains(in.Offers[i].Zones, in.Zone) {
		return none, db.Job{}, intent.InvalidIf([]intent.Field{{Name: "zone", Message: fmt.Sprintf("must be one of %v", in.Offers[i].Zones)}})
	}
	if in.Image == "" {
		in.Image = in.Offers[i].Image
	}
	project, err := tenancydb.LockProject(ctx, tx, in.ProjectID)
	if err != nil {
		return none, db.Job{}, err
	}
	if project.Status != lifecycle.ProjectActive {
		return none, db.Job{}, &intent.Refusal{Kind: intent.ActionRefused, Existing: project.ID, Detail: fmt.Sprintf("the project is %s and gets no new instance", project.Status)}
	}
	if err := admitMember(ctx, tx, project, in.Limit); err != nil {
		return none, db.Job{}, err
	}
	if _, err := tenancydb.LockAccount(ctx, tx, project.BillingAccountID); err != nil {
		return none, db.Job{}, err
	}
	hold, err := tenancy.AdmitMoney(ctx, tx, project.BillingAccountID, tenancy.Claim{Item: ledgerdb.InstanceItem(in.Provider, in.Type), ReadsMoney: in.ReadsMoney})
	if err != nil {
		return none, db.Job{}, err
	}
	id, jobID := db.NewID("inst"), db.NewID("job")
	made, err := instancedb.Create(ctx, tx, instancedb.New{
		ID: id, JobID: jobID, ProjectID: in.ProjectID, Name: in.Name, Provider: in.Provider, Account: in.Offers[i].Account, Zone: in.Zone, Type: in.Type, Image: in.Image, Model: in.Model,
		DrainSeconds: in.DrainSeconds, CreatedBy: orUnknown(actor.ID), Actor: actor,
	})
	if err == nil && hold != nil {
		err = ledgerdb.PlaceHold(ctx, tx, in.ProjectID, id, *hold)
	}
	if err != nil {
		return none, db.Job{}, err
	}
	job, err := createJob(ctx, tx, contract.KindInstanceCreate, jobID, made.ID, "", actor)
	return made, job, err
}

// admitMember refuses what a member of a project asks for beyond its limit, or when its billing
// account is depleted or has a disputed payment: whoever operates Slipway pays the provider for
// each instance.
func admitMember(ctx context.Context, tx *db.Tx, p tenancydb.Project, limit *int) error {
	if limit == nil {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return &intent.Refusal{Kind: intent.Conflict, Detail: fmt.Sprintf(format, args...)}
	}
	if *limit == 0 {
		return refuse("members of projects make no instances here; ask the operators for one")
	}
	live, err := instancedb.ListLiveOf(ctx, tx, p.ID)
	if err != nil {
		return err
	}
	if len(live) >= *limit {
		return refuse("the project has %d instances and may have %d; terminate one, or ask the operators", len(live), *limit)
	}
	if err := tenancy.RequireUndisputed(ctx, tx, p.BillingAccountID, "instance"); err != nil {
		return err
	}
	b, err := ledgerdb.ReadBalance(ctx, tx, p.BillingAccountID)
	if err == nil && b.IsUsedUp() {
		return refuse("the balance of the billing account is used up; add to it first")
	}
	if errors.Is(err, db.ErrNotFound) {
		return nil
	}
	return err
}

// End terminates an instance without a wait for its work: nobody is left to send it any.
func End(ctx context.Context, tx *db.Tx, id, reason string, actor db.Actor) error {
	if _, err := Terminate(ctx, tx, id, reason, actor); err != nil {
		return err
	}
	return instancedb.EndDrain(ctx, tx, id)
}

// EndProject returns what terminates the instances of a project and counts those that have not
// ended. The jobs that make one hear of it from the next pass.
func EndProject(actor db.Actor) func(context.Context, *db.Tx, string) (int, error) {
	return func(ctx context.Context, tx *db.Tx, projectID string) (int, error) {
		live, err := instancedb.ListLiveOf(ctx, tx, projectID)
		if err != nil {
			return 0, err
		}
		for _, i := range live {
			if err := End(ctx, tx, i.ID, "the project is closed", actor); err != nil {
				return len(live), err
			}
		}
		return len(live), nil
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "system"
	}
	return s
}

func createJob(ctx context.Context, tx *db.Tx, kind contract.JobKind, jobID, instanceID, reason string, actor db.Actor) (db.Job, error) {
	input, err := json.Marshal(contract.InstanceInput{InstanceID: instanceID, Reason: reason})
	if err != nil {
		return db.Job{}, fmt.Errorf("request of instance %s: %w", instanceID, err)
	}
	return tx.CreateJob(ctx, db.NewJob{ID: jobID, Kind: string(kind), ResourceKind: instancedb.Resource, ResourceID: instanceID, Input: input, Actor: actor})
}

// Terminated is the answer to a termination.
type Terminated struct {
	Instance instancedb.Instance
	// Job is the live job of the instance; nil when there is none.
	Job *db.Job
	// Action is what that job is asked to do, "" for nothing: to cancel itself, where it makes the
	// instance, or to try again. The API sends it after the commit; the pass sends it again where
	// it was lost, since the row says that the instance is terminating.
	Action lifecycle.Action
}

// Terminate ends an instance. It can be repeated: an instance that is ending or has ended is
// returned as it is. An instance that is being made ends with the job that makes it, which deletes
// everything that it has made; for any other instance a job is written.
func Terminate(ctx context.Context, tx *db.Tx, id, reason string, actor db.Actor) (Terminated, error) {
	i, err := instancedb.Lock(ctx, tx, id)
	if err != nil {
		return Terminated{}, err
	}
	actor.Comment = reason
	move := lifecycle.InstanceTerminate
	switch i.Status {
	case lifecycle.InstanceTerminated, lifecycle.InstanceArchived:
		return Terminated{Instance: i}, nil
	case lifecycle.InstanceTerminating:
		return Continue(ctx, tx, i, actor)
	case lifecycle.InstanceDraining:
		if actor.Owner == lifecycle.OwnerAdmin { // an operator who asks again does not want to wait
			if err := instancedb.EndDrain(ctx, tx, i.ID); err != nil {
				return Terminated{}, err
			}
		}
		return Continue(ctx, tx, i, actor)
	case lifecycle.InstanceReady:
		move = lifecycle.InstanceDrain
	case lifecycle.InstanceProvisioning, lifecycle.InstanceBooting, lifecycle.InstanceProvisioningFailed, lifecycle.InstanceStartupFailed, lifecycle.InstanceFailed:
	}
	if i.Status == lifecycle.InstanceFailed {
		// The parked job of a termination moves it, with the step by which it goes on.
		r, err := withJob(ctx, tx, i)
		if err != nil || r.Job != nil {
			return r, err
		}
	}
	if i, err = instancedb.MoveTo(ctx, tx, i, instancedb.Move{To: move, Actor: actor}); err != nil {
		return Terminated{}, err
	}
	return Continue(ctx, tx, i, actor)
}

// withJob returns a locked instance with its live job, and what that is asked to do.
func withJob(ctx context.Context, tx *db.Tx, i instancedb.Instance) (Terminated, error) {
	job, err := tx.LiveJobOfResource(ctx, instancedb.Resource, i.ID)
	if errors.Is(err, db.ErrNotFound) {
		return Terminated{Instance: i}, nil
	}
	if err != nil {
		return Terminated{}, err
	}
	r := Terminated{Instance: i, Job: &job}
	switch {
	case job.Kind == string(contract.KindInstanceCreate) && job.Status != lifecycle.JobCompensating:
		r.Action = lifecycle.ActionCancel
	case job.Status.Parked():
		r.Action = lifecycle.ActionRetryStage
	}
	return r, nil
}

// Continue gives an instance that is to end the job that it lacks. An instance that has a live job
// keeps it.
func Continue(ctx context.Context, tx *db.Tx, i instancedb.Instance, actor db.Actor) (Terminated, error) {
	r, err := withJob(ctx, tx, i)
	if err != nil || r.Job != nil || i.Status != lifecycle.InstanceTerminating && i.Status != lifecycle.InstanceDraining {
		return r, err
	}
	job, err := createJob(ctx, tx, contract.KindInstanceTerminate, "", i.ID, actor.Comment, actor)
	return Terminated{Instance: i, Job: &job}, err
}

// EndUnstarted ends an instance whose creation was cancelled before it began: nothing was made.
func EndUnstarted(ctx context.Context, tx *db.Tx, job db.Job, actor db.Actor) error {
	i, err := instancedb.Lock(ctx, tx, job.ResourceID)
	if err != nil {
		return err
	}
	actor.WorkflowID = job.WorkflowID
	_, err = instancedb.Project(ctx, tx, i, instancedb.JobStep{
		Creates: job.Kind == string(contract.KindInstanceCreate), Status: lifecycle.JobCancelled, Message: "cancelled before it began", Actor: actor,
	})
	return err
}

// Archive archives instances that ended before, each in a transaction of its own, and returns how
// many. forget deletes the credentials of one, and may be repeated: the worker that ended the
// instance may have died before it did.
func Archive(ctx context.Context, store *db.Store, before time.Time, limit int, forget func(context.Context, string) error) (int, error) {
	ids, err := instancedb.ListEnded(ctx, store, before, limit)
	if err != nil {
		return 0, err
	}
	done := 0
	for _, id := range ids {
		if err := forget(ctx, id); err != nil {
			return done, err
		}
		err := store.Tx(ctx, func(tx *db.Tx) error {
			i, err := instancedb.Lock(ctx, tx, id)
			if err != nil || i.Status != lifecycle.InstanceTerminated {
				return err
			}
			_, err = instancedb.MoveTo(ctx, tx, i, instancedb.Move{To: lifecycle.InstanceArchive, Actor: db.Actor{Owner: lifecycle.OwnerSystem, Comment: "it ended a set time ago"}})
			return err
		})
		if err != nil {
			return done, err
		}
		done++
	}
	return done, nil
}
