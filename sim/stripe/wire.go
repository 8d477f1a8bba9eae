package stripesim

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// object is a JSON object.
type object map[string]any

// call is one request with its parameters.
type call struct {
	*http.Request
	p  params
	id string // of the request
}

// route is one endpoint of the API. run is called under the lock: it reads all parameters before it
// changes anything, calls known, and returns what the endpoint answers.
type route struct {
	pattern string
	op      string
	run     func(c *call) (any, *apiError)
}

func unknownRoute() route {
	return route{op: "unknown", run: func(c *call) (any, *apiError) {
		e := invalid("", "", "Unrecognized request URL (%s: %s). stripesim does not simulate it.", c.Method, c.URL.Path)
		e.status = http.StatusNotFound
		return nil, e
	}}
}

// result is one answer.
type result struct {
	status int
	body   []byte
}

// storedResult is what an idempotency key keeps.
type storedResult struct {
	fingerprint string
	result      result
	requestID   string
	at          time.Time
}

// keyLife is how long an idempotency key is kept.
const keyLife = 24 * time.Hour

// serve answers one request of the API.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, to route) {
	s.mu.Lock()
	c := &call{Request: r, id: s.newID("req_")}
	s.counts.Requests[to.op]++
	before := s.takeRequestFault(to.op, Before)
	s.mu.Unlock()
	w.Header().Set("Request-Id", c.id)
	w.Header().Set("Stripe-Version", APIVersion)
	w.Header().Set("Content-Type", "application/json")
	if before != nil && s.applyRequestFault(w, r, before, c.id, nil) {
		return
	}
	out, after := s.answer(w, c, to)
	if after != nil && s.applyRequestFault(w, r, after, c.id, out.body) {
		return
	}
	w.WriteHeader(out.status)
	_, _ = w.Write(out.body) // a client that went away is the client's matter
}

// answer runs the endpoint, or replays what its idempotency key keeps. A fault that it returns
// replaces the answer: the effect stays.
func (s *Server) answer(w http.ResponseWriter, c *call, to route) (result, *Fault) {
	if e := s.checkHeaders(c.Request); e != nil {
		return rendered(nil, e, c.id), nil
	}
	var e *apiError
	if c.p, e = readParams(w, c.Request); e != nil {
		return rendered(nil, e, c.id), nil
	}
	key := c.Header.Get("Idempotency-Key")
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Method == http.MethodPost && key != "" {
		w.Header().Set("Idempotency-Key", key)
		if out, done := s.replay(w, c, key); done {
			return out, s.takeRequestFault(to.op, After, FaultInternalError)
		}
	}
	body, e := to.run(c)
	out := rendered(body, e, c.id)
	var fault *Fault
	if e == nil || e.executed {
		fault = s.takeRequestFault(to.op, After)
		if fault != nil && fault.Name == FaultInternalError {
			// Stripe stores what it answered first, a 500 too.
			out, fault = rendered(nil, internalError(http.StatusInternalServerError), c.id), nil
		}
		if c.Method == http.MethodPost && key != "" {
			s.keys[key] = &storedResult{fingerprint: fingerprint(c), result: out, requestID: c.id, at: s.now()}
		}
	}
	if out.status >= http.StatusInternalServerError {
		w.Header().Set("Stripe-Should-Retry", "false")
	}
	return out, fault
}

// replay returns the stored answer of a key. A key that was used with other parameters is refused.
func (s *Server) replay(w http.ResponseWriter, c *call, key string) (result, bool) {
	if len(key) > 255 {
		return rendered(nil, &apiError{
			status: http.StatusBadRequest, kind: kindIdempotency, message: "Idempotency keys can have up to 255 characters.",
		}, c.id), true
	}
	stored, found := s.keys[key]
	if found && s.now().Sub(stored.at) >= keyLife {
		delete(s.keys, key)
		found = false
	}
	switch {
	case !found:
		return result{}, false
	case stored.fingerprint != fingerprint(c):
		return rendered(nil, &apiError{
			status: http.StatusBadRequest, kind: kindIdempotency,
			message: "Keys for idempotent requests can only be used with the same parameters they were first used with. Try using a key other than '" + key + "' if you meant to execute a different request.",
		}, c.id), true
	}
	s.counts.Replays++
	w.Header().Set("Idempotent-Replayed", "true")
	w.Header().Set("Original-Request", stored.requestID)
	if stored.result.status >= http.StatusInternalServerError {
		w.Header().Set("Stripe-Should-Retry", "false")
	}
	return stored.result, true
}

// fingerprint is a hash of what a key must be used with again.
func fingerprint(c *call) string {
	sum := sha256.Sum256([]byte(c.Method + " " + c.URL.Path + "\n" + c.p.values.Encode()))
	return hex.EncodeToString(sum[:])
}

// checkHeaders checks the key and the version.
func (s *Server) checkHeaders(r *http.Request) *apiError {
	key, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !isBearer {
		key, _, _ = r.BasicAuth()
	}
	if subtle.ConstantTimeCompare([]byte(key), []byte(s.opt.Key)) != 1 {
		return unauthorized(key)
	}
	if v := r.Header.Get("Stripe-Version"); v != "" && !strings.HasSuffix(v, releaseTrain) {
		return invalid("", "", "Invalid Stripe API version: %s. stripesim simulates the releases that end in %s.", v, releaseTrain)
	}
	for _, name := range []string{"Stripe-Account", "Stripe-Context"} {
		if r.Header.Get(name) != "" {
			return notSimulated("", "the header "+name)
		}
	}
	return nil
}

func rendered(body any, e *apiError, requestID string) result {
	if e != nil {
		return result{e.status, encode(e.object(requestID))}
	}
	return result{http.StatusOK, encode(body)}
}

// encode renders JSON as Stripe does: indented, without HTML escapes.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		panic(err) // objects hold texts, numbers, lists and objects
	}
	return b.Bytes()
}
