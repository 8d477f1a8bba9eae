package rest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// SKU is what a node of one product must show before it may be active.
type SKU struct {
	ID         string       `json:"id"`
	Name       string       `json:"name"`
	Spec       spec.SKUSpec `json:"spec"`
	TenantRoot bool         `json:"tenant_root" doc:"Whether tenants are root on their nodes"`
	Reserves   []SKUReserve `json:"reserves" doc:"Free nodes that are kept back from allocations"`
	Version    int64        `json:"version"`
	CreatedAt  time.Time    `json:"created_at"`
	UpdatedAt  time.Time    `json:"updated_at"`
}

// SKUReserve is how many free nodes of a SKU are kept back at a site.
type SKUReserve struct {
	SiteID string `json:"site_id" required:"true" maxLength:"200" doc:"site_..."`
	Nodes  int    `json:"nodes" required:"true" minimum:"1" maximum:"10000"`
}

// viewSKUs returns what an answer says of SKUs, with their reserves.
func viewSKUs(ctx context.Context, c allocationdb.Conn, rows []db.SKU) (map[string]SKU, error) {
	out := make(map[string]SKU, len(rows))
	ids := make([]string, 0, len(rows))
	for _, r := range rows {
		out[r.ID] = SKU{r.ID, r.Name, r.Spec, r.TenantRoot, []SKUReserve{}, r.Version, r.CreatedAt.UTC(), r.UpdatedAt.UTC()}
		ids = append(ids, r.ID)
	}
	reserves, err := allocationdb.ListReserves(ctx, c, ids)
	for _, r := range reserves {
		v := out[r.SKUID]
		v.Reserves = append(v.Reserves, SKUReserve{r.SiteID, r.Nodes})
		out[r.SKUID] = v
	}
	return out, err
}

func viewSKU(ctx context.Context, c allocationdb.Conn, row db.SKU) (SKU, error) {
	views, err := viewSKUs(ctx, c, []db.SKU{row})
	return views[row.ID], err
}

// SKURequest is a SKU as an operator writes it; a field that is left out is not
// checked on nodes.
type SKURequest struct {
	Name string       `json:"name" required:"true" maxLength:"100"`
	Spec spec.SKUSpec `json:"spec"`

	TenantRoot *bool         `json:"tenant_root,omitempty" doc:"Whether tenants are root on their nodes; left out it is true, or stays as it is"`
	Reserves   *[]SKUReserve `json:"reserves,omitempty" maxItems:"200" doc:"How many free nodes are kept back from allocations, by site; left out they stay as they are"`
}

// sites returns the reserves by site.
func (r SKURequest) sites() map[string]int {
	out := map[string]int{}
	if r.Reserves != nil {
		for _, reserve := range *r.Reserves {
			out[reserve.SiteID] = reserve.Nodes
		}
	}
	return out
}

// apply writes what is not in the row of the SKU. Reserves come first: a claim locks them before it
// refers to the SKU, which is locked next.
func (r SKURequest) apply(ctx context.Context, tx *db.Tx, id string) error {
	if r.Reserves != nil {
		for site := range r.sites() {
			if _, err := tx.Site(ctx, site); errors.Is(err, db.ErrNotFound) {
				return problem.NewInvalid(problem.Field{Location: "body.reserves", Message: "there is no site " + strconv.Quote(site)})
			} else if err != nil {
				return err
			}
		}
		if err := allocationdb.SetReserves(ctx, tx, id, r.sites()); err != nil {
			return err
		}
	}
	if r.TenantRoot == nil {
		return nil
	}
	return tx.SetTenantRoot(ctx, id, *r.TenantRoot)
}

// finish applies the request and returns the SKU as it is then.
func (r SKURequest) finish(ctx context.Context, tx *db.Tx, id string) (SKU, error) {
	if err := r.apply(ctx, tx, id); err != nil {
		return SKU{}, err
	}
	row, err := tx.SKU(ctx, id)
	if err != nil {
		return SKU{}, err
	}
	return viewSKU(ctx, tx, row)
}

// audited is what the audit log says of the request besides that it was made.
func (r SKURequest) audited() map[string]any {
	out := map[string]any{}
	if r.TenantRoot != nil {
		out["tenant_root"] = *r.TenantRoot
	}
	if r.Reserves != nil {
		out["reserves"] = r.sites()
	}
	return out
}

func (r SKURequest) validate() error {
	if r.Reserves != nil && len(r.sites()) != len(*r.Reserves) {
		return problem.NewInvalid(problem.Field{Location: "body.reserves", Message: "must name each site once"})
	}
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
		row, err := s.store.SKUByName(ctx, in.Name)
		var view SKU
		if err == nil {
			view, err = viewSKU(ctx, s.store, row)
		}
		return op.OneNamed(func(v SKU) SKU { return v })(view, err)
	}
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListSKUs(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	views, err := viewSKUs(ctx, s.store, rows)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r db.SKU) string { return r.ID }, func(r db.SKU) SKU { return views[r.ID] }), nil
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
		view, err := in.Body.finish(ctx, tx, row.ID)
		if err != nil {
			return nil, err
		}
		return op.NewCreated(op.Prefix+"/admin/skus/"+row.ID, view.Version, view), op.Audit(ctx, tx, "sku", row.ID, nil, "create", in.Body.audited())
	})
}

func (s *server) getSKU(ctx context.Context, in *SKUPath) (*op.Versioned[SKU], error) {
	row, err := s.store.SKU(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	view, err := viewSKU(ctx, s.store, row)
	return op.WithVersion(row.Version, view), err
}

func (s *server) updateSKU(ctx context.Context, in *struct {
	SKUPath
	op.Match
	Body SKURequest
}) (*op.Versioned[SKU], error) {
	if err := in.Body.validate(); err != nil {
		return nil, err
	}
	var view SKU
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		v, err := in.Version(func() (int64, error) { r, err := tx.SKU(ctx, in.ID); return r.Version, err })
		if err != nil {
			return err
		}
		if err = in.Body.apply(ctx, tx, in.ID); err != nil {
			return err
		}
		row, err := tx.UpdateSKU(ctx, in.ID, v, in.Body.Name, in.Body.Spec)
		if err != nil {
			return err
		}
		if view, err = viewSKU(ctx, tx, row); err != nil {
			return err
		}
		return op.Audit(ctx, tx, "sku", in.ID, nil, "update", in.Body.audited())
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(view.Version, view), nil
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
