package contract

// ReconcileInput starts a pass over a site.
type ReconcileInput struct {
	SiteID string `json:"site_id"`
}
