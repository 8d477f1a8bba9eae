package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// A scrape asks the database once in a while and for a short time only.
const (
	gaugesFor   = 10 * time.Second
	gaugesLimit = 4 * time.Second
)

// gauges tells Prometheus what is stuck. Every process reads the same rows, so
// every process tells the same numbers: take the maximum, not the sum.
type gauges struct {
	read func(context.Context) (db.Trouble, error)
	log  *slog.Logger

	mu    sync.Mutex
	until time.Time
	last  db.Trouble
	known bool

	up, attention, parked, overdue, backlog, backlogAge, sweptAt, passes, certificates, nodes, auditAt *prometheus.Desc
}

func newGauges(read func(context.Context) (db.Trouble, error), log *slog.Logger) *gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &gauges{
		read: read, log: log,
		up:           desc("slipway_gauges_up", "1 when the gauges about jobs could be read from the database, else 0 and they are missing."),
		attention:    desc("slipway_attention_items", "What requires operator action, by kind.", "kind"),
		parked:       desc("slipway_jobs_parked", "Jobs that wait for an operator, by failure class.", "failure_class"),
		overdue:      desc("slipway_jobs_past_deadline", "Jobs at work past the deadline of their stage."),
		backlog:      desc("slipway_outbox_backlog", "Rows of the outbox that are not done, by kind.", "kind"),
		backlogAge:   desc("slipway_outbox_oldest_seconds", "Age of the oldest row of the outbox that is not done, by kind.", "kind"),
		sweptAt:      desc("slipway_sweeper_last_pass_timestamp_seconds", "When the sweeper last looked at everything, in Unix seconds."),
		certificates: desc("slipway_agent_certificates_not_renewed", "Certificates of agents that should have renewed, by state: ending, or ended.", "state"),
		nodes:        desc("slipway_nodes", "Nodes that are not deleted, by lifecycle and state.", "lifecycle", "status"),
		auditAt:      desc("slipway_audit_verified_timestamp_seconds", "When every chain of the audit log had been verified, in Unix seconds; 0 before the first time."),
		passes:       desc("slipway_sweeper_passes_total", "Passes of the sweeper, complete or not."),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.up, g.attention, g.parked, g.overdue, g.backlog, g.backlogAge, g.sweptAt, g.passes, g.certificates, g.nodes, g.auditAt} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	t, ok := g.trouble()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if !ok {
		gauge(g.up, 0)
		return
	}
	gauge(g.up, 1)
	for kind, n := range t.Attention {
		gauge(g.attention, float64(n), kind)
	}
	for class, n := range t.Parked {
		gauge(g.parked, float64(n), class)
	}
	gauge(g.overdue, float64(t.PastDeadline))
	for kind, b := range map[string]db.Backlog{"start_workflow": t.Starts, "event": t.Events} {
		gauge(g.backlog, float64(b.Open), kind)
		gauge(g.backlogAge, b.Oldest.Seconds(), kind)
	}
	for k, n := range nodesByStatus(t.Nodes) {
		gauge(g.nodes, float64(n), k.lifecycle, string(k.status))
	}
	gauge(g.certificates, float64(t.CertificatesEnding), "ending")
	gauge(g.certificates, float64(t.CertificatesEnded), "ended")
	verified := 0.0
	if at := t.Audit.FinishedAt; at != nil {
		verified = float64(at.UnixMilli()) / 1000
	}
	gauge(g.auditAt, verified)
	gauge(g.sweptAt, float64(t.Sweep.FinishedAt.UnixMilli())/1000)
	ch <- prometheus.MustNewConstMetric(g.passes, prometheus.CounterValue, float64(t.Sweep.Passes))
}

// trouble is read at most every few seconds, however many scrape. A number that cannot be read is
// not told from memory: an old number looks like a good one.
func (g *gauges) trouble() (db.Trouble, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().Before(g.until) {
		return g.last, g.known
	}
	ctx, cancel := context.WithTimeout(context.Background(), gaugesLimit)
	defer cancel()
	t, err := g.read(ctx)
	if err != nil {
		g.log.Warn("the gauges cannot be read from the database", "error", err)
	}
	g.last, g.known, g.until = t, err == nil, time.Now().Add(gaugesFor)
	return g.last, g.known
}

type nodeState struct {
	lifecycle string
	status    lifecycle.NodeStatus
}

// nodesByStatus returns the number of nodes of every state that a node can be in; a state without
// nodes is 0.
func nodesByStatus(rows []db.NodesInStatus) map[nodeState]int64 {
	out := map[nodeState]int64{}
	for _, m := range []lifecycle.Machine[lifecycle.NodeStatus]{lifecycle.NodeMAAS, lifecycle.NodePXE} {
		for _, s := range m.States {
			if s.State != lifecycle.NodeDeleted {
				out[nodeState{m.Lifecycle, s.State}] = 0
			}
		}
	}
	for _, r := range rows {
		out[nodeState{r.Lifecycle, r.Status}] = r.Nodes
	}
	return out
}
