package op

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/ratelimit"
)

// The default rates of one principal and one address, in requests a second, and how many seconds' worth
// may come at once. Behind a proxy all callers have one address.
const (
	defaultPrincipalRate = 200
	defaultAddressRate   = 1000
	burstSeconds         = 5
)

// rates bound the requests of each principal and each address at this process.
type rates struct{ principals, addresses *ratelimit.Limiter }

func newRates(cfg Config) rates {
	limiter := func(perSecond int) *ratelimit.Limiter {
		return ratelimit.New(float64(perSecond), perSecond*burstSeconds, time.Now)
	}
	return rates{limiter(cmp.Or(cfg.PrincipalRate, defaultPrincipalRate)), limiter(cmp.Or(cfg.AddressRate, defaultAddressRate))}
}

// limitAddress refuses a request of an address that sends too many, before anything is done for it.
func (a *API) limitAddress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ok, wait := a.rates.addresses.Allow(ratelimit.RemoteAddress(r)); !ok {
			a.WriteError(w, r, problem.RateLimited("your address sends more requests than are allowed", wait))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// limitPrincipal returns a problem for a principal who sends too many requests.
func (a *API) limitPrincipal(who Principal) error {
	if ok, wait := a.rates.principals.AllowName(who.ID); !ok {
		return problem.RateLimited("you send more requests than are allowed", wait)
	}
	return nil
}

// LimitPrincipal returns a problem when the caller of a request sends too many. It is for requests that
// are no operations: a principal has one rate, whichever API it calls.
func (a *API) LimitPrincipal(ctx context.Context) error { return a.limitPrincipal(PrincipalOf(ctx)) }
