package identity

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	discoveryPath = "/.well-known/openid-configuration"
	authorizePath = "/authorize"
)

// showConfiguration publishes the provider's configuration. The engine's own lacks the promise that
// each answer to an authorization names the provider (RFC 9207).
func (p *Provider) showConfiguration(w http.ResponseWriter, r *http.Request) {
	all := struct {
		*oidc.DiscoveryConfiguration
		NamesIssuer bool `json:"authorization_response_iss_parameter_supported"`
	}{op.CreateDiscoveryConfig(op.ContextWithIssuer(r.Context(), p.Issuer), p.engine, storage{p}), true}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // the status is out; a broken connection is the client's to notice
}

// namingIssuer adds the provider to each redirect from an authorization back to its client.
func (p *Provider) namingIssuer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&issuerWriter{w, p.Issuer}, r)
	})
}

type issuerWriter struct {
	http.ResponseWriter
	issuer string
}

func (w *issuerWriter) WriteHeader(status int) {
	back, err := url.Parse(w.Header().Get("Location"))
	if err == nil && back.Host != "" && back.Scheme+"://"+back.Host != w.issuer {
		q := back.Query()
		q.Set("iss", w.issuer)
		back.RawQuery = q.Encode()
		w.Header().Set("Location", back.String())
	}
	w.ResponseWriter.WriteHeader(status)
}
