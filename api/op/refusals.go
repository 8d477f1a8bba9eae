package op

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/ratelimit"
)

// The burst and the rate per second of refused tokens from one address. A valid token is accepted
// also above this rate, because many callers share one address behind a proxy.
const refusedRate, refusedBurst = 1, 60

// refusals counts and limits the refused sign-ins of all listeners of an API.
type refusals struct {
	limit   *ratelimit.Limiter
	counted *prometheus.CounterVec
}

func newRefusals() refusals {
	return refusals{ratelimit.New(refusedRate, refusedBurst, time.Now), prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slipway_sign_ins_refused_total", Help: "Refused sign-ins and tokens, by method.",
	}, []string{"method"})}
}

// Refusals returns the count of refused sign-ins, for the registry of the process.
func (a *API) Refusals() prometheus.Collector { return a.refused.counted }

// CountRefusal counts a refused sign-in. method must be from a fixed list, since it is a label of
// the metric.
func (a *API) CountRefusal(method string) { a.refused.counted.WithLabelValues(method).Inc() }

// limitRefusals counts a refused bearer token, and returns a 429 problem for an address that sends
// too many. It returns other errors unchanged, and also the error of a request without a token.
func (a *API) limitRefusals(r *http.Request, err error) error {
	var p *problem.Problem
	if r.Header.Get("Authorization") == "" || !errors.As(err, &p) || p.Status != http.StatusUnauthorized {
		return err
	}
	a.CountRefusal("bearer")
	if ok, wait := a.refused.limit.Allow(ratelimit.RemoteAddress(r)); !ok {
		return problem.RateLimited("too many tokens from your address were refused, this one too; sign in again, or ask an admin for a new token", wait)
	}
	return err
}
