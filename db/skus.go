package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// SKU is what a node of one product must show.
type SKU = gen.SKU

// CreateSKU adds a SKU; a taken name gives *ConflictError
// with its id. The caller has validated the spec.
func (s statements) CreateSKU(ctx context.Context, name string, spec spec.SKUSpec) (SKU, error) {
	row, err := s.q.InsertSKU(ctx, gen.InsertSKUParams{ID: NewID("sku"), Name: name, Spec: spec})
	if errors.Is(err, pgx.ErrNoRows) {
		other, err := s.SKUByName(ctx, name)
		if err != nil {
			return SKU{}, err
		}
		return SKU{}, conflictWith("skus_name_unique", other.ID)
	}
	return row, MapError("SKU "+name, err)
}

// SKU reads one SKU, or ErrNotFound.
func (s statements) SKU(ctx context.Context, id string) (SKU, error) {
	row, err := s.q.SKU(ctx, id)
	return row, MapError("SKU "+id, err)
}

// SKUByName reads one SKU, or ErrNotFound.
func (s statements) SKUByName(ctx context.Context, name string) (SKU, error) {
	row, err := s.q.SKUByName(ctx, name)
	return row, MapError("SKU "+name, err)
}

// ListSKUs lists SKUs by id, from the one after the id given.
func (s statements) ListSKUs(ctx context.Context, after string, limit int) ([]SKU, error) {
	rows, err := s.q.ListSKUs(ctx, gen.ListSKUsParams{After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("list SKUs", err)
}

// UpdateSKU replaces name and spec of the version given, or ErrStale.
func (s statements) UpdateSKU(ctx context.Context, id string, version int64, name string, spec spec.SKUSpec) (SKU, error) {
	row, err := s.q.UpdateSKU(ctx, gen.UpdateSKUParams{ID: id, Version: version, Name: name, Spec: spec})
	return CheckUpdate("SKU "+id, row, err, s.skuExists(ctx, id))
}

// SetTenantRoot says whether the tenants of a SKU are root on their nodes. How a node is cleaned
// goes by it, so it returns *ConflictError while a tenant of the SKU is on a node, or has left one
// that nothing proves clean.
func (tx *Tx) SetTenantRoot(ctx context.Context, id string, root bool) error {
	was, err := tx.q.HoldSKU(ctx, id)
	if err != nil || was == root {
		return MapError("SKU "+id, err)
	}
	n, err := tx.q.SKUTenancies(ctx, id)
	if err != nil {
		return MapError("tenancies of SKU "+id, err)
	}
	if n > 0 {
		return &ConflictError{Message: fmt.Sprintf(
			"%d allocations of the SKU have not ended, or left a node that nothing proves clean, and their nodes are cleaned by tenant_root; release them, sanitize the nodes, and try again, or create another SKU", n)}
	}
	return MapError("SKU "+id, tx.q.SetSKUTenantRoot(ctx, gen.SetSKUTenantRootParams{ID: id, TenantRoot: root}))
}

// DeleteSKU deletes the version given, or ErrStale; *ConflictError while
// something refers to the SKU.
func (s statements) DeleteSKU(ctx context.Context, id string, version int64) error {
	n, err := s.q.DeleteSKU(ctx, gen.DeleteSKUParams{ID: id, Version: version})
	return CheckDelete("SKU "+id, n, err, s.skuExists(ctx, id))
}

func (s statements) skuExists(ctx context.Context, id string) func() error {
	return func() error {
		_, err := s.SKU(ctx, id)
		return err
	}
}
