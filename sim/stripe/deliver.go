package stripesim

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Endpoint is a receiver of webhooks.
type Endpoint struct {
	URL string `json:"url"`
	// Secrets sign each delivery, the newest first: two while a secret is rolled.
	Secrets []string `json:"secrets"`
	// Types are the types of events that it receives; none is all. A type may end in *.
	Types []string `json:"types,omitempty"`
}

type endpoint struct {
	Endpoint
	queue   []try
	running bool // a goroutine works on the queue
}

// delivery is one event on its way to one endpoint.
type delivery struct {
	event    *event
	to       *endpoint
	done     bool
	repeats  int
	attempts []Attempt
}

// Attempt is one try of a delivery.
type Attempt struct {
	Event    string    `json:"event"`
	Type     string    `json:"type"`
	URL      string    `json:"url"`
	At       time.Time `json:"at"`
	Status   int       `json:"status"` // 0 without an answer
	Failure  string    `json:"failure,omitempty"`
	Fault    string    `json:"fault,omitempty"`
	Accepted bool      `json:"accepted"`
}

func newDeliveryClient(limit time.Duration) *http.Client {
	return &http.Client{
		Timeout:       limit,
		Transport:     &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 4, IdleConnTimeout: 10 * time.Second, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// AddEndpoint adds a receiver of the events that are made from now on.
func (s *Server) AddEndpoint(e Endpoint) error {
	u, err := url.Parse(e.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is no URL of a webhook endpoint", e.URL)
	}
	if len(e.Secrets) == 0 || slices.Contains(e.Secrets, "") {
		return errors.New("a webhook endpoint needs a signing secret, such as whsec_simulated")
	}
	return s.commit(func() error {
		s.endpoints = append(s.endpoints, &endpoint{Endpoint: e})
		return nil
	})
}

// SetSecrets changes the signing secrets of all endpoints, as rolling one does.
func (s *Server) SetSecrets(secrets ...string) error {
	if len(secrets) == 0 || slices.Contains(secrets, "") {
		return errors.New("name at least one secret")
	}
	return s.commit(func() error {
		for _, e := range s.endpoints {
			e.Secrets = slices.Clone(secrets)
		}
		return nil
	})
}

func (e *endpoint) wants(kind string) bool {
	return len(e.Types) == 0 || slices.ContainsFunc(e.Types, func(name string) bool { return matchesType(name, kind) })
}

// backOff are the times between the tries of a delivery, three days in all.
func backOff() []time.Duration {
	return []time.Duration{
		time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 24 * time.Hour,
	}
}

// schedule puts a delivery into its endpoint's queue, unless a fault keeps it from there. It is
// called under the lock.
func (s *Server) schedule(d *delivery) {
	f := s.take(ofDelivery, d.event.kind, "")
	switch {
	case f == nil:
	case f.Name == FaultDrop:
		d.attempts = append(d.attempts, Attempt{
			Event: d.event.id, Type: d.event.kind, URL: d.to.URL, At: s.now(), Failure: "dropped", Fault: f.Name,
		})
		return
	case f.Name == FaultDelay:
		s.clock.AfterFunc(s.ctx, f.Duration("delay", time.Minute), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.enqueue(d, nil)
		})
		return
	case f.Name == FaultReorder:
		s.held = append(s.held, d)
		return
	case f.Name == FaultDuplicate:
		for range f.Number("copies", 2) - 1 {
			s.enqueue(d, nil)
		}
	}
	s.enqueue(d, f)
	s.releaseHeld()
}

// releaseHeld delivers what waits for the next delivery.
func (s *Server) releaseHeld() {
	for _, d := range s.held {
		s.enqueue(d, nil)
	}
	s.held = nil
}

// try is one try of a delivery that waits in a queue, with the fault that it meets.
type try struct {
	*delivery
	fault *Fault
}

func (s *Server) enqueue(d *delivery, f *Fault) {
	d.to.queue = append(d.to.queue, try{d, f})
	if !d.to.running {
		d.to.running = true
		go s.work(d.to)
	}
}

// work makes the deliveries of a queue, one after the other, and ends when there is none left.
func (s *Server) work(to *endpoint) {
	for {
		s.mu.Lock()
		if len(to.queue) == 0 || s.ctx.Err() != nil {
			to.running = false
			s.mu.Unlock()
			return
		}
		next := to.queue[0]
		to.queue = to.queue[1:]
		body, at, secrets := encode(s.eventObject(next.event)), s.now(), to.Secrets
		s.mu.Unlock()
		s.finish(next.delivery, s.post(next, body, at, secrets))
	}
}

// finish records a try and plans the next one where it failed.
func (s *Server) finish(d *delivery, a Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.attempts = append(d.attempts, a)
	s.counts.Deliveries++
	if a.Accepted {
		d.done = true
		return
	}
	if d.done || d.repeats >= len(backOff()) {
		return
	}
	wait := backOff()[d.repeats]
	d.repeats++
	s.clock.AfterFunc(s.ctx, wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !d.done {
			s.enqueue(d, nil)
		}
	})
}

// post makes one try.
func (s *Server) post(d try, body []byte, at time.Time, secrets []string) Attempt {
	a := Attempt{Event: d.event.id, Type: d.event.kind, URL: d.to.URL, At: at}
	f := d.fault
	if f != nil {
		a.Fault = f.Name
		switch f.Name {
		case FaultBadSignature:
			secrets = []string{"whsec_another_secret"}
		case FaultStale:
			at = at.Add(-f.Duration("by", 24*time.Hour))
		case FaultFuture:
			at = at.Add(f.Duration("by", 24*time.Hour))
		}
	}
	header := SignatureHeader(at, body, secrets...)
	if f != nil && f.Name == FaultBody {
		body = bytes.Replace(body, []byte(`"livemode"`), []byte(`"livemode_"`), 1)
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.opt.DeliveryLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.to.URL, bytes.NewReader(body))
	if err != nil {
		a.Failure = "the URL cannot be used"
		return a
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("User-Agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)")
	req.Header.Set("Stripe-Signature", header)
	resp, err := s.http.Do(req)
	if err != nil {
		a.Failure = "no answer"
		return a
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // the status has decided already
	_ = resp.Body.Close()
	a.Status = resp.StatusCode
	a.Accepted = resp.StatusCode >= 200 && resp.StatusCode < 300
	return a
}

// SignatureHeader signs a body as Stripe does: one signature a secret in the scheme v1, and one in
// the scheme v0 of test deliveries, which receivers have to ignore.
func SignatureHeader(at time.Time, body []byte, secrets ...string) string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	parts := []string{"t=" + stamp}
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = mac.Write([]byte(stamp + "."))
		_, _ = mac.Write(body)
		parts = append(parts, "v1="+hex.EncodeToString(mac.Sum(nil)))
	}
	ignored := sha256.Sum256(body)
	return strings.Join(append(parts, "v0="+hex.EncodeToString(ignored[:])), ",")
}

// Redeliver makes one more delivery of an event to each endpoint, as the dashboard does.
func (s *Server) Redeliver(id string) error {
	return s.commit(func() error {
		e := find(s.kept(), func(e *event) bool { return e.id == id })
		if e == nil {
			return fmt.Errorf("there is no event %q", id)
		}
		for _, d := range e.deliveries {
			s.enqueue(d, nil)
		}
		return nil
	})
}

// Attempts lists all tries of deliveries, by event.
func (s *Server) Attempts() []Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Attempt{}
	for _, e := range s.events {
		for _, d := range e.deliveries {
			out = append(out, d.attempts...)
		}
	}
	return out
}

// Undelivered returns how many deliveries no endpoint has accepted yet.
func (s *Server) Undelivered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.events {
		for _, d := range e.deliveries {
			if !d.done {
				n++
			}
		}
	}
	return n
}
