package server

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/slipway-cloud/slipway/api/boot"
	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/ratelimit"
)

// withoutBoot serves all but what machines call that boot from the network.
func withoutBoot(api *op.API, next http.Handler) http.Handler {
	notHere := notHere(api)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if boot.IsRoute(r.URL.Path) {
			notHere.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bootOnly serves machines that boot from the network, where they call from one of the networks.
func bootOnly(api *op.API, networks []netip.Prefix) http.Handler {
	notHere := notHere(api)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddr(ratelimit.RemoteAddress(r))
		from = from.Unmap().WithZone("")
		if err != nil || !boot.IsRoute(r.URL.Path) || !slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(from) }) {
			notHere.ServeHTTP(w, r)
			return
		}
		api.Handler().ServeHTTP(w, r)
	})
}

func notHere(api *op.API) http.Handler {
	return api.Around(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.WriteError(w, r, problem.New(problem.NotFound, "nothing is served here; boot routes and reports of machines are on boot.listen alone, for the networks of boot.networks"))
	}))
}
