package contract

import "encoding/json"

// ReconcileInput starts a pass over a site. Carried is what a run that was full
// hands on to the next; a Schedule leaves it out.
type ReconcileInput struct {
	SiteID  string          `json:"site_id"`
	Carried json.RawMessage `json:"carried,omitempty"`
}
