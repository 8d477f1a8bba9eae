package server

import (
	"net/http"
	"net/url"

	"github.com/slipway-cloud/slipway/api/agentapi"
)

func (a *App) agentStore() agentapi.Store { return agentapi.NewStore(a.Store) }

// agentHosts are the names in the agent API's certificate.
func agentHosts(publicURL string) []string {
	u, err := url.Parse(publicURL)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	return []string{u.Hostname()}
}

func (a *App) restAPI() (http.Handler, error) {
	return http.NotFoundHandler(), nil
}
