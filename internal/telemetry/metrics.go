package telemetry

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry returns a metrics registry of its own, so that two processes in
// one test do not collide, with the Go runtime's and the process's metrics and
// slipway_build_info, which is 1 and carries version and commit.
func NewRegistry(version, commit string) (*prometheus.Registry, error) {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "slipway_build_info",
		Help:        "1, with the version and commit that is running.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit},
	})
	build.Set(1)
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the standard metrics: %w", err)
		}
	}
	return reg, nil
}

// MetricsHandler serves reg for Prometheus, a few scrapes at a time at most.
func MetricsHandler(reg *prometheus.Registry) http.Handler {
	return promhttp.InstrumentMetricHandler(reg, promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
		ErrorHandling:       promhttp.ContinueOnError,
	}))
}
