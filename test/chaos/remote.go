package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// question is what a worker process sends to the plans.
type question struct {
	Worker string `json:"worker"`
	JobID  string `json:"job_id,omitempty"`
	At     Point  `json:"at"`
	Order  Order  `json:"order"`
}

const maxMessage = 64 << 10

// Serve lets worker processes reach the plans, over HTTP on 127.0.0.1; the
// URL is for Dial. stop ends it.
func (d *FaultPlans) Serve(ctx context.Context) (url string, stop func(), err error) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /enter", func(w http.ResponseWriter, r *http.Request) {
		d.answer(w, r, func(q question) (Order, error) { return d.Worker(q.Worker).Enter(r.Context(), q.JobID, q.At) })
	})
	mux.HandleFunc("POST /leave", func(w http.ResponseWriter, r *http.Request) {
		d.answer(w, r, func(q question) (Order, error) { return Order{}, d.Worker(q.Worker).Leave(r.Context(), q.JobID, q.At) })
	})
	mux.HandleFunc("POST /inject", func(w http.ResponseWriter, r *http.Request) {
		d.answer(w, r, func(q question) (Order, error) { return Order{}, d.Worker(q.Worker).Inject(r.Context(), q.Order) })
	})
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }() // ends with stop
	return "http://" + l.Addr().String(), func() { _ = srv.Close() }, nil
}

func (d *FaultPlans) answer(w http.ResponseWriter, r *http.Request, f func(question) (Order, error)) {
	var q question
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage)).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o, err := f(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(o) // a worker that has gone is the plan
}

// Dial is the injector of a worker process.
func Dial(url, worker string) Injector {
	return &caller{url: url, worker: worker, http: &http.Client{Timeout: time.Minute}}
}

type caller struct {
	url, worker string
	http        *http.Client
}

// Enter implements Injector.
func (r *caller) Enter(ctx context.Context, jobID string, at Point) (Order, error) {
	return r.ask(ctx, "/enter", question{Worker: r.worker, JobID: jobID, At: at})
}

// Leave implements Injector.
func (r *caller) Leave(ctx context.Context, jobID string, at Point) error {
	_, err := r.ask(ctx, "/leave", question{Worker: r.worker, JobID: jobID, At: at})
	return err
}

// Inject implements Injector.
func (r *caller) Inject(ctx context.Context, o Order) error {
	_, err := r.ask(ctx, "/inject", question{Worker: r.worker, Order: o})
	return err
}

func (r *caller) ask(ctx context.Context, path string, q question) (Order, error) {
	raw, err := json.Marshal(q)
	if err != nil {
		return Order{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, bytes.NewReader(raw))
	if err != nil {
		return Order{}, err
	}
	res, err := r.http.Do(req)
	if err != nil {
		return Order{}, err
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, maxMessage))
		return Order{}, fmt.Errorf("the plans answered %d: %s", res.StatusCode, bytes.TrimSpace(text))
	}
	var o Order
	if err := json.NewDecoder(io.LimitReader(res.Body, maxMessage)).Decode(&o); err != nil && !errors.Is(err, io.EOF) {
		return Order{}, err
	}
	return o, nil
}
