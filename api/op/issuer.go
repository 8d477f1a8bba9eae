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

// Issuer is an OpenID Connect issuer. Its configuration is read when it is first needed, so that
// the API can start while the issuer is unavailable.
type Issuer struct {
	URL    string
	Client *http.Client // nil: one with a timeout

	mu       sync.Mutex
	provider *oidc.Provider
	failedAt time.Time
	keys     oidc.KeySet
	keysFrom time.Time // when keys was created without keys
	reader   *keyTransport
	now      func() time.Time // nil is time.Now
}

// HTTP returns the client for requests to the issuer.
func (i *Issuer) HTTP() *http.Client {
	if i.Client != nil {
		return i.Client
	}
	return &http.Client{Timeout: oidcTimeout}
}

// Provider returns the configuration of the issuer. After a failed request it returns the failure
// for oidcRetry, and then sends a new request.
func (i *Issuer) Provider(ctx context.Context) (*oidc.Provider, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.find(ctx)
}

func (i *Issuer) find(ctx context.Context) (*oidc.Provider, error) {
	if i.provider != nil {
		return i.provider, nil
	}
	if time.Since(i.failedAt) < oidcRetry {
		return nil, context.DeadlineExceeded
	}
	provider, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), i.HTTP()), i.URL)
	if err != nil {
		i.failedAt = time.Now()
		return nil, err
	}
	i.provider = provider
	return provider, nil
}

// Verifier returns a verifier of the issuer's tokens for an audience. All verifiers share one set
// of keys. It is read again when a token names an unknown key, at most once in 30 seconds.
func (i *Issuer) Verifier(ctx context.Context, audience string, algorithms []string) (*oidc.IDTokenVerifier, error) {
	keys, err := i.keySet(ctx)
	if err != nil {
		return nil, err
	}
	if len(algorithms) == 0 {
		algorithms = []string{oidc.RS256, oidc.PS256, oidc.ES256, oidc.EdDSA}
	}
	return oidc.NewVerifier(i.URL, keys, &oidc.Config{ClientID: audience, SupportedSigningAlgs: algorithms}), nil
}

// KeysUnknown reports whether the last read of the issuer's keys failed. In this case a refused
// token may be valid.
func (i *Issuer) KeysUnknown() bool {
	i.mu.Lock()
	reader := i.reader
	i.mu.Unlock()
	return reader != nil && reader.failure() != nil
}

// keySet returns the set of the issuer's keys. It starts an empty set when the last one is old, so
// that a key that the issuer has withdrawn is refused.
func (i *Issuer) keySet(ctx context.Context) (oidc.KeySet, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.now == nil {
		i.now = time.Now
	}
	if i.keys != nil && i.now().Sub(i.keysFrom) < keysMaxAge {
		return i.keys, nil
	}
	provider, err := i.find(ctx)
	if err != nil {
		return nil, err
	}
	var named struct {
		JWKSURL string `json:"jwks_uri"`
	}
	if err := provider.Claims(&named); err != nil {
		return nil, err
	}
	if i.reader == nil {
		i.reader = &keyTransport{client: i.HTTP(), now: i.now}
	}
	i.keys = oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), &http.Client{Transport: i.reader}), named.JWKSURL)
	i.keysFrom = i.now()
	return i.keys, nil
}

// Issuer returns the issuer with a URL. For the issuer whose tokens the API accepts it returns the
// same Issuer, so that both uses share the requests for keys.
func (a *API) Issuer(url string, client *http.Client) *Issuer {
	if a.oidc != nil && a.oidc.issuer.URL == url {
		return a.oidc.issuer
	}
	return &Issuer{URL: url, Client: client}
}
