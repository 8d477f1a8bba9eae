package tenancy

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
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
	Charging     bool   `json:"charging" doc:"false while this installation has no price in force: nothing is charged then"`
	Prices       []Rate `json:"prices" nullable:"false" doc:"What a node costs now, one price for each currency of the billing accounts that pay for your projects. While charging is true, a SKU without a price in the currency of an account is refused to it"`
}

// Rate is what a node costs at the price that is in force now.
type Rate struct {
	Currency           string `json:"currency"`
	Exponent           int    `json:"exponent" doc:"Digits of the minor unit: 2 for USD, 0 for JPY"`
	RateMinorPerHour   int64  `json:"rate_minor_per_hour"`
	MinimumChargeMinor int64  `json:"minimum_charge_minor" doc:"What an allocation costs at least once it is active: ten minutes"`
	HoldMinor          int64  `json:"hold_minor" doc:"What is held back of the balance from the request until the charge ends: an hour"`
}

func rateView(rateMinorPerHour int64, currency string, exponent int) Rate {
	return Rate{currency, exponent, rateMinorPerHour, ledgerdb.MinimumCharge(rateMinorPerHour), ledgerdb.HoldOf(rateMinorPerHour)}
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
		Prices: []Rate{},
		SKUID:  r.CatalogueItem.SKUID, SKU: r.SKUName, Title: r.CatalogueItem.Title, Description: r.CatalogueItem.Description, GPUs: r.SKUSpec.GPUs,
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
	op.Add(s.api, huma.Operation{
		OperationID: "list-catalogue", Method: http.MethodGet, Path: "/catalogue", Tags: []string{"projects"}, Summary: "List what customers can ask for, with prices",
		Description: "With project_id, or by a token of a project, prices are in the currency of the billing account that pays for that project. Otherwise they are in the " +
			"currencies of the accounts of all your projects, and in every currency for a caller who has no project.",
	}, s.listCatalogue)
	route(s, "list-currencies", http.MethodGet, "/currencies", "List the currencies that billing accounts may have, with the digits of their minor units", s.listCurrencies)
	route(s, "put-catalogue-item", http.MethodPut, "/admin/catalogue/{sku}", "Offer a SKU to customers, or change the offer", s.putOffer)
	route(s, "delete-catalogue-item", http.MethodDelete, "/admin/catalogue/{sku}", "Take a SKU out of the catalogue", s.deleteOffer)
}

func (s *server) listCatalogue(ctx context.Context, in *struct {
	op.Page
	ProjectID string `query:"project_id" maxLength:"200" doc:"prj_...: only the price in the currency of the billing account that pays for it"`
	OperatorReason
}) (*op.Listed[CatalogueItem], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	currencies, err := s.currenciesFor(ctx, in.ProjectID, in.Reason)
	if err != nil {
		return nil, err
	}
	rows, err := tenancydb.ListCatalogue(ctx, s.api.Store(), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	out := op.Paged(rows, in.Limit, func(r tenancydb.CatalogueItem) string { return r.CatalogueItem.SKUID }, catalogueView)
	return out, addPrices(ctx, s.api.Store(), out.Body.Data, currencies)
}

// currenciesFor returns the currencies in which a caller sees prices; none stands for all of them.
func (s *server) currenciesFor(ctx context.Context, project, reason string) ([]string, error) {
	who := op.PrincipalOf(ctx)
	switch {
	case project != "":
		if _, err := op.EnterProject(ctx, s.api, project, op.RoleProjectAny, false, reason); err != nil {
			return nil, err
		}
	case who.Project != "":
		project = who.Project
	case who.Identity.Subject == "":
		return nil, nil
	}
	codes, err := tenancydb.ListCurrencies(ctx, s.api.Store(), project, who.Identity.Subject, who.Identity.Groups)
	if err == nil && project != "" && len(codes) == 0 { // an operator has named it
		err = db.NotFound(lifecycle.Project.Resource + " " + project)
	}
	return codes, err
}

// addPrices adds what the items cost now, with one query for all of them.
func addPrices(ctx context.Context, c ledgerdb.Conn, items []CatalogueItem, currencies []string) error {
	charging, err := ledgerdb.IsCharging(ctx, c)
	if err != nil {
		return err
	}
	at := make(map[string]int, len(items))
	skus := make([]string, 0, len(items))
	for i := range items {
		items[i].Charging = charging
		at[items[i].SKUID] = i
		skus = append(skus, items[i].SKUID)
	}
	rates, err := ledgerdb.ListRates(ctx, c, skus, currencies)
	for _, r := range rates {
		item := &items[at[r.Item]]
		item.Prices = append(item.Prices, rateView(r.RateMinorPerHour, r.Currency, int(r.Exponent)))
	}
	return err
}

// Currency is a currency that billing accounts may have.
type Currency struct {
	Code     string `json:"code" example:"USD"`
	Exponent int    `json:"exponent" doc:"Digits of the minor unit: 2 for USD, 0 for JPY, 3 for KWD"`
}

func (s *server) listCurrencies(ctx context.Context, _ *struct{}) (*op.Listed[Currency], error) {
	rows, err := ledgerdb.ListCurrencies(ctx, s.api.Store())
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, len(rows), func(c ledgerdb.Currency) string { return c.Code }, func(c ledgerdb.Currency) Currency { return Currency{c.Code, int(c.Exponent)} }), nil
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
