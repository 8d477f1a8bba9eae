package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

// BatchRequest onboards many servers of one site. Profile and SKU of the batch
// hold for the items that name none; its profile says how many run at a time.
type BatchRequest struct {
	Name      string             `json:"name,omitempty" maxLength:"100"`
	SiteID    string             `json:"site_id" required:"true"`
	ProfileID string             `json:"profile_id" required:"true"`
	SKUID     string             `json:"sku_id,omitempty"`
	Items     []BatchItemRequest `json:"items" required:"true" minItems:"1" maxItems:"500" nullable:"false"`
}

// BatchItemRequest is one server of a batch.
type BatchItemRequest struct {
	Hostname  string     `json:"hostname" required:"true"`
	ProfileID string     `json:"profile_id,omitempty"`
	SKUID     string     `json:"sku_id,omitempty"`
	BMC       BMCRequest `json:"bmc" required:"true"`
}

// Batch is many onboardings with bounded parallelism.
type Batch struct {
	ID          string         `json:"id"`
	SiteID      string         `json:"site_id"`
	Name        string         `json:"name,omitempty"`
	MaxParallel int            `json:"max_parallel" doc:"Items that run at a time; those that wait for a person do not count"`
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

func (s *Server) registerBatches() {
	const base = "/admin/onboarding-batches"
	tags := []string{"onboardings"}
	add(s, huma.Operation{
		OperationID: "create-onboarding-batch", Method: http.MethodPost, Path: base, Tags: tags, Summary: "Onboard many servers",
		Description:   "Each item is accepted or rejected by itself; none blocks another.",
		DefaultStatus: http.StatusAccepted, MaxBodyBytes: maxBatchBody,
	}, s.createBatch)
	add(s, huma.Operation{OperationID: "list-onboarding-batches", Method: http.MethodGet, Path: base, Tags: tags, Summary: "List batches, newest first"}, s.listBatches)
	add(s, huma.Operation{OperationID: "get-onboarding-batch", Method: http.MethodGet, Path: base + "/{id}", Tags: tags, Summary: "Read a batch with its items"}, s.getBatch)
}

// candidate is an item after its references were read.
type candidate struct {
	acceptance
	rejected string
}

func (s *Server) createBatch(ctx context.Context, in *struct {
	Key
	Body BatchRequest
}) (*Created[Batch], error) {
	if _, err := in.required(); err != nil {
		return nil, err
	}
	profile, err := s.checkBatch(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	items := make([]candidate, len(in.Body.Items))
	for i, item := range in.Body.Items {
		if items[i], err = s.candidate(ctx, in.Body, item); err != nil {
			return nil, err
		}
	}
	return idempotent(ctx, s, in.Key, in.Body, nil, func(tx *db.Tx) (*Created[Batch], error) {
		b, err := tx.CreateBatch(ctx, db.NewBatch{
			SiteID: in.Body.SiteID, Name: in.Body.Name, MaxParallel: profile.Spec.WithDefaults().BatchMaxParallel, CreatedBy: principal(ctx).ID,
		})
		if err != nil {
			return nil, err
		}
		for i, c := range items {
			if err := s.acceptItem(ctx, tx, b.ID, i, c); err != nil {
				return nil, err
			}
		}
		view, err := batchView(ctx, tx, b, true)
		return &Created[Batch]{Status: http.StatusAccepted, Location: prefix + "/admin/onboarding-batches/" + b.ID, Body: view}, err
	})
}

// checkBatch refuses what would be wrong for every item.
func (s *Server) checkBatch(ctx context.Context, r BatchRequest) (db.Profile, error) {
	var bad []problem.Field
	if _, err := s.cfg.Store.Site(ctx, r.SiteID); errors.Is(err, db.ErrNotFound) {
		bad = append(bad, problem.Field{Location: "body.site_id", Message: "there is no such site"})
	} else if err != nil {
		return db.Profile{}, err
	}
	profile, err := profileOf(ctx, s.cfg.Store, r.SiteID, r.ProfileID)
	if errors.Is(err, db.ErrNotFound) {
		bad = append(bad, problem.Field{Location: "body.profile_id", Message: "there is no such profile at the site"})
	} else if err != nil {
		return db.Profile{}, err
	}
	if len(bad) > 0 {
		return db.Profile{}, problem.NewInvalid(bad...)
	}
	return profile, nil
}

func (s *Server) candidate(ctx context.Context, r BatchRequest, item BatchItemRequest) (candidate, error) {
	one := OnboardingRequest{SiteID: r.SiteID, ProfileID: item.ProfileID, SKUID: item.SKUID, Hostname: item.Hostname, BMC: item.BMC}
	if one.ProfileID == "" {
		one.ProfileID = r.ProfileID
	}
	if one.SKUID == "" {
		one.SKUID = r.SKUID
	}
	a, err := s.check(ctx, one, false, "")
	var p *problem.Problem
	if errors.As(err, &p) {
		return candidate{acceptance: a, rejected: whyRejected(p)}, nil
	}
	return candidate{acceptance: a}, err
}

func whyRejected(p *problem.Problem) string {
	if len(p.Errors) == 0 {
		return p.Detail
	}
	parts := make([]string, 0, len(p.Errors))
	for _, f := range p.Errors {
		parts = append(parts, f.Location+": "+f.Message)
	}
	return strings.Join(parts, "; ")
}

// acceptItem writes one item: its job, or why there is none.
func (s *Server) acceptItem(ctx context.Context, tx *db.Tx, batchID string, ordinal int, c candidate) error {
	hostname := c.Hostname
	if len(hostname) > 255 {
		hostname = hostname[:255]
	}
	if c.rejected != "" {
		return tx.AddBatchItem(ctx, batchID, ordinal, hostname, nil, &c.rejected)
	}
	c.batchID = &batchID
	job, _, err := s.accept(ctx, tx, c.acceptance)
	var conflict *db.ConflictError
	var p *problem.Problem
	if errors.As(err, &p) || errors.As(err, &conflict) {
		why := problem.From(err).Detail
		return tx.AddBatchItem(ctx, batchID, ordinal, hostname, nil, &why)
	}
	if err != nil {
		return fmt.Errorf("item %d: %w", ordinal, err)
	}
	return tx.AddBatchItem(ctx, batchID, ordinal, hostname, &job.ID, nil)
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

func (s *Server) listBatches(ctx context.Context, in *struct {
	Page
	SiteID string `query:"site_id"`
}) (*Listed[Batch], error) {
	after, err := in.after()
	if err != nil {
		return nil, err
	}
	rows, err := s.cfg.Store.ListBatches(ctx, in.SiteID, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	out := paged(rows, in.Limit, func(b db.Batch) string { return b.ID }, func(b db.Batch) Batch { return Batch{ID: b.ID} })
	for i := range out.Body.Data {
		if out.Body.Data[i], err = batchView(ctx, s.cfg.Store, rows[i], false); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Server) getBatch(ctx context.Context, in *struct {
	ID string `path:"id" doc:"batch_..."`
}) (*struct{ Body Batch }, error) {
	var view Batch
	err := s.cfg.Store.ReadTx(ctx, func(tx *db.Tx) error {
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
