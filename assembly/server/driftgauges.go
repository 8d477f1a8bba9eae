package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-cloud/slipway/db"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
)

// driftGauges tells Prometheus what the passes of the sites found, by the same
// rules as gauges: read now and then, the same in every process.
type driftGauges struct {
	store *db.Store
	log   *slog.Logger

	mu     sync.Mutex
	until  time.Time
	known  bool
	counts []driftdb.FindingCount
	passes []driftdb.SitePass

	open, pass, late *prometheus.Desc
}

func newDriftGauges(store *db.Store, log *slog.Logger) *driftGauges {
	return &driftGauges{
		store: store, log: log,
		open: prometheus.NewDesc("slipway_drift_open", "Open findings of the passes over sites.", []string{"detector", "severity"}, nil),
		pass: prometheus.NewDesc("slipway_drift_last_pass_timestamp_seconds", "When a site was last compared whole, in Unix seconds; 0 for never.", []string{"site"}, nil),
		late: prometheus.NewDesc("slipway_drift_pass_due_seconds", "How long a site may be without a complete pass before it requires operator action.", []string{"site"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (g *driftGauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.open
	ch <- g.pass
	ch <- g.late
}

// Collect implements prometheus.Collector. Values that cannot be read are missing.
func (g *driftGauges) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.After(g.until) {
		g.until = now.Add(gaugesFor)
		if g.known = true; g.read() != nil {
			g.known = false
		}
	}
	if !g.known {
		return
	}
	for _, c := range g.counts {
		ch <- prometheus.MustNewConstMetric(g.open, prometheus.GaugeValue, float64(c.Findings), c.Detector, c.Severity)
	}
	for _, p := range g.passes {
		at := 0.0
		if p.FinishedAt != nil {
			at = float64(p.FinishedAt.UnixMilli()) / 1000
		}
		ch <- prometheus.MustNewConstMetric(g.pass, prometheus.GaugeValue, at, p.SiteName)
		ch <- prometheus.MustNewConstMetric(g.late, prometheus.GaugeValue, float64(p.DueSeconds), p.SiteName)
	}
}

func (g *driftGauges) read() error {
	ctx, cancel := context.WithTimeout(context.Background(), gaugesLimit)
	defer cancel()
	var err error
	if g.counts, err = driftdb.CountFindings(ctx, g.store); err == nil {
		g.passes, err = driftdb.ListPasses(ctx, g.store, "", 1000)
	}
	if err != nil {
		g.log.Warn("the gauges of drift cannot be read from the database", "error", err)
	}
	return err
}
