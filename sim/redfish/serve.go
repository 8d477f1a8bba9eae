package redfishsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	root    = "/redfish/v1"
	maxBody = 1 << 20 // bytes of a request
)

// call is one request being answered.
type call struct {
	r     *http.Request
	path  string // without a trailing slash
	body  []byte
	acct  *account
	sess  *session
	after []func() // effects on the BMC itself, once the answer is out
}

func (c *call) mutates() bool {
	return c.r.Method != http.MethodGet && c.r.Method != http.MethodHead
}

// public paths need no login.
func (c *call) public() bool {
	switch c.path {
	case "/redfish", root, root + "/odata", root + "/$metadata":
		return !c.mutates()
	}
	return false
}

func (c *call) sessionPath() bool { return strings.HasPrefix(c.path, sessionsPath) }

func (c *call) login() bool {
	return c.r.Method == http.MethodPost && (c.path == sessionsPath || c.path == sessionsPath+"/Members")
}

// object decodes the body as one JSON object; false for anything else.
func (c *call) object() (obj, bool) {
	var o obj
	if err := json.Unmarshal(c.body, &o); err != nil || o == nil {
		return nil, false
	}
	return o, true
}

// ServeHTTP answers one request as the BMC would.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.down() {
		abort(w)
		return
	}
	c := &call{r: r, path: strings.TrimSuffix(r.URL.Path, "/")}
	s.mu.Lock()
	s.counts.Requests++
	s.mu.Unlock()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if tooBig := (*http.MaxBytesError)(nil); errors.As(err, &tooBig) {
			s.write(w, c, s.fail(http.StatusRequestEntityTooLarge, "PayloadTooLarge", "The request body is too large."))
		}
		return
	}
	c.body = body
	rep := s.answer(c)
	if c.mutates() && rep.status < 300 {
		if s.take(FaultLostAnswer, c) != nil {
			c.finish()
			abort(w)
			return
		}
		if f := s.take(FaultBMCReset, c); f != nil {
			s.resetBMC(orDefault(f.Delay, time.Minute))
			abort(w)
			return
		}
	}
	s.write(w, c, rep)
	c.finish()
}

func (c *call) finish() {
	for _, f := range c.after {
		f()
	}
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// answer routes a request; faults that act before any effect come first.
func (s *Server) answer(c *call) reply {
	if f := s.take(FaultUnavailable, c); f != nil {
		rep := s.fail(orStatus(f.Status, http.StatusServiceUnavailable), "ServiceTemporarilyUnavailable", "The service is temporarily unavailable. Retry in 5 seconds.", "5")
		rep.header = map[string]string{"Retry-After": "5"}
		return rep
	}
	if f := s.take(FaultRedirect, c); f != nil {
		to := f.URL + c.path
		if f.URL == "" {
			to = "/elsewhere" + c.path
		}
		return reply{status: orStatus(f.Status, http.StatusTemporaryRedirect), header: map[string]string{"Location": to}}
	}
	if s.take(FaultEcho, c) != nil {
		return s.fail(http.StatusBadRequest, "MalformedJSON", "The request body submitted was malformed: "+string(c.body))
	}
	if c.public() {
		return s.read(c, s.nodes[c.path])
	}
	if c.login() {
		return s.createSession(c)
	}
	if rep := s.authenticate(c); rep != nil {
		return *rep
	}
	if rep := s.passwordGate(c); rep != nil {
		return *rep
	}
	return s.dispatch(c)
}

func orStatus(got, def int) int {
	if got == 0 {
		return def
	}
	return got
}

func (s *Server) dispatch(c *call) reply {
	n := s.lookup(c.path)
	if n == nil {
		return s.notFound(c.path)
	}
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		return s.read(c, n)
	case http.MethodPatch:
		return s.patch(c, n)
	case http.MethodPost:
		if n.post != nil {
			return n.post(c)
		}
	case http.MethodDelete:
		if n.del != nil {
			if rep := s.precondition(c, n, false); rep != nil {
				return *rep
			}
			return n.del(c)
		}
	}
	return s.notAllowed()
}

func (s *Server) patch(c *call, n *node) reply {
	if n.patch == nil {
		return s.notAllowed()
	}
	o, ok := c.object()
	if !ok {
		return s.malformed()
	}
	if rep := s.precondition(c, n, s.p.NeedsIfMatch); rep != nil {
		return *rep
	}
	rep := n.patch(c, o)
	if rep.status < 300 {
		s.mu.Lock()
		s.counts.Patches++
		s.mu.Unlock()
	}
	return rep
}

// read answers GET and HEAD with the resource and its ETag.
func (s *Server) read(c *call, n *node) reply {
	if n == nil || n.get == nil && n.raw == nil {
		return s.notAllowed()
	}
	if n.poll != nil {
		return n.poll()
	}
	if n.raw != nil {
		return reply{status: http.StatusOK, raw: n.raw(), ctype: n.ctype}
	}
	if s.take(FaultGarbage, c) != nil {
		return reply{status: http.StatusOK, raw: []byte("<html>The web server is starting"), ctype: "application/json"}
	}
	o := n.get()
	if o == nil {
		return s.notFound(c.path)
	}
	s.replaced(c.path, o)
	rep := reply{status: http.StatusOK, header: map[string]string{"ETag": s.etag(c, o)}}
	if s.p.InlineETag {
		o["@odata.etag"] = rep.header["ETag"]
	}
	if _, isCollection := o["Members"]; isCollection {
		s.page(c, o)
		if s.take(FaultNextLinkLoop, c) != nil {
			o["Members@odata.nextLink"] = c.path
		}
		if f := s.take(FaultForeignLink, c); f != nil {
			o["Members"] = []any{link(f.URL)}
			o["Members@odata.count"] = 1
		}
	}
	rep.body = o
	return rep
}

// write sends a reply; the faults of form bite here.
func (s *Server) write(w http.ResponseWriter, c *call, rep reply) {
	h := w.Header()
	h.Set("OData-Version", "4.0")
	h.Set("Cache-Control", "no-cache")
	for k, v := range rep.header {
		h.Set(k, v)
	}
	data := rep.raw
	if rep.body != nil {
		h.Set("Content-Type", "application/json; charset=utf-8")
		data = s.encode(rep.body)
	} else if rep.ctype != "" {
		h.Set("Content-Type", rep.ctype)
	}
	if rep.status < 300 && len(data) > 0 {
		if f := s.take(FaultHangBody, c); f != nil {
			s.hang(w, c, f, data)
			return
		}
		if f := s.take(FaultHugeBody, c); f != nil {
			s.huge(w, f, rep.status)
			return
		}
	}
	w.WriteHeader(rep.status)
	if c.r.Method != http.MethodHead {
		_, _ = w.Write(data)
	}
}

// encode marshals an answer; HPE's links end in a slash.
func (s *Server) encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if s.p.TrailingSlash {
		v = slashed(v)
	}
	if err := enc.Encode(v); err != nil {
		return []byte(`{"error":{"code":"Base.1.0.InternalError","message":"encode"}}`)
	}
	return b.Bytes()
}

// hang sends half the body, then nothing.
func (s *Server) hang(w http.ResponseWriter, c *call, f *Fault, data []byte) {
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(data[:len(data)/2])
	_ = http.NewResponseController(w).Flush()
	ctx := c.r.Context()
	if f.Delay > 0 {
		_ = s.clock.Sleep(ctx, f.Delay)
	} else {
		select {
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
	}
	abort(w)
}

// huge sends valid JSON of the asked length.
func (s *Server) huge(w http.ResponseWriter, f *Fault, status int) {
	left := f.Bytes
	if left == 0 {
		left = 64 << 20
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"Id":"huge","Description":"`)
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	for left > 0 {
		n := min(left, int64(len(chunk)))
		if _, err := w.Write(chunk[:n]); err != nil {
			return
		}
		left -= n
	}
	_, _ = io.WriteString(w, `"}`)
}

// abort resets the connection without an answer.
func abort(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // net/http's own way to drop a connection that cannot be taken over
	}
	under := conn
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		under = t.NetConn()
	}
	if tcp, ok := under.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = under.Close()
}
