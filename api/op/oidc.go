package op

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/slipway-cloud/slipway/api/problem"
)

// AuthConfig is who may sign in besides holders of API tokens. An empty Issuer
// means API tokens only.
type AuthConfig struct {
	Issuer     string
	Audience   string
	RolesClaim string // a list of roles or one role; "" means roles
	// GroupsClaim is a list of groups, which may have roles in projects; "" means groups.
	GroupsClaim string
	Algorithms  []string // accepted signatures; nil means RS256, PS256, ES256 and EdDSA
	Client      *http.Client
}

const (
	oidcTimeout = 10 * time.Second
	oidcRetry   = 5 * time.Second // between attempts to reach an issuer that is down
)

// oidcVerifier reads the issuer's keys when the first token comes, so that the
// API starts while the issuer is away.
type oidcVerifier struct {
	cfg AuthConfig

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier
	failedAt time.Time
}

func newOIDCVerifier(cfg AuthConfig) *oidcVerifier {
	if cfg.RolesClaim == "" {
		cfg.RolesClaim = "roles"
	}
	if cfg.GroupsClaim == "" {
		cfg.GroupsClaim = "groups"
	}
	if len(cfg.Algorithms) == 0 {
		cfg.Algorithms = []string{oidc.RS256, oidc.PS256, oidc.ES256, oidc.EdDSA}
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: oidcTimeout}
	}
	return &oidcVerifier{cfg: cfg}
}

// verify checks signature, issuer, audience and times.
func (v *oidcVerifier) verify(ctx context.Context, text string) (Principal, error) {
	verifier, err := v.ready(ctx)
	if err != nil {
		return Principal{}, problem.New(problem.Unavailable, "the identity provider does not answer, so the token cannot be checked; repeat, or use an API token")
	}
	ctx, cancel := context.WithTimeout(ctx, oidcTimeout)
	defer cancel()
	token, err := verifier.Verify(ctx, text)
	if err != nil || token.Subject == "" {
		return Principal{}, rejected()
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return Principal{}, rejected()
	}
	who := Principal{ID: "oidc:" + token.Subject, Name: token.Subject, Roles: []string{}}
	for _, c := range []string{"name", "preferred_username", "email"} {
		if name, ok := claims[c].(string); ok && name != "" {
			who.Name = name
		}
	}
	who.Identity = identityOf(who, claims, v.cfg.GroupsClaim)
	for _, r := range texts(claims[v.cfg.RolesClaim]) {
		if Role(r).rank() > 0 {
			who.Roles = append(who.Roles, r)
		}
	}
	return who, nil
}

// ready asks the issuer for its keys' address, once.
func (v *oidcVerifier) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.verifier != nil {
		return v.verifier, nil
	}
	if time.Since(v.failedAt) < oidcRetry {
		return nil, context.DeadlineExceeded
	}
	// The key set keeps this context for its later reads: it must not end with the request.
	provider, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), v.cfg.Client), v.cfg.Issuer)
	if err != nil {
		v.failedAt = time.Now()
		return nil, err
	}
	v.verifier = provider.VerifierContext(oidc.ClientContext(context.WithoutCancel(ctx), v.cfg.Client),
		&oidc.Config{ClientID: v.cfg.Audience, SupportedSigningAlgs: v.cfg.Algorithms})
	return v.verifier, nil
}

func texts(claim any) []string {
	switch c := claim.(type) {
	case string:
		return []string{c}
	case []any:
		var out []string
		for _, e := range c {
			if t, ok := e.(string); ok {
				out = append(out, t)
			}
		}
		return out
	}
	return nil
}
