package op

import (
	"cmp"
	"context"
	"fmt"
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

// principalPlaces is how many requests of one principal are served at once, until their answers are
// read; further ones wait for placeWait at most. So one customer takes neither the connections to the
// database nor the memory of the process from all others, however costly his requests are.
const (
	principalPlaces = 64
	placeWait       = 10 * time.Second
)

// Where the process tells its health.
const (
	HealthPath = "/healthz"
	ReadyPath  = "/readyz"
)

// rates bound the requests of each principal and each address at this process.
type rates struct {
	principals, addresses *ratelimit.Limiter
	places                *ratelimit.Places // of principals
	// answerLimit bounds a request from its beginning until its answer was read.
	answerLimit time.Duration
}

func newRates(cfg Config) rates {
	limiter := func(perSecond int) *ratelimit.Limiter {
		return ratelimit.New(float64(perSecond), perSecond*burstSeconds, time.Now)
	}
	return rates{
		principals: limiter(cmp.Or(cfg.PrincipalRate, defaultPrincipalRate)), addresses: limiter(cmp.Or(cfg.AddressRate, defaultAddressRate)),
		places: ratelimit.NewPlaces(principalPlaces), answerLimit: 2 * requestLimit,
	}
}

// limitAddress refuses a request of an address that sends too many, before anything is done for it.
// Questions about health are answered: behind a proxy those who flood would end the process by them.
func (a *API) limitAddress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == HealthPath || r.URL.Path == ReadyPath {
			next.ServeHTTP(w, r)
			return
		}
		if ok, wait := a.rates.addresses.Allow(ratelimit.RemoteAddress(r)); !ok {
			a.WriteError(w, r, problem.RateLimited("your address sends more requests than are allowed", wait))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// limitPrincipal returns a problem for a principal who sends too many requests.
func (a *API) limitPrincipal(ctx context.Context, who Principal) error {
	if ok, wait := a.rates.principals.AllowName(who.ID); !ok {
		return problem.RateLimited("you send more requests than are allowed", wait)
	}
	return a.holdPlace(ctx, who)
}

// heldPlace is the place of a request's principal, which the request leaves at its end.
type heldPlace struct{ leave func() }

func (h *heldPlace) end() {
	if h.leave != nil {
		h.leave()
	}
}

// holdPlace waits for a place of the principal of a request, and keeps it until the request ends. It
// returns a problem when there is none. Streams and transfers have limits of their own.
func (a *API) holdPlace(ctx context.Context, who Principal) error {
	held, bounded := ctx.Value(placeKey).(*heldPlace)
	if !bounded || held.leave != nil {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, placeWait)
	defer cancel()
	leave, ok := a.rates.places.Enter(wait, who.ID)
	if !ok {
		return problem.New(problem.TooManyRequests, fmt.Sprintf("%d of your requests are being answered, as many as may be at once; wait, then repeat this one", principalPlaces)).
			After(int(placeWait / time.Second))
	}
	held.leave = leave
	return nil
}

// LimitPrincipal returns a problem when the caller of a request sends too many. It is for requests that
// are no operations: a principal has one rate, whichever API it calls.
func (a *API) LimitPrincipal(ctx context.Context) error {
	return a.limitPrincipal(ctx, PrincipalOf(ctx))
}
