package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// SKU is what a node of one product must show before it may be active.
type SKU struct {
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	Spec      spec.SKUSpec `json:"spec"`
	Version   int64        `json:"version"`
	CreatedAt time.Time    `json:"created_at"`
	UpdatedAt time.Time    `json:"updated_at"`
}

func skuView(r db.SKU) SKU {
	return SKU{r.ID, r.Name, r.Spec, r.Version, r.CreatedAt.UTC(), r.UpdatedAt.UTC()}
}

// SKURequest is a SKU as an operator writes it; a field that is left out is not
// checked on nodes.
type SKURequest struct {
	Name string       `json:"name" required:"true" maxLength:"100"`
	Spec spec.SKUSpec `json:"spec"`
}

func (r SKURequest) validate() error {
	if why := spec.CheckProtectSerials(r.Spec.ProtectSerials); why != "" {
		return problem.NewInvalid(problem.Field{Location: "body.spec.protect_serials", Message: why})
	}
	return op.CheckName(r.Name)
}

// SKUPath is the path of one.
type SKUPath struct {
	ID string `path:"id" maxLength:"200" doc:"sku_..."`
}

func (s *server) registerSKUs() {
	tags := []string{"skus"}
	op.Add(s.api, huma.Operation{OperationID: "list-skus", Method: http.MethodGet, Path: "/admin/skus", Tags: tags, Summary: "List SKUs"}, s.listSKUs)
	op.Add(s.api, huma.Operation{
		OperationID: "create-sku", Method: http.MethodPost, Path: "/admin/skus", Tags: tags, Summary: "Create a SKU", DefaultStatus: http.StatusCreated,
	}, s.createSKU)
	op.Add(s.api, huma.Operation{OperationID: "get-sku", Method: http.MethodGet, Path: "/admin/skus/{id}", Tags: tags, Summary: "Read a SKU"}, s.getSKU)
	op.Add(s.api, huma.Operation{OperationID: "update-sku", Method: http.MethodPut, Path: "/admin/skus/{id}", Tags: tags, Summary: "Replace a SKU's name and spec"}, s.updateSKU)
	op.Add(s.api, huma.Operation{
		OperationID: "delete-sku", Method: http.MethodDelete, Path: "/admin/skus/{id}", Tags: tags, Summary: "Delete a SKU that nothing refers to",
		DefaultStatus: http.StatusNoContent,
	}, s.deleteSKU)
}

func (s *server) listSKUs(ctx context.Context, in *struct {
	op.Page
	Name string `query:"name" maxLength:"200" doc:"Only the SKU of this name"`
}) (*op.Listed[SKU], error) {
	if in.Name != "" {
		return op.OneNamed(skuView)(s.store.SKUByName(ctx, in.Name))
	}
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListSKUs(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r db.SKU) string { return r.ID }, skuView), nil
}

func (s *server) createSKU(ctx context.Context, in *struct {
	op.Key
	Body SKURequest
}) (*op.Created[SKU], error) {
	if err := in.Body.validate(); err != nil {
		return nil, err
	}
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[SKU], error) {
		row, err := tx.CreateSKU(ctx, in.Body.Name, in.Body.Spec)
		if err != nil {
			return nil, err
		}
		return op.NewCreated(op.Prefix+"/admin/skus/"+row.ID, row.Version, skuView(row)), op.Audit(ctx, tx, "sku", row.ID, nil, "create", nil)
	})
}

func (s *server) getSKU(ctx context.Context, in *SKUPath) (*op.Versioned[SKU], error) {
	row, err := s.store.SKU(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, skuView(row)), nil
}

func (s *server) updateSKU(ctx context.Context, in *struct {
	SKUPath
	op.Match
	Body SKURequest
}) (*op.Versioned[SKU], error) {
	if err := in.Body.validate(); err != nil {
		return nil, err
	}
	var row db.SKU
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		v, err := in.Version(func() (int64, error) { r, err := tx.SKU(ctx, in.ID); return r.Version, err })
		if err != nil {
			return err
		}
		if row, err = tx.UpdateSKU(ctx, in.ID, v, in.Body.Name, in.Body.Spec); err != nil {
			return err
		}
		return op.Audit(ctx, tx, "sku", in.ID, nil, "update", nil)
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, skuView(row)), nil
}

func (s *server) deleteSKU(ctx context.Context, in *struct {
	SKUPath
	op.Match
}) (*struct{}, error) {
	return nil, s.store.Tx(ctx, func(tx *db.Tx) error {
		v, err := in.Version(func() (int64, error) { r, err := tx.SKU(ctx, in.ID); return r.Version, err })
		if err != nil {
			return err
		}
		if err := tx.DeleteSKU(ctx, in.ID, v); err != nil {
			return err
		}
		return op.Audit(ctx, tx, "sku", in.ID, nil, "delete", nil)
	})
}
