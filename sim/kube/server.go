package kubesim

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
)

// Options configure a simulated cluster.
type Options struct {
	// Manifest has the RBAC objects of the client, as YAML; its first ServiceAccount is the
	// client's.
	Manifest []byte
	// Version is that of the API server; "" is v1.34.1.
	Version string
	// Heartbeat is how often the kubelets renew their leases; 0 is 10 s.
	Heartbeat time.Duration
	// TokenCache is how long a deleted token is still taken.
	TokenCache time.Duration
}

type object = map[string]any

// kept is one stored object.
type kept struct {
	rev int
	obj object
}

// Server is one simulated cluster. All methods are safe for concurrent use.
type Server struct {
	simcontrol.Script
	opt   Options
	rules []grant
	pki   *pki

	mu       sync.Mutex
	url      string
	token    string // of the client
	rev      int
	objects  map[string]map[string]*kept // by collection, then namespace/name
	seen     map[string]time.Time        // tokens that were taken, by their value
	renewed  map[string]time.Time        // when the lease of a node was made
	wrongCA  []byte                      // what FaultWrongCA shows
	requests []string
	minted   []string // the values of all tokens that were made
}

// New makes a cluster without nodes.
func New(opt Options) (*Server, error) {
	if opt.Version == "" {
		opt.Version = "v1.34.1"
	}
	if opt.Heartbeat == 0 {
		opt.Heartbeat = 10 * time.Second
	}
	p, err := newPKI()
	if err != nil {
		return nil, err
	}
	s := &Server{opt: opt, pki: p, token: randomText(40), objects: map[string]map[string]*kept{}, seen: map[string]time.Time{}, renewed: map[string]time.Time{}}
	s.Script = simcontrol.Script{Lock: &s.mu, Specs: faultTable()}
	s.rules, err = readGrants(opt.Manifest)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"kubeadm-config", "kubelet-config", "kube-proxy"} {
		s.put("configmaps", "kube-system", name, object{"apiVersion": "v1", "kind": "ConfigMap", "data": object{"kubernetesVersion": opt.Version}})
	}
	return s, nil
}

// Start serves the API on an address of its own until stop is called or ctx ends. An empty admin
// address leaves scenario control out.
func (s *Server) Start(ctx context.Context, listenAPI, listenAdmin string) (admin string, stop func(), err error) {
	var lc net.ListenConfig
	on, err := lc.Listen(ctx, "tcp", listenAPI)
	if err != nil {
		return "", nil, fmt.Errorf("simulated cluster cannot listen on %s: %w", listenAPI, err)
	}
	s.mu.Lock()
	s.url = "https://" + on.Addr().String()
	s.mu.Unlock()
	listener, at, err := simcontrol.Listen(ctx, "cluster", func() {}, simcontrol.Port{Address: listenAdmin, Handler: s.AdminAPI()})
	if err != nil {
		_ = on.Close()
		return "", nil, err
	}
	srv := &http.Server{
		Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{s.pki.server}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: s.pki.pool,
		},
	}
	go func() { _ = srv.ServeTLS(on, "", "") }()
	var once sync.Once
	stop = func() { once.Do(func() { _ = srv.Close(); listener.Stop() }) }
	context.AfterFunc(ctx, stop)
	return at[0], stop, nil
}

// URL is the base of the API.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// CAPin is the pin of the CA, as kubeadm takes it.
func (s *Server) CAPin() string { return s.pki.pin }

// Kubeconfig is one of the client whose rights the manifest states.
func (s *Server) Kubeconfig() string {
	raw, _ := json.Marshal(object{ // plain values
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []object{{"name": "k", "cluster": object{"server": s.URL(), "certificate-authority-data": s.pki.caPEM}}},
		"users":    []object{{"name": "u", "user": object{"token": s.token}}},
		"contexts": []object{{"name": "c", "context": object{"cluster": "k", "user": "u"}}},
	})
	return string(raw)
}

// call is one request.
type call struct {
	*http.Request
	who  identity
	verb string
	// resource, namespace, name and sub are parts of the path; resource is "" outside of the
	// resources.
	group, resource, namespace, name, sub string
	body                                  object
}

// status is a refusal.
type status struct {
	code            int
	reason, message string
	retryAfter      int
}

func (e *status) Error() string { return e.message }

func refuse(code int, reason, format string, args ...any) error {
	return &status{code: code, reason: reason, message: fmt.Sprintf(format, args...)}
}

func (e *status) body(c *call) object {
	out := object{
		"kind": "Status", "apiVersion": "v1", "metadata": object{}, "status": "Failure", "message": e.message, "reason": e.reason, "code": e.code,
	}
	if c.resource != "" {
		out["details"] = object{"name": c.name, "kind": c.resource, "group": c.group}
	}
	return out
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // a client that went away is the client's matter
}

// parse reads path and verb of a request.
func parse(r *http.Request) *call {
	c := &call{Request: r}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		c.group, parts = parts[1], parts[3:]
	default:
		return c
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		c.namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "")
	c.resource, c.name, c.sub = parts[0], parts[1], parts[2]
	c.verb = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[r.Method]
	if r.Method == http.MethodGet {
		switch {
		case c.name != "":
			c.verb = "get"
		case r.URL.Query().Get("watch") != "":
			c.verb = "watch"
		default:
			c.verb = "list"
		}
	}
	return c
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	c := parse(r)
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err == nil && len(raw) > 0 {
		err = json.Unmarshal(raw, &c.body)
	}
	if err != nil {
		s.answer(w, c, 0, nil, refuse(http.StatusBadRequest, "BadRequest", "the body is no JSON object"))
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	op := c.verb + " " + c.resource
	f := s.take(op, simcontrol.Before)
	if f != nil {
		s.mu.Unlock()
		s.misbehave(w, c, f)
		return
	}
	if c.who, err = s.identify(r); err == nil {
		err = s.authorise(c)
	}
	if err == nil && c.verb == "watch" {
		s.mu.Unlock()
		s.watch(w, c)
		return
	}
	code, body := http.StatusOK, any(nil)
	if err == nil {
		code, body, err = s.handle(c)
	}
	f = s.take(op, simcontrol.After)
	s.mu.Unlock()
	if f != nil {
		s.misbehave(w, c, f)
		return
	}
	s.answer(w, c, code, body, err)
}

func (s *Server) answer(w http.ResponseWriter, c *call, code int, body any, err error) {
	var no *status
	if errors.As(err, &no) {
		if no.retryAfter > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(no.retryAfter))
		}
		write(w, no.code, no.body(c))
		return
	}
	write(w, code, body)
}

// handle carries out a call that is allowed.
func (s *Server) handle(c *call) (int, any, error) {
	s.control()
	switch c.group + "/" + c.resource {
	case "/":
		switch c.URL.Path {
		case "/healthz", "/readyz", "/livez":
			return http.StatusOK, "ok", nil
		case "/version":
			return http.StatusOK, object{"major": "1", "minor": strings.Split(s.opt.Version, ".")[1], "gitVersion": s.opt.Version}, nil
		}
	case "/secrets":
		return s.secrets(c)
	case "/configmaps":
		return s.configmaps(c)
	case "/nodes":
		return s.nodes(c)
	case "/pods":
		return s.pods(c)
	case "certificates.k8s.io/certificatesigningrequests":
		return s.requestsForCertificates(c)
	case "coordination.k8s.io/leases":
		return s.leases(c)
	case "apps/daemonsets":
		if c.verb == "get" {
			return s.get(c)
		}
	}
	return 0, nil, notSimulated(c)
}

func notSimulated(c *call) error {
	return refuse(http.StatusNotImplemented, "NotImplemented", "%s %s is not simulated", c.Method, c.URL.Path)
}

// place returns where an object of a call is kept.
func (c *call) place() string { return c.namespace + "/" + c.name }

func (s *Server) find(resource, namespace, name string) (*kept, bool) {
	k, ok := s.objects[resource][namespace+"/"+name]
	return k, ok
}

// put stores an object under a new revision.
func (s *Server) put(resource, namespace, name string, obj object) *kept {
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]*kept{}
	}
	s.rev++
	meta, _ := obj["metadata"].(object)
	meta = maps.Clone(meta)
	if meta == nil {
		meta = object{}
	}
	meta["name"], meta["resourceVersion"] = name, fmt.Sprint(s.rev)
	if namespace != "" {
		meta["namespace"] = namespace
	}
	if meta["uid"] == nil {
		meta["uid"] = newUID()
	}
	if meta["creationTimestamp"] == nil {
		meta["creationTimestamp"] = stamp(time.Now())
	}
	obj = maps.Clone(obj)
	obj["metadata"] = meta
	k := &kept{s.rev, obj}
	s.objects[resource][namespace+"/"+name] = k
	return k
}

func (c *call) notFound() error {
	return refuse(http.StatusNotFound, "NotFound", "%s %q not found", c.resource, c.name)
}

func (s *Server) get(c *call) (int, any, error) {
	k, ok := s.objects[c.resource][c.place()]
	if !ok {
		return 0, nil, c.notFound()
	}
	return http.StatusOK, k.obj, nil
}

// create stores the body of a call.
func (s *Server) create(c *call) (*kept, error) {
	meta, _ := c.body["metadata"].(object)
	c.name, _ = meta["name"].(string)
	if c.name == "" {
		return nil, refuse(http.StatusUnprocessableEntity, "Invalid", "metadata.name: Required value")
	}
	if _, taken := s.objects[c.resource][c.place()]; taken {
		return nil, refuse(http.StatusConflict, "AlreadyExists", "%s %q already exists", c.resource, c.name)
	}
	return s.put(c.resource, c.namespace, c.name, c.body), nil
}

// remove deletes the object of a call, when it has the UID that the call expects.
func (s *Server) remove(c *call) (int, any, error) {
	k, ok := s.objects[c.resource][c.place()]
	if !ok {
		return 0, nil, c.notFound()
	}
	meta, _ := k.obj["metadata"].(object)
	conditions, _ := c.body["preconditions"].(object)
	if uid := conditions["uid"]; uid != nil && uid != meta["uid"] {
		return 0, nil, refuse(http.StatusConflict, "Conflict", "Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, meta["uid"])
	}
	delete(s.objects[c.resource], c.place())
	s.rev++
	return http.StatusOK, object{"kind": "Status", "apiVersion": "v1", "metadata": object{}, "status": "Success", "details": object{"name": c.name, "kind": c.resource, "uid": meta["uid"]}}, nil
}

// list returns a page of a collection, of what matches.
func (s *Server) list(c *call, kind string, matches func(object) bool) (int, any, error) {
	names := slices.Sorted(maps.Keys(s.objects[c.resource]))
	limit, from := len(names), c.URL.Query().Get("continue")
	_, _ = fmt.Sscan(c.URL.Query().Get("limit"), &limit) // none stays
	items, next := []object{}, ""
	for _, name := range names {
		k := s.objects[c.resource][name]
		if name <= from || c.namespace != "" && !strings.HasPrefix(name, c.namespace+"/") || !matches(k.obj) {
			continue
		}
		if len(items) == limit && limit > 0 {
			break
		}
		items = append(items, k.obj)
		next = name
	}
	meta := object{"resourceVersion": fmt.Sprint(s.rev)}
	if limit > 0 && len(items) == limit && next != "" && next != names[len(names)-1] {
		meta["continue"] = next
	}
	return http.StatusOK, object{"apiVersion": "v1", "kind": kind, "metadata": meta, "items": items}, nil
}

// Requests lists the calls so far, as method and path.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
