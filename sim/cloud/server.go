package cloudsim

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// Zone is the zone that is simulated.
const Zone = "fr-par-2"

// Options configure a simulated account. SecretKey, ProjectID and their forms are required.
type Options struct {
	SecretKey string // a UUID; never a real one
	ProjectID string // a UUID
	// Clock is the simulator's own time; nil runs as fast as the wall.
	Clock *simhw.Clock
	// Address is the public address of every server; "" is 192.0.2.10.
	Address string
	// Booted is called when a server has started, with what it was given to read at its first boot.
	Booted func(serverID, userData string)
}

// Counters count what was done, over the whole life of the account.
type Counters struct {
	Requests       int `json:"requests"`
	ServersMade    int `json:"servers_made"`
	ServersDeleted int `json:"servers_deleted"`
	MostServers    int `json:"most_servers"` // at one time
}

// Server is one simulated account. All methods are safe for concurrent use.
type Server struct {
	simcontrol.Script
	opt   Options
	clock *simhw.Clock

	mu        sync.Mutex
	servers   []*machine
	volumes   []*volume
	snapshots []*snapshot
	groups    []*group
	addresses []*address
	counts    Counters
	made      map[string]int // servers, by tag
}

// New makes an account without any object.
func New(opt Options) (*Server, error) {
	if len(opt.SecretKey) != 36 || len(opt.ProjectID) != 36 {
		return nil, errors.New("cloudsim needs a secret key and a project id that are UUIDs")
	}
	if opt.Clock == nil {
		opt.Clock = simhw.NewClock(1)
	}
	if opt.Address == "" {
		opt.Address = "192.0.2.10"
	}
	s := &Server{opt: opt, clock: opt.Clock, made: map[string]int{}}
	s.Script = s.script()
	return s, nil
}

// Addresses are host:port of a started account; Admin is "" when not asked for.
type Addresses struct{ API, Admin string }

// URL is the base that clients take.
func (a Addresses) URL() string { return "http://" + a.API }

// Start listens on both addresses (":0" picks a port; an empty admin address leaves scenario
// control out) until stop is called or ctx ends. stop may be called again.
func (s *Server) Start(ctx context.Context, listenAPI, listenAdmin string) (Addresses, func(), error) {
	listener, at, err := simcontrol.Listen(ctx, "cloud", func() {},
		simcontrol.Port{Address: listenAPI, Handler: s.API()}, simcontrol.Port{Address: listenAdmin, Handler: s.AdminAPI()})
	if err != nil {
		return Addresses{}, nil, err
	}
	context.AfterFunc(ctx, listener.Stop)
	return Addresses{API: at[0], Admin: at[1]}, listener.Stop, nil
}

// request is one call of the API.
type request struct {
	*http.Request
	op    string
	body  map[string]json.RawMessage
	raw   []byte
	about []string // the tags of what it is about
}

// text returns a string of the body, "" where there is none.
func (r *request) text(field string) string {
	var v string
	_ = json.Unmarshal(r.body[field], &v) // another type reads as empty and is refused as such
	return v
}

func (r *request) texts(field string) []string {
	out := []string{}
	_ = json.Unmarshal(r.body[field], &out)
	return out
}

// answer is what a call answers. text is for the one that is no JSON.
type answer struct {
	status int
	body   any
	total  int // of a list of the instance API, in a header; -1 for none
}

func ok(status int, body any) answer { return answer{status: status, body: body, total: -1} }

// refusal is an answer of the API that says why not.
type refusal struct {
	status int
	body   object
}

func (e *refusal) Error() string { return fmt.Sprint(e.body["message"]) }

type object = map[string]any

func notFound(resource, id string) error {
	return &refusal{http.StatusNotFound, object{"type": "not_found", "message": "resource is not found", "resource": resource, "resource_id": id}}
}

func badArgument(name, help string) error {
	return &refusal{http.StatusBadRequest, object{
		"type": "invalid_arguments", "message": "invalid argument(s)", "details": []object{{"argument_name": name, "reason": "constraint", "help_message": help}},
	}}
}

func inUse(message string) error { // not recorded
	return &refusal{http.StatusBadRequest, object{
		"type": "precondition_failed", "precondition": "resource_still_in_use", "help_message": message, "message": message,
	}}
}

func transient(id, state string) error {
	return &refusal{http.StatusConflict, object{
		"type": "transient_state", "message": "resource is in a transient state", "resource": "instance_server", "resource_id": id, "current_state": state,
	}}
}

// route is one call that is simulated.
type route struct {
	pattern, op string
	serve       func(s *Server, r *request) (answer, error)
}

// API is Scaleway's API, as far as it is simulated.
func (s *Server) API() http.Handler {
	mux := http.NewServeMux()
	for _, r := range slices.Concat(serverRoutes(), networkRoutes(), blockRoutes(), catalogueRoutes()) {
		mux.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) { s.serve(w, req, r) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		write(w, http.StatusNotImplemented, object{"message": req.Method + " " + req.URL.Path + " is not simulated"})
	})
	return mux
}

func write(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that went away is the client's matter
}

func (s *Server) serve(w http.ResponseWriter, req *http.Request, rt route) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 1<<20))
	if err != nil {
		write(w, http.StatusBadRequest, object{"type": "invalid_request_error", "message": "the body is too long"})
		return
	}
	r := &request{Request: req, op: rt.op, raw: raw}
	if strings.HasPrefix(req.Header.Get("Content-Type"), "application/json") && len(raw) > 0 && json.Unmarshal(raw, &r.body) != nil {
		write(w, http.StatusBadRequest, object{"type": "invalid_request_error", "message": "the body is no JSON object"})
		return
	}
	s.mu.Lock()
	s.counts.Requests++
	s.advance()
	r.about = s.tagsOf(r)
	if rt.op != "metadata" && req.Header.Get("X-Auth-Token") != s.opt.SecretKey {
		s.mu.Unlock()
		write(w, http.StatusUnauthorized, object{"type": "denied_authentication", "method": "api_key", "reason": "not_found", "message": "authentication is denied"})
		return
	}
	if f := s.take(r, simcontrol.Before); f != nil {
		s.mu.Unlock()
		misbehave(w, f)
		return
	}
	a, err := rt.serve(s, r)
	after := s.take(r, simcontrol.After)
	s.mu.Unlock()
	if after != nil {
		misbehave(w, after)
		return
	}
	var no *refusal
	switch {
	case errors.As(err, &no):
		write(w, no.status, no.body)
	case a.total >= 0:
		w.Header().Set("X-Total-Count", strconv.Itoa(a.total))
		write(w, a.status, a.body)
	default:
		write(w, a.status, a.body)
	}
}

// page returns the part of a list that a request asks for, under a name, as the instance API
// answers.
func page[T any](r *request, name string, all []T) answer {
	some := part(r, "per_page", 50, all)
	return answer{status: http.StatusOK, body: object{name: some}, total: len(all)}
}

// countedPage is page as the newer APIs answer: the total is in the body.
func countedPage[T any](r *request, name string, all []T) answer {
	return ok(http.StatusOK, object{name: part(r, "page_size", 20, all), "total_count": len(all)})
}

func part[T any](r *request, sizeName string, size int, all []T) []T {
	if n, err := strconv.Atoi(r.URL.Query().Get(sizeName)); err == nil && n > 0 {
		size = min(n, 100)
	}
	at, err := strconv.Atoi(r.URL.Query().Get("page"))
	if err != nil || at < 1 {
		at = 1
	}
	from := min((at-1)*size, len(all))
	return append([]T{}, all[from:min(from+size, len(all))]...)
}

func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000+00:00") }

// Billed is one thing that is billed now.
type Billed struct {
	Kind string   `json:"kind"`
	ID   string   `json:"id"`
	Tags []string `json:"tags"`
	// ServerID is the server that a volume is attached to.
	ServerID string `json:"server_id,omitempty"`
}

// Billed lists what is billed now. Security groups cost nothing and are listed too: they are left
// behind as easily.
func (s *Server) Billed() []Billed {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	out := []Billed{}
	for _, m := range s.servers {
		out = append(out, Billed{Kind: "server", ID: m.id, Tags: m.tags})
	}
	for _, v := range s.volumes {
		out = append(out, Billed{Kind: "volume", ID: v.id, Tags: v.tags, ServerID: v.server})
	}
	for _, v := range s.snapshots {
		out = append(out, Billed{Kind: "snapshot", ID: v.id, Tags: v.tags})
	}
	for _, a := range s.addresses {
		out = append(out, Billed{Kind: "address", ID: a.id, Tags: a.tags})
	}
	for _, g := range s.groups {
		out = append(out, Billed{Kind: "security_group", ID: g.id, Tags: g.tags})
	}
	return out
}

// Counts returns what was done so far.
func (s *Server) Counts() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// ServersMade returns how many servers with a tag were made, over the whole life of the account.
func (s *Server) ServersMade(tag string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made[tag]
}

// hasTag reports whether tags hold the one that a request filters by; the instance API joins
// several by commas and wants all of them.
func hasTags(tags []string, filter string) bool {
	if filter == "" {
		return true
	}
	for _, t := range strings.Split(filter, ",") {
		if !slices.Contains(tags, t) {
			return false
		}
	}
	return true
}

// ofProject refuses nothing: a list of another project is empty.
func (s *Server) ofProject(r *request, param string) bool {
	asked := r.URL.Query().Get(param)
	return asked == "" || asked == s.opt.ProjectID
}
