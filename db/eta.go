package db

import (
	"context"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

const (
	pastJobs     = 200  // an estimate is made from at most
	pastLookedAt = 1000 // of a kind and path, to find jobs of one SKU among
	pastFor      = time.Minute
	pastKinds    = 1000 // kept at a time
)

// Estimator estimates when jobs end. It keeps the past jobs of each kind, path and SKU for a
// minute, so that a list of jobs asks for them once. The zero value is ready for use.
type Estimator struct {
	mu   sync.Mutex
	past map[pastKey]pastEntry
}

type pastKey struct{ kind, path, sku string }

type pastEntry struct {
	until time.Time
	jobs  []lifecycle.PastJob
}

// Estimates returns an estimate by id for each of the jobs that has not ended. That of a job that
// does not run has no times and says why.
func (e *Estimator) Estimates(ctx context.Context, conn Conn, jobs []Job) (map[string]lifecycle.Estimate, error) {
	out := map[string]lifecycle.Estimate{}
	var running []string
	for _, j := range jobs {
		switch {
		case j.Status == lifecycle.JobRunning:
			running = append(running, j.ID)
			out[j.ID] = lifecycle.Estimate{Reason: "no step of the job was reported yet"}
		case j.Status.Live():
			out[j.ID] = lifecycle.Estimate{Reason: lifecycle.NoEstimate(j.Status)}
		}
	}
	if len(running) == 0 {
		return out, nil
	}
	q := gen.New(conn.DBTX())
	rows, err := q.StageTimes(ctx, running)
	if err != nil {
		return nil, MapError("read the times of running jobs", err)
	}
	stages := map[string][]lifecycle.StageTime{}
	kinds := map[string]pastKey{}
	for _, r := range rows {
		stages[r.JobID] = append(stages[r.JobID], lifecycle.StageTime{Name: r.Name, State: r.State, Seconds: r.Seconds})
		kinds[r.JobID] = pastKey{r.Kind, r.Path, r.SKUID}
	}
	for id, times := range stages {
		past, err := e.pastJobs(ctx, q, kinds[id])
		if err != nil {
			return nil, err
		}
		out[id] = lifecycle.EstimateRemaining(id, times, past)
	}
	return out, nil
}

func (e *Estimator) pastJobs(ctx context.Context, q *gen.Queries, k pastKey) ([]lifecycle.PastJob, error) {
	e.mu.Lock()
	kept, ok := e.past[k]
	e.mu.Unlock()
	if ok && time.Now().Before(kept.until) {
		return kept.jobs, nil
	}
	rows, err := q.PastStageTimes(ctx, gen.PastStageTimesParams{
		SKUID: k.sku, Kind: k.kind, Path: k.path, LookedAt: pastLookedAt, Enough: lifecycle.MinSamples, MaxJobs: pastJobs,
	})
	if err != nil {
		return nil, MapError("read the past jobs of "+k.kind, err)
	}
	kept = pastEntry{until: time.Now().Add(pastFor)}
	at := map[string]lifecycle.PastJob{}
	for _, r := range rows {
		p, ok := at[r.JobID]
		if !ok {
			p = lifecycle.PastJob{}
			at[r.JobID] = p
			kept.jobs = append(kept.jobs, p)
		}
		p[r.Name] = r.Seconds
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.past == nil || len(e.past) >= pastKinds {
		e.past = map[pastKey]pastEntry{}
	}
	e.past[k] = kept
	return kept.jobs, nil
}
