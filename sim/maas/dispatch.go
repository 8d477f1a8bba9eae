package maassim

import (
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Prefix is the path of the API.
const Prefix = "/MAAS/api/2.0/"

const maxBody = 8 << 20

// call is one API request inside its transaction.
type call struct {
	*tx
	req    *http.Request
	op     operation
	opWord string // as the client spelled it; "None" when there was none
	vars   map[string]string
	form   url.Values // query and body together
	rec    *machine   // of {id}; nil elsewhere or when absent
}

// operation is one row of the endpoint table.
type operation struct {
	name     string // as faults and counters name it
	run      func(*call) *reply
	mutating bool
	admin    bool // needs an administrator
	edit     bool // refused on a locked machine
	anon     bool // open to anyone
}

// API is the region's handler.
func (s *Server) API() http.Handler {
	routes := s.routes()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.write(w, r, s.serve(routes, w, r))
	})
}

func (s *Server) serve(routes []route, w http.ResponseWriter, r *http.Request) *reply {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	path, opWord := splitOp(r)
	if path == "" {
		return text(404, "Unknown API endpoint: %s.", r.URL.Path)
	}
	rt, vars := find(routes, strings.Split(path, "/"))
	if rt == nil {
		if isUnsimulatedPath(path) {
			return notSimulated(path)
		}
		return text(404, "Unknown API endpoint: %s.", r.URL.Path)
	}
	if !strings.HasSuffix(r.URL.Path, "/") {
		u := *r.URL
		u.Path += "/"
		return text(301, "").with("Location", u.RequestURI())
	}
	form, bad := parseForm(r)
	if bad != nil {
		return bad
	}
	if opWord == "" {
		opWord = form.Get("op")
	}
	form.Del("op")
	c := &call{req: r, vars: vars, form: form, opWord: orNone(opWord)}
	anonymous, denied := s.authenticate(r)
	if denied != nil {
		return denied
	}
	op, known := rt.ops[r.Method+" "+opWord]
	if anonymous && (!known || !op.anon) {
		if rt.anonymous {
			return anonymousRefusal(r.Method, c.opWord)
		}
		return text(401, "Authorization Error: 'Authentication credentials were not provided.'").with("WWW-Authenticate", challenge)
	}
	if !known {
		if rt.isUnsimulatedOp(r.Method, opWord) {
			return notSimulated(r.Method + " " + opWord + " of " + strings.Join(rt.pattern, "/"))
		}
		if opWord != "" {
			return anonymousRefusal(r.Method, opWord)
		}
		return text(405, "Method Not Allowed").with("Allow", rt.methods())
	}
	c.op = op
	return s.perform(c)
}

// perform runs one call with the faults around it.
func (s *Server) perform(c *call) *reply {
	var applied *Fault
	out := s.commit(func(t *tx) *reply {
		c.tx = t
		s.counts.requests[c.op.name]++
		s.others(t, c.op.name, Before, c.named, c.subject, c.selectors())
		c.rec = s.machineByID(c.vars["id"])
		if applied = s.takeAnswer(c); applied != nil && applied.Phase != After {
			return s.faultAnswer(applied, c, nil)
		}
		r := s.guarded(c)
		s.others(t, c.op.name, After, c.named, c.subject, c.selectors())
		return r
	})
	if applied != nil && applied.Phase == After {
		s.mu.Lock()
		out = s.faultAnswer(applied, c, out)
		s.mu.Unlock()
	}
	return out
}

// guarded checks what every handler of MAAS checks first.
func (s *Server) guarded(c *call) *reply {
	if id, ok := c.vars["id"]; ok {
		c.rec = s.machineByID(id)
		if c.rec == nil {
			return notFound(c.vars["kind"])
		}
	}
	if (c.op.admin && s.opt.Unprivileged) || (c.op.edit && c.rec != nil && c.rec.locked) {
		return text(403, "")
	}
	return c.op.run(c)
}

// named reports whether a fault's machine is the one this call is about.
func (c *call) named(sel string) bool {
	for _, x := range c.selectors() {
		if strings.EqualFold(x, sel) {
			return true
		}
	}
	m := c.subject()
	return m != nil && m.matches(sel)
}

// selectors are the names of machines that the request itself carries.
func (c *call) selectors() []string {
	out := []string{}
	for _, key := range []string{"system_id", "id", "hostname", "name", "mac_address", "mac_addresses", "machines"} {
		out = append(out, c.form[key]...)
	}
	if id := c.vars["id"]; id != "" {
		out = append(out, id)
	}
	return out
}

// subject is the record that the call is about, nil when there is none.
func (c *call) subject() *machine {
	for _, sel := range c.selectors() {
		for _, m := range c.s.machines {
			if m.matches(sel) {
				return m
			}
		}
	}
	return nil
}

func anonymousRefusal(method, op string) *reply {
	return text(400, "Unrecognised signature: method=%s op=%s", method, orNone(op))
}

func orNone(op string) string {
	if op == "" {
		return "None"
	}
	return op
}

// splitOp takes /op-<name> off the path and prefers it to the query.
func splitOp(r *http.Request) (path, op string) {
	rest, ok := strings.CutPrefix(r.URL.Path, Prefix)
	if !ok {
		return "", ""
	}
	rest = strings.Trim(rest, "/")
	if i := strings.LastIndex(rest, "/op-"); i >= 0 && !strings.Contains(rest[i+1:], "/") {
		rest, op = rest[:i], rest[i+4:]
	}
	if op == "" {
		op = r.URL.Query().Get("op")
	}
	return rest, op
}

func parseForm(r *http.Request) (url.Values, *reply) {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		if err := r.ParseMultipartForm(maxBody); err != nil {
			return nil, text(400, "Cannot read the multipart body: %s.", err)
		}
	} else if r.Method == http.MethodPut || r.Method == http.MethodPost {
		ct := r.Header.Get("Content-Type")
		if ct != "" && !strings.HasPrefix(ct, "application/x-www-form-urlencoded") {
			return nil, text(400, "Invalid content-type: %s.", ct)
		}
	}
	if err := r.ParseForm(); err != nil {
		return nil, text(400, "Cannot read the form: %s.", err)
	}
	out := url.Values{}
	for k, v := range r.Form {
		out[k] = v
	}
	return out, nil
}

// boolParam reads a formencode StringBool.
func (c *call) boolParam(name string, fallback bool) (bool, *reply) {
	switch strings.ToLower(strings.TrimSpace(c.form.Get(name))) {
	case "":
		return fallback, nil
	case "true", "t", "yes", "y", "on", "1":
		return true, nil
	case "false", "f", "no", "n", "off", "0":
		return false, nil
	default:
		return false, field(name, "Value should be 'true' or 'false'")
	}
}

func (c *call) intParam(name string) (int, bool, *reply) {
	v := c.form.Get(name)
	if v == "" {
		return 0, false, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0, false, field(name, "Enter a whole number.")
	}
	return n, true, nil
}

var number = regexp.MustCompile(`^[0-9]+$`)

func (c *call) num(name string) int {
	if !number.MatchString(c.vars[name]) {
		return -1
	}
	n, err := strconv.Atoi(c.vars[name])
	if err != nil {
		return -1
	}
	return n
}

// write sends an answer with the headers of a region.
func (s *Server) write(w http.ResponseWriter, r *http.Request, out *reply) {
	if out.wire.delay > 0 {
		timer := time.NewTimer(out.wire.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
	if out.wire.reset {
		reset(w)
		return
	}
	for k, v := range out.header {
		w.Header()[k] = v
	}
	w.Header().Set("X-MAAS-API-Hash", "5b1e0c6f8f2d4a7fa9d0c3b6e1f2a3b4c5d6e7f8")
	s.mu.Lock()
	w.Header().Set("MAAS-trace-id", s.newUUID())
	s.mu.Unlock()
	w.Header().Set("Vary", "Authorization, Cookie")
	w.WriteHeader(out.code)
	_, _ = w.Write(out.body) // an error means that the client has gone away
}

// reset cuts the connection without an answer.
func reset(w http.ResponseWriter) {
	h, ok := w.(http.Hijacker)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	conn, _, err := h.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if l, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0) // best effort: a plain close also loses the answer
	}
	_ = conn.Close()
}
