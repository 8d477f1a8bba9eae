package tenancydb

import (
	"context"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/tenancy/gen"
)

// ListQuotas lists the quotas of a project, that of all SKUs together first.
func ListQuotas(ctx context.Context, c Conn, projectID string) ([]Quota, error) {
	rows, err := queries(c).ListQuotas(ctx, projectID)
	return rows, db.MapError("list quotas", err)
}

// PutQuota sets how many nodes a project may have of a SKU, or of all together where skuID is "".
func PutQuota(ctx context.Context, tx *db.Tx, projectID, skuID string, maxNodes int) error {
	return db.MapError("quota of project "+projectID, queries(tx).PutQuota(ctx, gen.PutQuotaParams{
		ProjectID: projectID, SKUID: optional(skuID), MaxNodes: maxNodes,
	}))
}

// DeleteQuota removes a quota, or returns db.ErrNotFound.
func DeleteQuota(ctx context.Context, tx *db.Tx, projectID, skuID string) error {
	n, err := queries(tx).DeleteQuota(ctx, gen.DeleteQuotaParams{ProjectID: projectID, SKUID: optional(skuID)})
	return deleted("quota of project "+projectID, n, err)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Limits are the quotas of a project. Total is 0 where none is set; a SKU without an entry has only
// that limit.
type Limits struct {
	Total  int
	PerSKU map[string]int
}

// LockLimits locks a project until the transaction ends and returns its limits. A claim that counts
// after it cannot exceed a limit together with another claim that locks the same project.
func LockLimits(ctx context.Context, tx *db.Tx, projectID string) (Project, Limits, error) {
	p, err := LockProject(ctx, tx, projectID)
	if err != nil {
		return Project{}, Limits{}, err
	}
	l, err := ReadLimits(ctx, tx, projectID)
	return p, l, err
}

// ReadLimits returns the limits of a project and locks nothing.
func ReadLimits(ctx context.Context, c Conn, projectID string) (Limits, error) {
	rows, err := queries(c).ListLimits(ctx, projectID)
	if err != nil {
		return Limits{}, db.MapError("limits of project "+projectID, err)
	}
	l := Limits{PerSKU: map[string]int{}}
	for _, r := range rows {
		if r.SKUID == nil {
			l.Total = r.MaxNodes
		} else {
			l.PerSKU[*r.SKUID] = r.MaxNodes
		}
	}
	return l, nil
}

// CatalogueItem is a SKU that is offered, with what it deploys and how many nodes are free.
type CatalogueItem = gen.ListCatalogueRow

// ListCatalogue lists what is offered by SKU, from the one after the id given.
func ListCatalogue(ctx context.Context, c Conn, after string, limit int) ([]CatalogueItem, error) {
	rows, err := queries(c).ListCatalogue(ctx, gen.ListCatalogueParams{After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list the catalogue", err)
}

// Offer is the row of the catalogue.
type Offer = gen.CatalogueItem

// ReadOffer returns how a SKU is offered, or db.ErrNotFound when it is not.
func ReadOffer(ctx context.Context, c Conn, skuID string) (Offer, error) {
	row, err := queries(c).CatalogueItem(ctx, skuID)
	return row, db.MapError("catalogue item "+skuID, err)
}

// PutOffer offers a SKU, or changes how it is offered. It returns db.ErrNotFound when SKU or
// profile are not there.
func PutOffer(ctx context.Context, tx *db.Tx, o Offer) (Offer, error) {
	row, err := queries(tx).PutCatalogueItem(ctx, gen.PutCatalogueItemParams{
		SKUID: o.SKUID, ProfileID: o.ProfileID, Title: o.Title, Description: o.Description, Isolation: o.Isolation,
	})
	return row, db.MapError("catalogue item "+o.SKUID, err)
}

// DeleteOffer takes a SKU out of the catalogue, or returns db.ErrNotFound.
func DeleteOffer(ctx context.Context, tx *db.Tx, skuID string) error {
	n, err := queries(tx).DeleteCatalogueItem(ctx, skuID)
	return deleted("catalogue item "+skuID, n, err)
}
