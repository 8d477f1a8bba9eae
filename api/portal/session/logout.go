package session

import (
	"context"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	portaldb "github.com/slipway-cloud/slipway/db/portal"
)

// maxLogoutAge bounds how old a logout token may be; its id is remembered for twice as long.
const maxLogoutAge = 10 * time.Minute

// providerLogout ends sessions when the provider says so (OpenID Connect Back-Channel Logout). The
// provider's signature is what it shows; no cookie takes part.
func (m *Manager) providerLogout(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Cache-Control", "no-store")
	if m.provider == nil {
		return problem.New(problem.NotFound, "no identity provider is configured")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		return refusedLogout()
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(r.Context(), m.provider.issuer.HTTP()), exchange)
	defer cancel()
	verifier, err := m.provider.issuer.Verifier(ctx, m.provider.cfg.ClientID, nil)
	if err != nil {
		return problem.New(problem.Unavailable, "the identity provider does not answer; repeat")
	}
	token, err := verifier.VerifyLogout(ctx, r.PostForm.Get("logout_token"))
	if err != nil && m.provider.issuer.KeysUnknown() {
		return problem.New(problem.Unavailable, "the identity provider does not answer; repeat")
	}
	if err != nil || token.TokenID == "" || token.Subject == "" && token.SessionID == "" || time.Since(token.IssuedAt) > maxLogoutAge {
		m.api.CountRefusal("provider_logout")
		return refusedLogout()
	}
	err = m.store.Tx(ctx, func(tx *db.Tx) error {
		ended, fresh, err := portaldb.EndByProvider(ctx, tx, token.Issuer, token.Subject, token.SessionID,
			hashOf(token.Issuer+"\x00"+token.TokenID), time.Now().Add(2*maxLogoutAge))
		if err != nil {
			return err
		}
		if !fresh {
			return refusedLogout()
		}
		for _, s := range ended {
			if err := audit(ctx, tx, s.Principal, s.ID, "sign_out", map[string]any{"by": "provider"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func refusedLogout() *problem.Problem {
	return problem.New(problem.Malformed, "the logout token is not valid, too old, or was carried out already")
}
