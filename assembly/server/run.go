package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/internal/listener"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/internal/telemetry"
)

// shutdownTimeout bounds a graceful stop of the listeners.
const shutdownTimeout = 20 * time.Second

// Run serves metrics and health, where configured, beside the given role.
func (a *App) Run(ctx context.Context, role func(*App, context.Context) error) error {
	if a.TuneInstances != nil {
		return errors.New("activities of instances are changed by tests alone")
	}
	if a.Receiver != nil {
		return errors.New("webhooks on this machine are only for a stack that runs in one process with its demo")
	}
	g, ctx := errgroup.WithContext(ctx)
	if addr := a.Config.Metrics.Listen; addr != "" {
		g.Go(func() error { return a.listen(ctx, metricsListener, addr, a.metricsHandler()) })
	}
	g.Go(func() error {
		err := role(a, ctx)
		if err == nil {
			err = context.Canceled // the role ended: so does the process
		}
		return err
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// metricsHandler serves metrics and health.
func (a *App) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", telemetry.MetricsHandler(a.Metrics))
	mux.Handle("/", a.Health.Handler())
	return mux
}

// RunAll serves the APIs and the worker in one process.
func (a *App) RunAll(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.RunAPI(ctx) })
	g.Go(func() error { return a.RunWorker(ctx) })
	return g.Wait()
}

// RunAPI serves the HTTP API and the agent API until ctx ends.
func (a *App) RunAPI(ctx context.Context) error {
	a.servesAPI.Store(true)
	api, err := a.httpAPI(ctx)
	if err != nil {
		return err
	}
	agents := agentapi.New(agentapi.Config{
		Store: a.agentStore(), CA: a.CA, Addr: a.Config.Agent.Listen, Hosts: agentHosts(a.Config.Agent.PublicURL),
		Log: a.Log, Metrics: a.Metrics, Tasks: a.Store, TaskKeys: &signing.Ring{Store: a.Store, Secrets: a.Secrets},
		Instances: agentapi.NewInstanceStore(a.Store), TaskWaiters: a.Config.Agent.TaskWaiters, Proxies: a.Config.API.Proxies(), RenewGrace: a.Config.Agent.RenewGrace,
	})
	if err := agents.Start(ctx); err != nil {
		return fmt.Errorf("agent API: %w", err)
	}
	a.Log.Info("agent API listens", "address", agents.Addr())
	go a.noteListening(ctx)
	go a.Payloads.RefreshKeys(ctx)
	defer func() {
		sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := agents.Shutdown(sctx); err != nil {
			a.Log.Warn("agent API did not stop in time", "error", err)
		}
	}()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.listen(ctx, "API", a.Config.API.Listen, a.customerHandler(api)) })
	if c := a.Config.Boot; c.Listen != "" {
		g.Go(func() error { return a.listen(ctx, "boot network", c.Listen, bootOnly(api, c.Prefixes())) })
	}
	return g.Wait()
}

// customerHandler is what people and programs reach.
func (a *App) customerHandler(api *op.API) http.Handler {
	return withoutBoot(api, a.withCodecServer(api))
}

// protocols are those of every listener but the agents': gRPC needs HTTP/2, behind a proxy without
// TLS.
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// metricsListener is the listener of metrics and health. It has no streams: metricsTime bounds each
// of its requests.
const (
	metricsListener = "metrics and health"
	metricsTime     = time.Minute
)

// listen serves h until ctx ends, then lets requests in flight finish.
func (a *App) listen(ctx context.Context, what, addr string, h http.Handler) error {
	var lc net.ListenConfig
	opened, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	bounds := listener.Bounds{Proxies: a.Config.API.Proxies()}
	if what == metricsListener {
		bounds.WriteTime = metricsTime
	}
	srv, l := bounds.Server(h), bounds.Bound(opened, a.Log)
	srv.Protocols = protocols()
	srv.BaseContext = func(net.Listener) context.Context { return ctx } // ends event streams
	a.Log.Info(what+" listens", "address", l.Addr().String())
	failed := make(chan error, 1)
	go func() {
		if c := a.Config.API; what == "API" && c.TLSCert != "" {
			failed <- srv.ServeTLS(l, c.TLSCert, c.TLSKey)
			return
		}
		failed <- srv.Serve(l)
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("%s: %w", what, err)
	case <-ctx.Done():
	}
	a.Health.Drain()
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return srv.Shutdown(sctx)
}
