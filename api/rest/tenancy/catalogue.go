package tenancy

import (
	"context"
	"net/http"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
)

// CatalogueItem is a SKU that customers can ask for.
type CatalogueItem struct {
	SKUID        string `json:"sku_id"`
	SKU          string `json:"sku" doc:"The SKU's name"`
	Title        string `json:"title"`
	Description  string `json:"description"`
	GPUs         int    `json:"gpus"`
	GPUModel     string `json:"gpu_model,omitempty"`
	Isolation    string `json:"isolation" doc:"dedicated_network or shared_network: whether other customers' nodes are on the same network"`
	Image        Image  `json:"image"`
	Availability string `json:"availability" doc:"none, few (1 to 3 nodes), some (4 to 15) or many"`
}

// Image is what a node of a SKU runs.
type Image struct {
	OS           string `json:"os"`
	Kernel       string `json:"kernel,omitempty" doc:"Left out for the kernel of the OS release"`
	Architecture string `json:"architecture"`
}

// availability hides how many nodes are free.
func availability(free int64) string {
	switch {
	case free <= 0:
		return "none"
	case free <= 3:
		return "few"
	case free <= 15:
		return "some"
	}
	return "many"
}

func catalogueView(r tenancydb.CatalogueItem) CatalogueItem {
	return CatalogueItem{
		SKUID: r.CatalogueItem.SKUID, SKU: r.SKUName, Title: r.CatalogueItem.Title, Description: r.CatalogueItem.Description, GPUs: r.SKUSpec.GPUs,
		GPUModel: r.SKUSpec.GPUModelContains, Isolation: r.CatalogueItem.Isolation, Availability: availability(r.FreeNodes),
		Image: Image{OS: r.ProfileSpec.DistroSeries, Kernel: r.ProfileSpec.HWEKernel, Architecture: r.ProfileSpec.Architecture},
	}
}

// OfferRequest offers a SKU to customers.
type OfferRequest struct {
	ProfileID   string `json:"profile_id" required:"true" maxLength:"200" doc:"prof_...: what is deployed"`
	Title       string `json:"title" required:"true" minLength:"1" maxLength:"100"`
	Description string `json:"description,omitempty" maxLength:"2000"`
	Isolation   string `json:"isolation" required:"true" maxLength:"20" enum:"dedicated_network,shared_network"`
}

// Offer is the row of the catalogue that an operator has written.
type Offer struct {
	SKUID       string `json:"sku_id"`
	ProfileID   string `json:"profile_id"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Isolation   string `json:"isolation"`
	Version     int64  `json:"version"`
}

// OfferPath is the path of an offer.
type OfferPath struct {
	SKU string `path:"sku" maxLength:"200" doc:"sku_..."`
}

func (s *server) registerCatalogue() {
	route(s, "list-catalogue", http.MethodGet, "/catalogue", "List what customers can ask for", s.listCatalogue)
	route(s, "put-catalogue-item", http.MethodPut, "/admin/catalogue/{sku}", "Offer a SKU to customers, or change the offer", s.putOffer)
	route(s, "delete-catalogue-item", http.MethodDelete, "/admin/catalogue/{sku}", "Take a SKU out of the catalogue", s.deleteOffer)
}

func (s *server) listCatalogue(ctx context.Context, in *op.Page) (*op.Listed[CatalogueItem], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := tenancydb.ListCatalogue(ctx, s.api.Store(), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r tenancydb.CatalogueItem) string { return r.CatalogueItem.SKUID }, catalogueView), nil
}

func (s *server) putOffer(ctx context.Context, in *struct {
	OfferPath
	Body OfferRequest
}) (*struct{ Body Offer }, error) {
	out := &struct{ Body Offer }{}
	err := s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		row, err := tenancydb.PutOffer(ctx, tx, tenancydb.Offer{
			SKUID: in.SKU, ProfileID: in.Body.ProfileID, Title: in.Body.Title, Description: in.Body.Description, Isolation: in.Body.Isolation,
		})
		if err != nil {
			return err
		}
		out.Body = Offer{row.SKUID, row.ProfileID, row.Title, row.Description, row.Isolation, row.Version}
		return op.Audit(ctx, tx, "sku", in.SKU, nil, "offer", map[string]any{"title": row.Title, "isolation": row.Isolation})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *server) deleteOffer(ctx context.Context, in *OfferPath) (*struct{}, error) {
	return nil, s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		if err := tenancydb.DeleteOffer(ctx, tx, in.SKU); err != nil {
			return err
		}
		return op.Audit(ctx, tx, "sku", in.SKU, nil, "withdraw_offer", nil)
	})
}
