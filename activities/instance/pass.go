package instance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	instanceintent "github.com/slipway-cloud/slipway/intent/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// The rules by which a server is called deleted by somebody else: so many looks without it, over so
// long, and never so soon after it was made.
const (
	absentLooks  = 3
	absentFor    = 5 * time.Minute
	absentAfter  = 10 * time.Minute
	breakerCount = 5  // so many at once stop every move
	breakerShare = 10 // percent, where it is more than one
	passLimit    = 500
)

// PassIn is the input of a part of a pass. At is the time by Temporal's clock.
type PassIn struct {
	At time.Time `json:"at"`
}

// CompareReport is what a comparison with the providers found.
type CompareReport struct {
	Compared int      `json:"compared,omitempty"` // instances
	Absent   int      `json:"absent,omitempty"`
	Deleted  []string `json:"deleted,omitempty"` // marked as deleted by the provider
	Orphans  int      `json:"orphans,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

// CompareInstances compares the live instances with what their providers list, in every zone that
// is configured or has one. A zone that cannot be compared decides nothing, and keeps no other one
// from being compared.
func (a *Activities) CompareInstances(ctx context.Context, in PassIn) (CompareReport, error) {
	live, err := a.live(ctx)
	if err != nil {
		return CompareReport{}, err
	}
	var r CompareReport
	places := byPlace(live)
	for _, o := range a.Places { // what is left in a zone without instances is billed too
		places[o] = append([]instancedb.Instance(nil), places[o]...)
	}
	for place, of := range places {
		problem, err := a.compareZone(ctx, place, of, &r, in.At)
		if err != nil && ctx.Err() != nil {
			return r, err
		}
		if err != nil {
			a.Log.ErrorContext(ctx, "instances were not compared with their provider", "provider", place[0], "zone", place[1], "error", err)
			problem = told(err)
		}
		if problem != "" {
			r.Problems = append(r.Problems, place[0]+" "+place[1]+": "+problem)
		}
		if err := instancedb.StoreLook(ctx, a.Store, place[0], place[1], problem); err != nil {
			return r, fault.Internal(ctx, err)
		}
	}
	return r, fault.Internal(ctx, instancedb.DropLooks(ctx, a.Store, slices.Collect(maps.Keys(places))))
}

func (a *Activities) live(ctx context.Context) ([]instancedb.Instance, error) {
	var all []instancedb.Instance
	for after := ""; ; {
		some, err := instancedb.ListLive(ctx, a.Store, after, passLimit)
		if err != nil {
			return nil, fault.Internal(ctx, err)
		}
		all = append(all, some...)
		if len(some) < passLimit {
			return all, nil
		}
		after = some[len(some)-1].ID
	}
}

func byPlace(all []instancedb.Instance) map[[2]string][]instancedb.Instance {
	out := map[[2]string][]instancedb.Instance{}
	for _, i := range all {
		place := [2]string{i.Provider, i.Zone}
		out[place] = append(out[place], i)
	}
	return out
}

// compareZone compares one zone of a provider. It returns why nothing was decided, "" for nothing.
func (a *Activities) compareZone(ctx context.Context, place [2]string, of []instancedb.Instance, r *CompareReport, now time.Time) (string, error) {
	p, err := a.Open(ctx, place[0])
	if err == nil {
		err = p.Cloud.Check(ctx, place[1])
	}
	var listed []providers.CloudResource
	if err == nil {
		listed, err = p.Cloud.List(ctx, place[1], "")
	}
	if err != nil {
		return told(err), nil
	}
	var absent []instancedb.Instance
	settled := 0
	for _, i := range of {
		if err := sameAccount(i, p); err != nil {
			return err.Error(), nil
		}
		if !isSettled(i, now) {
			continue
		}
		settled++
		there, err := isThere(ctx, p, i, listed)
		if err != nil {
			return told(err), nil
		}
		if !there {
			absent = append(absent, i)
		} else if err := instancedb.ClearAbsence(ctx, a.Store, i.ID); err != nil {
			return "", fault.Internal(ctx, err)
		}
	}
	r.Compared += settled
	r.Absent += len(absent)
	if len(listed) == 0 && settled > 0 {
		return "the provider lists nothing of ours at all: look at the key and the project", nil
	}
	if n := len(absent); n >= breakerCount || n > 1 && n*100 > settled*breakerShare {
		return fmt.Sprintf("%d of %d servers are gone at once: look at the key and the project; nothing is changed", n, settled), nil
	}
	for _, i := range absent {
		if err := a.countAbsence(ctx, i, r, now); err != nil {
			return "", err
		}
	}
	return "", a.storeOrphans(ctx, place, of, listed, r)
}

// told is what the attention list says of an error.
func told(err error) string {
	var pe *providers.Error
	if errors.As(err, &pe) {
		return pe.Error()
	}
	return "internal error; the worker's log holds the detail"
}

// isSettled reports whether the absence of a server says anything: it was made long enough ago, and
// no job deletes it.
func isSettled(i instancedb.Instance, now time.Time) bool {
	works := slices.Contains([]lifecycle.InstanceStatus{lifecycle.InstanceBooting, lifecycle.InstanceReady, lifecycle.InstanceDraining}, i.Status)
	return works && i.ServerID != "" && i.ServerCreatedAt != nil && now.Sub(*i.ServerCreatedAt) >= absentAfter
}

// isThere reports whether the provider has the server. It is absent only where the list and the
// server itself say so.
func isThere(ctx context.Context, p Provider, i instancedb.Instance, listed []providers.CloudResource) (bool, error) {
	if slices.ContainsFunc(listed, func(r providers.CloudResource) bool { return r.Kind == providers.CloudKindServer && r.ID == i.ServerID }) {
		return true, nil
	}
	_, err := p.Cloud.Server(ctx, i.Zone, i.ServerID)
	if providers.IsKind(err, providers.KindNotFound) {
		return false, nil
	}
	return err == nil, err
}

// countAbsence counts a look without the server, and ends the instance after enough of them.
func (a *Activities) countAbsence(ctx context.Context, i instancedb.Instance, r *CompareReport, now time.Time) error {
	if err := instancedb.StoreAbsence(ctx, a.Store, i.ID, now); err != nil {
		return fault.Internal(ctx, err)
	}
	if i.AbsentLooks+1 < absentLooks || i.AbsentSince == nil || now.Sub(*i.AbsentSince) < absentFor {
		return nil
	}
	marked := false
	creation, err := creationOf(ctx, a.Store, i.ID)
	if err != nil {
		return err
	}
	if creation != nil { // it would install a worker on a server that is gone; its end deletes what else was made
		if err := a.Cancel(ctx, *creation); err != nil {
			return err // asked again by the next pass, which an instance that has ended is not in
		}
	}
	err = a.Store.Tx(ctx, func(tx *db.Tx) error {
		row, err := instancedb.Lock(ctx, tx, i.ID)
		if err != nil || row.Version != i.Version {
			return err
		}
		marked = true
		_, err = instancedb.MoveTo(ctx, tx, row, instancedb.Move{
			To: lifecycle.InstanceMarkDeleted, DeletedByProvider: true,
			Actor: db.Actor{Owner: lifecycle.OwnerReconciler, Comment: fmt.Sprintf("%s has no server %s any more; somebody else deleted it", i.Provider, i.ServerID)},
		})
		return err
	})
	if err != nil || !marked {
		return fault.Internal(ctx, err)
	}
	r.Deleted = append(r.Deleted, i.ID)
	if creation != nil {
		return nil // its end deletes the credentials
	}
	return fault.Secret(ctx, a.Secrets.Delete(ctx, secretName(i.ID)))
}

// creationOf returns the live job that makes an instance; nil where there is none.
func creationOf(ctx context.Context, store *db.Store, id string) (*db.Job, error) {
	var creation *db.Job
	err := store.Tx(ctx, func(tx *db.Tx) error {
		job, err := tx.LiveJobOfResource(ctx, instancedb.Resource, id)
		if err == nil && job.Kind == string(contract.KindInstanceCreate) {
			creation = &job
		}
		if errors.Is(err, db.ErrNotFound) {
			return nil
		}
		return err
	})
	return creation, fault.Internal(ctx, err)
}

// storeOrphans stores what has our tag and belongs to no live instance. A second server with the
// tag of a live instance is one too, and so is a server that shows up when no job of its instance
// looks for one. Nothing deletes them by itself.
func (a *Activities) storeOrphans(ctx context.Context, place [2]string, of []instancedb.Instance, listed []providers.CloudResource, r *CompareReport) error {
	live := map[string]instancedb.Instance{}
	for _, i := range of {
		live[i.ID] = i
	}
	var orphans []instancedb.Orphan
	for _, res := range listed {
		i, ok := live[res.InstanceID]
		if ok && (res.Kind != providers.CloudKindServer || i.ServerID == res.ID) {
			continue
		}
		if ok && i.ServerID == "" {
			if awaited, err := a.isAwaited(ctx, i.ID, res.ID); err != nil {
				return err
			} else if awaited {
				continue
			}
		}
		if isNew, err := a.isLive(ctx, res.InstanceID, ok); err != nil || isNew {
			if err != nil {
				return err
			}
			continue
		}
		orphans = append(orphans, instancedb.Orphan{
			Kind: string(res.Kind), ResourceID: res.ID, Name: res.Name, InstanceID: res.InstanceID, HourlyMicro: res.HourlyMicro, Currency: res.Currency,
		})
	}
	r.Orphans += len(orphans)
	return fault.Internal(ctx, a.Store.Tx(ctx, func(tx *db.Tx) error { return instancedb.StoreOrphans(ctx, tx, place[0], place[1], orphans) }))
}

// isAwaited reports whether a server is the one of an instance that had none when the pass read it:
// its job has stored it since, or may still find it by its tag. A job that is parked or has ended
// looks for none, and the server is billed.
func (a *Activities) isAwaited(ctx context.Context, instanceID, serverID string) (bool, error) {
	awaited := false
	err := a.Store.Tx(ctx, func(tx *db.Tx) error {
		i, err := instancedb.Get(ctx, tx, instanceID)
		if err != nil || i.ServerID != "" {
			awaited = err == nil && i.ServerID == serverID
			return err
		}
		job, err := tx.LiveJobOfResource(ctx, instancedb.Resource, instanceID)
		awaited = err == nil && !job.Status.Parked()
		if errors.Is(err, db.ErrNotFound) {
			return nil
		}
		return err
	})
	return awaited, fault.Internal(ctx, err)
}

// isLive reports whether an instance that the pass has not read is live: it was made since.
func (a *Activities) isLive(ctx context.Context, id string, wasRead bool) (bool, error) {
	if wasRead || id == "" {
		return false, nil
	}
	i, err := instancedb.Get(ctx, a.Store, id)
	if instancedb.IsMissing(err) {
		return false, nil
	}
	return err == nil && i.Status.Live(), fault.Internal(ctx, err)
}

// CheckInstances checks the health of the instances that work, and returns how many it has checked.
// Nothing moves by it: what does not work is in the action log, and on the instance.
func (a *Activities) CheckInstances(ctx context.Context, in PassIn) (int, error) {
	live, err := a.live(ctx)
	if err != nil {
		return 0, err
	}
	live = slices.DeleteFunc(live, func(i instancedb.Instance) bool { return i.Status != lifecycle.InstanceReady })
	// Those that waited longest come first: a pass that runs out of time leaves others to the next
	// one.
	slices.SortStableFunc(live, func(x, y instancedb.Instance) int { return checkedAt(x).Compare(checkedAt(y)) })
	var mu sync.Mutex
	checked := 0
	var errs []error
	var checks errgroup.Group
	checks.SetLimit(checksAtOnce) // workers that give no answer delay no other
	for _, i := range live {
		checks.Go(func() error {
			err := a.checkReady(ctx, i, in.At)
			mu.Lock()
			defer mu.Unlock()
			if errs = append(errs, err); err == nil {
				checked++
			}
			return nil
		})
	}
	_ = checks.Wait() // each error is in errs
	if ctx.Err() != nil {
		return checked, ctx.Err()
	}
	return checked, errors.Join(errs...)
}

// checksAtOnce is how many instances one pass checks at a time.
const checksAtOnce = 16

// checkReady checks the health of an instance that is ready, and has it show the outcome. A check
// that failed for a reason of our own changes nothing on the instance.
func (a *Activities) checkReady(ctx context.Context, i instancedb.Instance, now time.Time) error {
	p, err := a.Open(ctx, i.Provider)
	if err != nil {
		return openFailure(ctx, err)
	}
	if err := sameAccount(i, p); err != nil {
		return err
	}
	t := &target{a, i, p}
	began := time.Now()
	h, err := t.check(ctx, now)
	if err != nil && !h.BrokenOff {
		return err // what failed is ours, and says nothing of the worker
	}
	if err != nil && ctx.Err() == nil {
		h = health{Problem: problemOf(err)}
		err = errors.Join(err, t.log(ctx, h, now, time.Since(began)))
	}
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, t.setHealthCode(ctx, h))
}

// problemOf returns what the log of health checks says of an error.
func problemOf(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return told(err)
}

func checkedAt(i instancedb.Instance) time.Time {
	if i.LastHealthCheck == nil {
		return time.Time{}
	}
	return *i.LastHealthCheck
}

// MoveOnReport is what MoveInstancesOn did.
type MoveOnReport struct {
	Recovered []string `json:"recovered,omitempty"`
	Continued []string `json:"continued,omitempty"`
	Archived  int      `json:"archived,omitempty"`
}

// MoveInstancesOn resumes startups whose heartbeat came late, gives instances that are to end the
// job that they lack, asks again the jobs that did not hear of it, and archives what ended long
// ago.
func (a *Activities) MoveInstancesOn(ctx context.Context, in PassIn) (MoveOnReport, error) {
	var r MoveOnReport
	live, err := a.live(ctx)
	if err != nil {
		return r, err
	}
	var errs []error
	for _, i := range live {
		moved, err := a.moveOn(ctx, i)
		if err != nil { // a job that refuses keeps no other instance from moving on
			errs = append(errs, fmt.Errorf("instance %s: %w", i.ID, err))
			continue
		}
		switch {
		case moved && i.Status == lifecycle.InstanceStartupFailed:
			r.Recovered = append(r.Recovered, i.ID)
		case moved:
			r.Continued = append(r.Continued, i.ID)
		}
	}
	r.Archived, err = instanceintent.Archive(ctx, a.Store, in.At.Add(-a.ArchiveAfter), passLimit, func(ctx context.Context, id string) error {
		return a.Secrets.Delete(ctx, secretName(id))
	})
	return r, fault.Internal(ctx, errors.Join(append(errs, err)...))
}

func (a *Activities) moveOn(ctx context.Context, i instancedb.Instance) (bool, error) {
	switch i.Status { //nolint:exhaustive // the others wait for nobody
	case lifecycle.InstanceStartupFailed:
		late := i.HeartbeatAt != nil && i.FailedAt != nil && i.HeartbeatAt.After(*i.FailedAt)
		if !late || !lifecycle.MayRecover(i.Status, i.ErrorCode, i.Recoveries) {
			return false, nil
		}
		job, err := creationOf(ctx, a.Store, i.ID)
		if err != nil || job == nil || job.Frozen { // an operator froze it, and an operator resumes it
			return false, err
		}
		counted, err := instancedb.CountRecovery(ctx, a.Store, i)
		if err != nil || !counted {
			return false, err
		}
		return true, a.Resume(ctx, i)
	case lifecycle.InstanceTerminating, lifecycle.InstanceDraining:
		var next instanceintent.Terminated
		had := false
		err := a.Store.Tx(ctx, func(tx *db.Tx) error {
			row, err := instancedb.Lock(ctx, tx, i.ID)
			if err != nil {
				return err
			}
			_, err = tx.LiveJobOfResource(ctx, instancedb.Resource, i.ID)
			had = err == nil
			next, err = instanceintent.Continue(ctx, tx, row, db.Actor{Owner: lifecycle.OwnerSystem, Comment: "no job ended the instance"})
			return err
		})
		if err != nil || next.Job == nil {
			return false, err
		}
		if next.Action == lifecycle.ActionCancel {
			return true, a.Cancel(ctx, *next.Job)
		}
		return !had, nil
	}
	return false, nil
}
