package maassim

import (
	"context"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
)

// Addresses are host:port of a started region; Admin is "" when not asked for.
type Addresses struct{ API, Admin string }

// URL is the base that MAAS clients take.
func (a Addresses) URL() string { return "http://" + a.API + "/MAAS" }

// Start listens on both addresses (":0" picks a port; an empty admin address
// leaves scenario control out) until stop is called or ctx ends. stop waits at
// most five seconds for open requests, ends the region's timers and may be
// called again.
func (s *Server) Start(ctx context.Context, listenAPI, listenAdmin string) (Addresses, func(), error) {
	listener, at, err := simcontrol.Listen(ctx, "MAAS", s.Close,
		simcontrol.Port{Address: listenAPI, Handler: s.API()}, simcontrol.Port{Address: listenAdmin, Handler: s.AdminAPI()})
	if err != nil {
		return Addresses{}, nil, err
	}
	stop := func() {
		s.Close()
		listener.Stop()
	}
	context.AfterFunc(ctx, stop)
	return Addresses{API: at[0], Admin: at[1]}, stop, nil
}
