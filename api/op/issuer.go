package op

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

const (
	oidcTimeout = 10 * time.Second
	oidcRetry   = 5 * time.Second // between attempts to reach an issuer that is down
)

// Issuer is an OpenID Connect issuer that is asked for its configuration when it is first needed, so
// that the API starts while the issuer is away.
type Issuer struct {
	URL    string
	Client *http.Client // nil: one with a timeout

	mu       sync.Mutex
	provider *oidc.Provider
	failedAt time.Time
}

// HTTP returns the client that speaks to the issuer.
func (i *Issuer) HTTP() *http.Client {
	if i.Client != nil {
		return i.Client
	}
	return &http.Client{Timeout: oidcTimeout}
}

// Provider returns the issuer's configuration. After a failure it does not ask again for some
// seconds.
func (i *Issuer) Provider(ctx context.Context) (*oidc.Provider, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.provider != nil {
		return i.provider, nil
	}
	if time.Since(i.failedAt) < oidcRetry {
		return nil, context.DeadlineExceeded
	}
	// The key set keeps this context for its later reads: it must not end with the request.
	provider, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), i.HTTP()), i.URL)
	if err != nil {
		i.failedAt = time.Now()
		return nil, err
	}
	i.provider = provider
	return provider, nil
}

// Verifier returns what checks the issuer's tokens for an audience.
func (i *Issuer) Verifier(ctx context.Context, audience string, algorithms []string) (*oidc.IDTokenVerifier, error) {
	provider, err := i.Provider(ctx)
	if err != nil {
		return nil, err
	}
	if len(algorithms) == 0 {
		algorithms = []string{oidc.RS256, oidc.PS256, oidc.ES256, oidc.EdDSA}
	}
	return provider.VerifierContext(oidc.ClientContext(context.WithoutCancel(ctx), i.HTTP()),
		&oidc.Config{ClientID: audience, SupportedSigningAlgs: algorithms}), nil
}
