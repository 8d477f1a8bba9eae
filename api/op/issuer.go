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
	keys     oidc.KeySet
	keysFrom time.Time // when keys began empty
	reader   *keyTransport
	now      func() time.Time // nil is time.Now
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

// Verifier returns what checks the issuer's tokens for an audience. All tokens are checked with one
// set of keys: the issuer is asked for them when a token names an unknown one, at most once in 30
// seconds.
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

// KeysUnknown reports whether the last read of the issuer's keys failed. A token that is refused then
// may be a valid one.
func (i *Issuer) KeysUnknown() bool {
	i.mu.Lock()
	reader := i.reader
	i.mu.Unlock()
	return reader != nil && reader.failure() != nil
}

// keySet returns the issuer's keys, an empty set when the last one is old: a key that the issuer has
// withdrawn is refused then.
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

// Issuer returns the issuer of a URL. Where it is the one whose tokens the API accepts, both share it:
// the issuer gets one request for its keys, whoever causes it.
func (a *API) Issuer(url string, client *http.Client) *Issuer {
	if a.oidc != nil && a.oidc.issuer.URL == url {
		return a.oidc.issuer
	}
	return &Issuer{URL: url, Client: client}
}
