package contract

// ReconcileInput starts a pass of a site.
type ReconcileInput struct {
	SiteID string `json:"site_id"`
}
