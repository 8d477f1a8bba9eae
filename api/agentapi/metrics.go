package agentapi

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec
	flushed  prometheus.Counter
	dropped  prometheus.Counter
	failures prometheus.Counter
	waiting  prometheus.Gauge
	claims   prometheus.Gauge
}

// newMetrics makes the counters and registers them where a registry is given.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slipway_agentapi_requests_total",
			Help: "Requests of node agents by endpoint and outcome."}, []string{"endpoint", "outcome"}),
		flushed: prometheus.NewCounter(prometheus.CounterOpts{Name: "slipway_agentapi_heartbeats_written_total",
			Help: "Heartbeats written to the database."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "slipway_agentapi_heartbeats_dropped_total",
			Help: "Heartbeats given up: refused by the database, or over the queue's bound after a failed write."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "slipway_agentapi_heartbeat_flush_failures_total",
			Help: "Heartbeat batches whose write failed."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "slipway_agentapi_heartbeats_waiting",
			Help: "Nodes whose heartbeat waits for the next write."}),
		claims: prometheus.NewGauge(prometheus.GaugeOpts{Name: "slipway_agentapi_claims_waiting",
			Help: "Claims of node agents that wait for a task."}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.requests, m.flushed, m.dropped, m.failures, m.waiting, m.claims} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register the agent API's metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) request(endpoint, outcome string) {
	m.requests.WithLabelValues(endpoint, outcome).Inc()
}
