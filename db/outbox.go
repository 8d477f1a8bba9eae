package db

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
)

// Start is a claimed outbox row: a workflow to start, by its deterministic id,
// with conflict policy USE_EXISTING, so that starting twice is harmless.
type Start = gen.ClaimStartsRow

// ClaimOutbox gives due starts to one caller for the time of the lease. A start that is neither
// completed nor failed by then can be claimed again. Of a batch it gives only as many as may run at
// a time. Jobs that wait for an operator do not count, so that no item blocks another.
func (s *Store) ClaimOutbox(ctx context.Context, claimer string, limit int, lease time.Duration) ([]Start, error) {
	var out []Start
	err := s.Tx(ctx, func(tx *Tx) error {
		var err error
		out, err = tx.claimStarts(ctx, claimer, limit, lease)
		return err
	})
	return out, err
}

func (tx *Tx) claimStarts(ctx context.Context, claimer string, limit int, lease time.Duration) ([]Start, error) {
	want := int(PageLimit(limit))
	params := gen.ClaimStartsParams{ClaimedBy: claimer, LeaseSeconds: lease.Seconds(), MaxRows: int32(want)}
	out, err := tx.q.ClaimStarts(ctx, params)
	if err != nil {
		return nil, MapError("claim starts", err)
	}
	if len(out) == want {
		return out, nil
	}
	batches, err := tx.q.OpenBatches(ctx, int32(want-len(out)))
	if err != nil {
		return nil, MapError("list open batches", err)
	}
	for _, b := range batches {
		if len(out) >= want {
			break
		}
		params.BatchID = b.BatchID
		more, err := tx.claimBatch(ctx, params, b.MaxParallel, want-len(out))
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// claimBatch counts and claims under the batch's lock, so that two callers together never start too
// many. A caller that does not get the lock claims nothing of the batch.
func (tx *Tx) claimBatch(ctx context.Context, params gen.ClaimStartsParams, maxParallel, want int) ([]Start, error) {
	locked, err := tx.q.TryLock(ctx, "slipway:batch:"+params.BatchID)
	if err != nil || !locked {
		return nil, MapError("lock batch "+params.BatchID, err)
	}
	busy, err := tx.q.BatchInFlight(ctx, params.BatchID)
	if err != nil {
		return nil, MapError("count batch "+params.BatchID, err)
	}
	room := min(maxParallel-int(busy), want)
	if room <= 0 {
		return nil, nil
	}
	params.MaxRows = int32(room)
	out, err := tx.q.ClaimStarts(ctx, params)
	return out, MapError("claim starts of batch "+params.BatchID, err)
}

// EnqueueStart writes an outbox row that starts a job's workflow again, without the limit of its
// batch. The action resume uses it for a lost workflow. It writes nothing while a start of the job
// is open.
func (s statements) EnqueueStart(ctx context.Context, jobID string) error {
	rows, err := s.q.EnqueueStart(ctx, jobID)
	return CheckRepeatable("start of job "+jobID, rows, err, func() error {
		_, err := s.Job(ctx, jobID)
		return err
	})
}

// CompleteOutbox marks a row done. Repeatable.
func (s statements) CompleteOutbox(ctx context.Context, id int64) error {
	_, err := s.q.CompleteOutbox(ctx, id)
	return MapError("complete outbox row", err)
}

const maxOutboxError = 1000

// FailOutbox gives a row back. It can be claimed again after wait, by the database's clock. The
// cause is stored, so it must hold no secret. A row that is done stays done.
func (s statements) FailOutbox(ctx context.Context, id int64, cause error, wait time.Duration) error {
	_, err := s.q.FailOutbox(ctx, gen.FailOutboxParams{ID: id, LastError: ClipText(cause.Error(), maxOutboxError), WaitSeconds: wait.Seconds()})
	return MapError("fail outbox row", err)
}

// Backlog describes the open rows of the outbox.
type Backlog struct {
	Open   int64
	Oldest time.Duration // age of the oldest open row
}

// OutboxBacklog measures the open rows of kind start_workflow or event.
func (s statements) OutboxBacklog(ctx context.Context, kind string) (Backlog, error) {
	r, err := s.q.OutboxBacklog(ctx, kind)
	return Backlog{r.Open, time.Duration(r.OldestSeconds * float64(time.Second))}, MapError("measure the outbox", err)
}

// PruneBatch bounds one statement that prunes, so that it holds no lock for long.
const PruneBatch = 1000

// PruneOutbox deletes done rows older than before, a batch at a time,
// and returns how many; call it until that is 0.
func (s statements) PruneOutbox(ctx context.Context, before time.Time) (int64, error) {
	n, err := s.q.PruneOutbox(ctx, gen.PruneOutboxParams{Before: before, MaxRows: PruneBatch})
	return n, MapError("prune the outbox", err)
}
