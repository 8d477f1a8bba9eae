package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Check reports whether something this process needs works. It must honour its
// context; one that does not is reported as failed and is not started a second
// time while it hangs.
type Check func(ctx context.Context) error

// Health answers two questions. Alive (/healthz): should this process be
// restarted? Ready (/readyz): should it get work now? What the process depends
// on, such as the database, belongs to readiness alone: restarting does not
// repair it.
type Health struct {
	log      *slog.Logger
	draining atomic.Bool

	mu    sync.Mutex
	alive []*namedCheck
	ready []*namedCheck
}

// NewHealth returns a registry without checks: alive and ready. Causes of
// failures go to log only, since the answers are open to everybody.
func NewHealth(log *slog.Logger) *Health { return &Health{log: log} }

// AddAlive adds a check to /healthz, AddReady one to /readyz. Each gets deadline
// for one run. A name is used once.
func (h *Health) AddAlive(name string, deadline time.Duration, c Check) error {
	return h.add(&h.alive, name, deadline, c)
}

// AddReady adds a check to /readyz; see AddAlive.
func (h *Health) AddReady(name string, deadline time.Duration, c Check) error {
	return h.add(&h.ready, name, deadline, c)
}

func (h *Health) add(to *[]*namedCheck, name string, deadline time.Duration, c Check) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if name == "" || deadline <= 0 || c == nil {
		return errors.New("a health check needs a name, a deadline and a function")
	}
	for _, n := range *to {
		if n.name == name {
			return fmt.Errorf("there is a health check %q already; give this one another name", name)
		}
	}
	*to = append(*to, &namedCheck{name: name, deadline: deadline, run: c})
	return nil
}

// Drain makes /readyz answer no from now on, so that a load balancer stops
// sending work before the process ends. /healthz is not affected.
func (h *Health) Drain() { h.draining.Store(true) }

// CheckResult is how one check ended.
type CheckResult struct {
	Name    string  `json:"name"`
	OK      bool    `json:"ok"`
	Message string  `json:"message,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Report is the answer of both endpoints.
type Report struct {
	OK       bool          `json:"ok"`
	Draining bool          `json:"draining,omitempty"`
	Checks   []CheckResult `json:"checks"`
}

// Alive runs the checks of /healthz, all at once.
func (h *Health) Alive(ctx context.Context) Report { return h.report(ctx, &h.alive) }

// Ready runs the checks of /readyz, all at once.
func (h *Health) Ready(ctx context.Context) Report {
	r := h.report(ctx, &h.ready)
	if h.draining.Load() {
		r.OK, r.Draining = false, true
	}
	return r
}

func (h *Health) report(ctx context.Context, of *[]*namedCheck) Report {
	h.mu.Lock()
	checks := append([]*namedCheck(nil), *of...)
	h.mu.Unlock()
	r := Report{OK: true, Checks: make([]CheckResult, len(checks))}
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { r.Checks[i] = c.result(ctx, h.log) })
	}
	wg.Wait()
	for _, c := range r.Checks {
		r.OK = r.OK && c.OK
	}
	return r
}

// Handler serves GET and HEAD /healthz and /readyz: 200 when all is well, else
// 503, with a Report as JSON.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.serve(h.Alive))
	mux.HandleFunc("GET /readyz", h.serve(h.Ready))
	return mux
}

func (h *Health) serve(ask func(context.Context) Report) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		r := ask(req.Context())
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !r.OK {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if err := json.NewEncoder(w).Encode(r); err != nil {
			h.log.Debug("a health answer was not delivered", "error", err)
		}
	}
}

// namedCheck runs one check for any number of askers: those that come while it
// runs share its result.
type namedCheck struct {
	name     string
	deadline time.Duration
	run      Check

	mu      sync.Mutex
	current *checkRun // nil when none is going
}

type checkRun struct {
	began time.Time
	done  chan struct{}
	err   error // valid when done is closed
}

// start returns the run that is going, or begins one. It runs apart from any
// request, so that an asker who leaves does not fail it for the others.
func (c *namedCheck) start() *checkRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		return c.current
	}
	r := &checkRun{began: time.Now(), done: make(chan struct{})}
	c.current = r
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), c.deadline)
		defer cancel()
		r.err = protect(ctx, c.run)
		c.mu.Lock()
		c.current = nil
		c.mu.Unlock()
		close(r.done)
	}()
	return r
}

// protect keeps a check that panics from ending the process.
func protect(ctx context.Context, run Check) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the check panicked: %v", p)
		}
	}()
	return run(ctx)
}

func (c *namedCheck) result(ctx context.Context, log *slog.Logger) CheckResult {
	r := c.start()
	timer := time.NewTimer(time.Until(r.began.Add(c.deadline)))
	defer timer.Stop()
	res := CheckResult{Name: c.name}
	var err error
	select {
	case <-r.done:
		err = r.err
	case <-timer.C:
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = ctx.Err()
	}
	res.Seconds = time.Since(r.began).Seconds()
	switch {
	case err == nil:
		res.OK = true
	case errors.Is(err, context.DeadlineExceeded):
		res.Message = fmt.Sprintf("no answer within %s", c.deadline)
	default:
		res.Message = "failed; the log has the cause"
	}
	if err != nil {
		log.Warn("a health check failed", "check", c.name, "error", err, "seconds", res.Seconds)
	}
	return res
}
