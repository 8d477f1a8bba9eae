package db

import (
	"context"

	"github.com/slipway-cloud/slipway/db/gen"
)

// Batch is many requests with bounded parallelism.
type Batch = gen.Batch

// BatchItem is one request of a batch with the state of its job; a rejected
// one has no job and says why.
type BatchItem = gen.BatchItemsRow

// NewBatch is a batch as it is accepted.
type NewBatch struct {
	SiteID, Name string
	MaxParallel  int // 1 to 500
	CreatedBy    string
}

// CreateBatch adds an empty batch.
func (s statements) CreateBatch(ctx context.Context, in NewBatch) (Batch, error) {
	row, err := s.q.InsertBatch(ctx, gen.InsertBatchParams{
		ID: NewID("batch"), SiteID: in.SiteID, Name: in.Name, MaxParallel: in.MaxParallel, CreatedBy: in.CreatedBy,
	})
	return row, MapError("batch "+in.Name, err)
}

// AddBatchItem adds the outcome of one request: the job it became, or why it
// was rejected.
func (s statements) AddBatchItem(ctx context.Context, batchID string, ordinal int, hostname string, jobID, rejected *string) error {
	return MapError("item of batch "+batchID, s.q.InsertBatchItem(ctx, gen.InsertBatchItemParams{
		BatchID: batchID, Ordinal: ordinal, Hostname: hostname, JobID: jobID, Error: rejected,
	}))
}

// Batch reads one batch, or ErrNotFound.
func (s statements) Batch(ctx context.Context, id string) (Batch, error) {
	row, err := s.q.Batch(ctx, id)
	return row, MapError("batch "+id, err)
}

// ListBatches lists batches of a site ("" is all), newest first, from the one
// after the id given.
func (s statements) ListBatches(ctx context.Context, siteID, after string, limit int) ([]Batch, error) {
	rows, err := s.q.ListBatches(ctx, gen.ListBatchesParams{After: after, SiteID: siteID, MaxRows: PageLimit(limit)})
	return rows, MapError("list batches", err)
}

// BatchItems lists a batch's items by ordinal, from the one after the ordinal
// given (-1 from the first).
func (s statements) BatchItems(ctx context.Context, batchID string, after, limit int) ([]BatchItem, error) {
	rows, err := s.q.BatchItems(ctx, gen.BatchItemsParams{BatchID: batchID, After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("items of batch "+batchID, err)
}

// BatchCounts says how many items are in each job status, and rejected.
func (s statements) BatchCounts(ctx context.Context, batchID string) (map[string]int, error) {
	rows, err := s.q.BatchCounts(ctx, batchID)
	if err != nil {
		return nil, MapError("count batch "+batchID, err)
	}
	out := map[string]int{}
	for _, r := range rows {
		out[r.Outcome] = int(r.Items)
	}
	return out, nil
}
