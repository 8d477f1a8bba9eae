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

// The default rates of one principal and one address, in requests per second, and the size of a
// burst in seconds of the rate. Behind a proxy all callers have one address.
const (
	defaultPrincipalRate = 200
	defaultAddressRate   = 1000
	burstSeconds         = 5
)

// The rate of changes of one project by its members, in requests per second, and the burst. Each
// change writes to the audit log, which is never pruned.
const changeRate, changeBurst = 10, 600

// principalPlaces is how many requests of one principal are served at the same time. A request ends
// when its answer was read, and further requests wait for at most placeWait. So one customer with
// costly requests cannot use up the database connections or the memory of the process.
const (
	principalPlaces = 64
	placeWait       = 10 * time.Second
)

// The paths of the health checks.
const (
	HealthPath = "/healthz"
	ReadyPath  = "/readyz"
)

// rates bound the requests of each principal and each address at this process.
type rates struct {
	principals, addresses *ratelimit.Limiter
	changes               *ratelimit.Limiter // of projects
	places                *ratelimit.Places  // of principals
	// answerLimit bounds the time from the start of a request until the client has read the answer.
	answerLimit time.Duration
}

func newRates(cfg Config) rates {
	limiter := func(perSecond int) *ratelimit.Limiter {
		return ratelimit.New(float64(perSecond), perSecond*burstSeconds, time.Now)
	}
	return rates{
		principals: limiter(cmp.Or(cfg.PrincipalRate, defaultPrincipalRate)), addresses: limiter(cmp.Or(cfg.AddressRate, defaultAddressRate)),
		changes: ratelimit.New(changeRate, changeBurst, time.Now),
		places:  ratelimit.NewPlaces(principalPlaces), answerLimit: 2 * requestLimit,
	}
}

// limitAddress refuses the requests of an address that sends too many, before any other work. It
// admits health checks: behind a proxy they share the address with a flood, and a failed check
// would restart the process.
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

// limitPrincipal returns a problem for a principal that sends too many requests.
func (a *API) limitPrincipal(ctx context.Context, who Principal) error {
	if ok, wait := a.rates.principals.AllowName(who.limited()); !ok {
		return problem.RateLimited("you send more requests than are allowed", wait)
	}
	return a.holdPlace(ctx, who)
}

// limitChanges returns a problem for a change of a project whose members make too many. Operators
// have their own rate alone.
func (a *API) limitChanges(access ProjectAccess, write bool) error {
	if !write || access.Operator {
		return nil
	}
	if ok, wait := a.rates.changes.AllowName(access.Project); !ok {
		return problem.RateLimited("the members of the project make more changes than are allowed", wait)
	}
	return nil
}

// heldPlace is the place that a request holds until its end.
type heldPlace struct{ leave func() }

func (h *heldPlace) end() {
	if h.leave != nil {
		h.leave()
	}
}

// holdPlace waits for a place of the principal, and holds it until the request ends. It returns a
// problem when no place becomes free in time. Streams and transfers have their own limits.
func (a *API) holdPlace(ctx context.Context, who Principal) error {
	held, bounded := ctx.Value(placeKey).(*heldPlace)
	if !bounded || held.leave != nil {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, placeWait)
	defer cancel()
	leave, ok := a.rates.places.Enter(wait, who.limited())
	if !ok {
		return problem.New(problem.TooManyRequests, fmt.Sprintf("%d of your requests are being answered, as many as may be at once; wait, then repeat this one", principalPlaces)).
			After(int(placeWait / time.Second))
	}
	held.leave = leave
	return nil
}

// LimitPrincipal returns a problem when the caller sends too many requests. It is for requests that
// are not operations. The requests of a principal to all APIs count together.
func (a *API) LimitPrincipal(ctx context.Context) error {
	return a.limitPrincipal(ctx, PrincipalOf(ctx))
}
