package rest

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/batch"
)

// BatchRequest onboards many servers of one site. Profile and SKU of the batch
// hold for the items that name none; its profile says how many run at a time.
type BatchRequest struct {
	Name      string             `json:"name,omitempty" maxLength:"100"`
	SiteID    string             `json:"site_id" maxLength:"100" required:"true"`
	ProfileID string             `json:"profile_id" maxLength:"100" required:"true"`
	SKUID     string             `json:"sku_id,omitempty" maxLength:"100"`
	Items     []BatchItemRequest `json:"items" required:"true" minItems:"1" maxItems:"500" nullable:"false"`
}

// BatchItemRequest is one server of a batch.
type BatchItemRequest struct {
	Hostname  string     `json:"hostname" required:"true" maxLength:"253"`
	ProfileID string     `json:"profile_id,omitempty" maxLength:"100"`
	SKUID     string     `json:"sku_id,omitempty" maxLength:"100"`
	BMC       BMCRequest `json:"bmc" required:"true"`
}

// Batch is many onboardings with bounded parallelism.
type Batch struct {
	ID          string         `json:"id"`
	SiteID      string         `json:"site_id" maxLength:"100"`
	Name        string         `json:"name,omitempty"`
	MaxParallel int            `json:"max_parallel" doc:"Items that run at a time; those that wait for an operator do not count"`
	Counts      map[string]int `json:"counts" doc:"Items by the status of their job, and rejected"`
	Total       int            `json:"total"`
	Items       []BatchItem    `json:"items,omitempty"`
	CreatedBy   string         `json:"created_by,omitempty"`
	CreatedAt   time.Time      `json:"created_at"`
}

// BatchItem is what became of one request: its job, or why it was rejected.
type BatchItem struct {
	Ordinal         int    `json:"ordinal" doc:"Its place in the request, from 0"`
	Hostname        string `json:"hostname"`
	JobID           string `json:"job_id,omitempty"`
	NodeID          string `json:"node_id,omitempty"`
	Status          string `json:"status" doc:"Of its job, or rejected"`
	Stage           string `json:"stage,omitempty"`
	ProgressPercent int    `json:"progress_percent"`
	Error           string `json:"error,omitempty" doc:"Why it was rejected"`
}

const maxBatchBody = 2 << 20

func (s *server) registerBatches() {
	const base = "/admin/onboarding-batches"
	tags := []string{"onboardings"}
	op.Add(s.api, huma.Operation{
		OperationID: "create-onboarding-batch", Method: http.MethodPost, Path: base, Tags: tags, Summary: "Onboard many servers",
		Description:   "Each item is accepted or rejected by itself; none blocks another.",
		DefaultStatus: http.StatusAccepted, MaxBodyBytes: maxBatchBody,
	}, s.createBatch)
	op.Add(s.api, huma.Operation{OperationID: "list-onboarding-batches", Method: http.MethodGet, Path: base, Tags: tags, Summary: "List batches, newest first"}, s.listBatches)
	op.Add(s.api, huma.Operation{OperationID: "get-onboarding-batch", Method: http.MethodGet, Path: base + "/{id}", Tags: tags, Summary: "Read a batch with its items"}, s.getBatch)
}

func (s *server) createBatch(ctx context.Context, in *struct {
	op.Key
	Body BatchRequest
}) (*op.Created[Batch], error) {
	if _, err := in.Required(); err != nil {
		return nil, err
	}
	checked, err := batch.Check(ctx, s.store, in.Body.intent())
	if err != nil {
		return nil, err
	}
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[Batch], error) {
		b, err := batch.Accept(ctx, tx, checked, whyRejected, op.Actor(ctx))
		if err != nil {
			return nil, err
		}
		view, err := batchView(ctx, tx, b, true)
		return &op.Created[Batch]{Status: http.StatusAccepted, Location: op.Prefix + "/admin/onboarding-batches/" + b.ID, Body: view}, err
	})
}

func (r BatchRequest) intent() batch.Request {
	out := batch.Request{Name: r.Name, SiteID: r.SiteID, ProfileID: r.ProfileID, SKUID: r.SKUID}
	for _, i := range r.Items {
		out.Items = append(out.Items, batch.Item{Hostname: i.Hostname, ProfileID: i.ProfileID, SKUID: i.SKUID, BMC: i.BMC.bmc("")})
	}
	return out
}

// whyRejected describes the refusal of one item.
func whyRejected(err error) string {
	p := problem.From(err)
	if len(p.Errors) == 0 {
		return p.Detail
	}
	parts := make([]string, 0, len(p.Errors))
	for _, f := range p.Errors {
		parts = append(parts, strings.TrimPrefix(f.Location, "body.")+": "+f.Message)
	}
	return strings.Join(parts, "; ")
}

type batchReader interface {
	BatchItems(ctx context.Context, batchID string, after, limit int) ([]db.BatchItem, error)
	BatchCounts(ctx context.Context, batchID string) (map[string]int, error)
}

const maxBatchItems = 500

func batchView(ctx context.Context, read batchReader, b db.Batch, withItems bool) (Batch, error) {
	out := Batch{ID: b.ID, SiteID: b.SiteID, Name: b.Name, MaxParallel: b.MaxParallel, CreatedBy: b.CreatedBy, CreatedAt: b.CreatedAt.UTC()}
	var err error
	if out.Counts, err = read.BatchCounts(ctx, b.ID); err != nil {
		return out, err
	}
	for _, n := range out.Counts {
		out.Total += n
	}
	if !withItems {
		return out, nil
	}
	rows, err := read.BatchItems(ctx, b.ID, -1, maxBatchItems)
	for _, r := range rows {
		item := BatchItem{
			Ordinal: r.Ordinal, Hostname: r.Hostname, JobID: text(r.JobID), NodeID: text(r.NodeID), Status: r.JobStatus, Stage: r.Stage,
			ProgressPercent: r.ProgressPercent, Error: text(r.Error),
		}
		if r.Error != nil {
			item.Status = "rejected"
		}
		out.Items = append(out.Items, item)
	}
	return out, err
}

func (s *server) listBatches(ctx context.Context, in *struct {
	op.Page
	SiteID string `query:"site_id" maxLength:"200"`
}) (*op.Listed[Batch], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListBatches(ctx, in.SiteID, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	out := op.Paged(rows, in.Limit, func(b db.Batch) string { return b.ID }, func(b db.Batch) Batch { return Batch{ID: b.ID} })
	for i := range out.Body.Data {
		if out.Body.Data[i], err = batchView(ctx, s.store, rows[i], false); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *server) getBatch(ctx context.Context, in *struct {
	ID string `path:"id" maxLength:"200" doc:"batch_..."`
}) (*struct{ Body Batch }, error) {
	var view Batch
	err := s.store.ReadTx(ctx, func(tx *db.Tx) error {
		b, err := tx.Batch(ctx, in.ID)
		if err != nil {
			return err
		}
		view, err = batchView(ctx, tx, b, true)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &struct{ Body Batch }{view}, nil
}
