package agentapi

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/internal/listener"
	"github.com/slipway-cloud/slipway/internal/nodeca"
)

// Config is what the agent API needs. Store and CA are required; zero values
// take the defaults named here.
type Config struct {
	Store Store
	CA    *nodeca.CA
	// Addr is where to listen, host:port; default 127.0.0.1:0.
	Addr string
	// Hosts are the names and addresses in the server's certificate; default
	// the host of Addr.
	Hosts []string
	// Proxies are the load balancers that forward the connections of many agents.
	Proxies listener.Proxies
	// HeartbeatInterval is sent to agents. With 0 each agent keeps the interval of its own
	// configuration.
	HeartbeatInterval time.Duration
	// FlushInterval and FlushSize say when heartbeats are written: default each
	// second or at 1,000. QueueSize bounds the nodes that wait; default 20,000.
	FlushInterval time.Duration
	FlushSize     int
	QueueSize     int
	// EnrollRate and EnrollBurst bound enrolments an address: default 20 a
	// second after 200. A rack of nodes may share one address.
	EnrollRate  float64
	EnrollBurst int
	// RenewGrace is how long after its end a certificate can still be renewed; default 90 days.
	RenewGrace time.Duration
	MaxBody    int64 // bytes; default 1 MiB
	// RequestTimeout bounds reading a request and writing its answer. For a claim it starts after
	// the wait. Default 30 s.
	RequestTimeout time.Duration
	// Tasks and TaskKeys provide the tasks of agents and the keys that sign them. Set both or
	// neither; without them the task routes answer 404.
	Tasks    TaskStore
	TaskKeys TaskSigner
	// Instances stores what the workers of instances say; without it their routes answer 404.
	Instances InstanceStore
	// TaskLease is how long a delivery is held without a renewal; default 60 s.
	TaskLease time.Duration
	// TaskWaiters bounds the claims that wait at once; default 20,000.
	TaskWaiters int
	Log         *slog.Logger
	Metrics     prometheus.Registerer // nil: counted, not exposed
	Now         func() time.Time
}

func (c Config) withDefaults() Config {
	setDefault(&c.Addr, "127.0.0.1:0")
	setDefault(&c.FlushInterval, time.Second)
	setDefault(&c.FlushSize, 1000)
	setDefault(&c.QueueSize, 20000)
	setDefault(&c.EnrollRate, 20)
	setDefault(&c.EnrollBurst, 200)
	setDefault(&c.RenewGrace, 90*24*time.Hour)
	setDefault(&c.MaxBody, 1<<20)
	setDefault(&c.RequestTimeout, 30*time.Second)
	setDefault(&c.TaskLease, time.Minute)
	setDefault(&c.TaskWaiters, 20000)
	setDefault(&c.Log, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if c.Now == nil {
		c.Now = time.Now
	}
	if host, _, err := net.SplitHostPort(c.Addr); err == nil && len(c.Hosts) == 0 && host != "" {
		c.Hosts = []string{host}
	}
	return c
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// The limit of recorded refusals for each address: a rate for each second, and a burst.
const (
	reportRate  = 1
	reportBurst = 20
)

// The limit of heartbeats of workers of instances for each key, and for all keys of an address
// whose last heartbeat was not accepted. A worker sends one every ten seconds.
const (
	workerRate  = 2
	workerBurst = 50
)

// certificateRates bound the requests of one client certificate to each route: a rate for each
// second, and a burst. They are ten times what an agent sends, and keep a root tenant, who has the
// agent's key, from costing the control plane more than a few agents do. A certificate has its own
// bucket: an old one in the hands of a former tenant cannot use up the bucket of the node's agent.
var certificateRates = map[string]struct {
	rate  float64
	burst int
}{
	"renew": {0.1, 20}, "heartbeat": {2, 100}, "task_claim": {5, 200}, "task_renew": {5, 200}, "task_result": {5, 200},
}

// addressConns is how many connections one address may have open: the agents behind one NAT have
// one address.
const addressConns = 8192

// placesOfCertificate is how many requests of one certificate are served at once. An agent sends
// three: a claim that waits, a heartbeat, and what is due.
const placesOfCertificate = 8

// certificateLimit returns what admits the requests to a route: it takes a token of the rate and a
// place of the client certificate, which leave gives back. A request without one passes: the route
// itself refuses it, or has a limit for each address.
func (s *Server) certificateLimit(route string) func(*http.Request) (leave func(), err error) {
	bound, limited := certificateRates[route]
	l := ratelimit.New(bound.rate, bound.burst, s.cfg.Now)
	noWait, cancel := context.WithCancel(context.Background())
	cancel()
	return func(r *http.Request) (func(), error) {
		if !limited || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return func() {}, nil
		}
		key := sha256.Sum256(r.TLS.PeerCertificates[0].RawSubjectPublicKeyInfo)
		ok, wait := l.AllowName(string(key[:]))
		if !ok {
			return nil, tooManyOf(wait)
		}
		leave, ok := s.places.Enter(noWait, string(key[:]))
		if !ok {
			return nil, tooManyOf(time.Second)
		}
		return leave, nil
	}
}

func tooManyOf(wait time.Duration) *refusal {
	return refuse(http.StatusTooManyRequests, protocol.ProblemTooMany, "rate_limited", "Too many requests with this certificate; wait.").after(wait)
}

// Server is the agent API. Make it with New.
type Server struct {
	cfg        Config
	err        error // New finds it and Start returns it
	metrics    *metrics
	heartbeats *batcher
	clock      dbClock
	identities identityBatcher
	limit      *ratelimit.Limiter
	reports    *ratelimit.Limiter // of refused certificates
	workers    *ratelimit.Limiter // of heartbeats of instances
	workerKeys acceptedKeys
	places     *ratelimit.Places
	tasks      *taskWaiters // nil without tasks
	http       *http.Server

	mu   sync.Mutex
	addr string
	stop context.CancelFunc
	done sync.WaitGroup
}

// New builds a server. Start returns the errors of its configuration.
func New(c Config) *Server {
	c = c.withDefaults()
	s := &Server{cfg: c, clock: dbClock{source: c.Store}, identities: identityBatcher{store: c.Store}, places: ratelimit.NewPlaces(placesOfCertificate)}
	if c.Store == nil || c.CA == nil {
		s.err = errors.New("the agent API needs a store and the node CA")
	}
	var err error
	if s.metrics, err = newMetrics(c.Metrics); err != nil {
		s.err = errors.Join(s.err, err)
		s.metrics, _ = newMetrics(nil)
	}
	if (c.Tasks == nil) != (c.TaskKeys == nil) {
		s.err = errors.Join(s.err, errors.New("the agent API needs both a task store and the keys that sign tasks, or neither"))
	} else if c.Tasks != nil {
		s.tasks = newTaskWaiters(c, s.metrics)
	}
	s.heartbeats = newBatcher(c, s.metrics)
	s.limit = ratelimit.New(c.EnrollRate, c.EnrollBurst, c.Now)
	s.reports = ratelimit.New(reportRate, reportBurst, c.Now)
	s.workers = ratelimit.New(workerRate, workerBurst, c.Now)
	return s
}

// Handler returns the API without its TLS listener. The caller must set r.TLS as a TLS 1.3 server
// does that requests client certificates. The handler verifies them itself.
func (s *Server) Handler() http.Handler { return s.verified(s.Routes()) }

// Routes returns the routes without the check of the client certificate.
func (s *Server) Routes() chi.Router {
	r := chi.NewRouter()
	r.Post(protocol.PathEnroll, s.serve("enroll", s.enroll))
	r.Post(protocol.PathRenew, s.serve("renew", s.renew))
	r.Post(protocol.PathHeartbeat, s.serve("heartbeat", s.receiveHeartbeat))
	if s.tasks != nil {
		r.Post(protocol.PathTaskClaim, s.serveLong(s.serve("task_claim", s.claimTask)))
		r.Post(protocol.PathTaskRenew, s.serve("task_renew", s.renewTask))
		r.Post(protocol.PathTaskResult, s.serve("task_result", s.finishTask))
	}
	if s.cfg.Instances != nil {
		r.Post(protocol.PathInstanceEnroll, s.serve("instance_enroll", s.enrollWorker))
		r.Post(protocol.PathInstanceHeartbeat, s.serve("instance_heartbeat", s.receiveWorkerHeartbeat))
	}
	r.NotFound(s.serve("other", func(*http.Request) (any, error) {
		return nil, refuse(http.StatusNotFound, protocol.ProblemNotFound, "not_found", "The agent API has no such path.")
	}))
	r.MethodNotAllowed(s.serve("other", func(*http.Request) (any, error) {
		return nil, refuse(http.StatusMethodNotAllowed, protocol.ProblemMethod, "not_found", "Use POST.")
	}))
	return r
}

// Start listens and serves until Shutdown. It returns once the port is open.
func (s *Server) Start(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	tc := &tls.Config{
		MinVersion: tls.VersionTLS13,
		// Enrolment comes without a certificate; every other call checks for one. An expired
		// certificate must get as far as the renewal, so VerifyConnection verifies what crypto/tls
		// would refuse.
		ClientAuth:             tls.RequestClientCert,
		VerifyConnection:       s.verifyConnection,
		ClientCAs:              s.cfg.CA.Pool(),
		GetCertificate:         s.cfg.CA.ServerCertificates(s.cfg.Hosts),
		SessionTicketsDisabled: true,
		NextProtos:             []string{"h2", "http/1.1"},
		Time:                   s.cfg.Now,
	}
	if _, err := tc.GetCertificate(nil); err != nil {
		return err
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.cfg.Addr)
	if err != nil {
		return fmt.Errorf("open the agent API's port: %w", err)
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.mu.Lock()
	s.addr, s.stop = ln.Addr().String(), stop
	bounds := listener.Bounds{
		HeaderBytes: 16 << 10, BodyBytes: s.cfg.MaxBody, BodyTime: s.cfg.RequestTimeout, WriteTime: s.cfg.RequestTimeout, AddressConns: addressConns,
	}
	s.http = bounds.Server(s.Routes()) // what forwards TLS writes no header: X-Forwarded-For is the agent's own word
	s.http.TLSConfig = tc
	bounds.Proxies = s.cfg.Proxies
	ln = bounds.Bound(ln, s.cfg.Log)
	s.http.ErrorLog = slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug)
	s.mu.Unlock()
	s.done.Go(func() { s.heartbeats.run(run) })
	if s.tasks != nil {
		s.done.Go(func() { s.tasks.run(run) })
	}
	s.done.Go(func() {
		if err := s.http.ServeTLS(ln, "", ""); !errors.Is(err, http.ErrServerClosed) {
			s.cfg.Log.Error("the agent API stopped", "error", err)
		}
	})
	return nil
}

func (s *Server) verifyConnection(c tls.ConnectionState) error {
	if len(c.PeerCertificates) == 0 {
		return nil
	}
	return s.cfg.CA.VerifyNode(c.PeerCertificates[0], s.cfg.Now())
}

// Addr is host:port once started.
func (s *Server) Addr() string { s.mu.Lock(); defer s.mu.Unlock(); return s.addr }

// URL is where agents reach the server once started.
func (s *Server) URL() string { return "https://" + s.Addr() }

// Shutdown waits for the requests in flight and writes the queued heartbeats, within ctx. It
// returns nil when the server never started.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	srv, stop := s.http, s.stop
	s.mu.Unlock()
	if srv == nil {
		return nil
	}
	if s.tasks != nil {
		s.tasks.close() // claims that wait are answered now
	}
	err := srv.Shutdown(ctx)
	if err != nil {
		_ = srv.Close() // ctx has ended: close the connections that are still open
	}
	stop()
	s.done.Wait()
	return errors.Join(err, s.heartbeats.flush(ctx))
}
