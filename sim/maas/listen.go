package maassim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
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
	var a Addresses
	api, err := s.listen(ctx, listenAPI, s.API())
	if err != nil {
		return a, nil, err
	}
	a.API = api.Addr
	servers := []*http.Server{api}
	if listenAdmin != "" {
		adm, err := s.listen(ctx, listenAdmin, s.AdminAPI())
		if err != nil {
			_ = api.Close() // the error that matters is err
			return Addresses{}, nil, err
		}
		a.Admin = adm.Addr
		servers = append(servers, adm)
	}
	stop := func() {
		s.Close()
		limit, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for _, srv := range servers {
			if err := srv.Shutdown(limit); err != nil {
				_ = srv.Close() // what did not end in time is cut
			}
		}
	}
	context.AfterFunc(ctx, stop)
	return a, stop, nil
}

func (s *Server) listen(ctx context.Context, address string, h http.Handler) (*http.Server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("simulated MAAS cannot listen on %s: %w", address, err)
	}
	srv := &http.Server{Addr: l.Addr().String(), Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.Close()
		}
	}()
	return srv, nil
}
