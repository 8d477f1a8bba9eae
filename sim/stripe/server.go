package stripesim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// APIVersion is the version of Stripe's API that is simulated.
const APIVersion = "2026-05-27.dahlia"

// releaseTrain is the part of a version within which objects keep their form.
const releaseTrain = ".dahlia"

// Options configure a simulated account. Only Key is required.
type Options struct {
	// Key is the secret key of the account. It must begin with sk_test_ or sk_live_, which says the
	// mode of all objects, and must not be a real key.
	Key string
	// Clock is the simulator's own time; nil takes a clock that runs as fast as the wall.
	Clock *simhw.Clock
	// Seed makes identifiers repeatable; 0 draws one.
	Seed uint64
	// PublicURL is the base of the payment pages; "" takes the address that Start listens on.
	PublicURL string
	// Endpoints receive webhooks from the beginning.
	Endpoints []Endpoint
	// DeliveryLimit bounds one delivery in wall time; 0 is ten seconds.
	DeliveryLimit time.Duration
}

// Server is one simulated account. All methods are safe for concurrent use.
type Server struct {
	simcontrol.Script
	opt   Options
	live  bool
	clock *simhw.Clock
	http  *http.Client
	ctx   context.Context
	close context.CancelFunc

	mu        sync.Mutex
	rng       *rand.Rand
	publicURL string
	sessions  []*session // by creation, as all lists
	intents   []*intent
	charges   []*charge
	refunds   []*refund
	disputes  []*dispute
	movements []*movement
	events    []*event
	endpoints []*endpoint
	keys      map[string]*storedResult
	held      []*delivery // by the fault reorder_events, until the next delivery
	counts    Counters
}

var keyForm = regexp.MustCompile(`^sk_(test|live)_[A-Za-z0-9_]{4,200}$`)

// New makes an account without any object. Close ends its timers and deliveries.
func New(opt Options) (*Server, error) {
	if !keyForm.MatchString(opt.Key) {
		return nil, errors.New("stripesim needs a key that begins with sk_test_ or sk_live_")
	}
	if opt.Clock == nil {
		opt.Clock = simhw.NewClock(1)
	}
	if opt.Seed == 0 {
		opt.Seed = rand.Uint64()
	}
	if opt.DeliveryLimit <= 0 {
		opt.DeliveryLimit = 10 * time.Second
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		opt: opt, live: strings.HasPrefix(opt.Key, "sk_live_"), clock: opt.Clock, ctx: ctx, close: stop,
		rng: rand.New(rand.NewPCG(opt.Seed, opt.Seed^0x737472697065)), publicURL: strings.TrimRight(opt.PublicURL, "/"),
		keys: map[string]*storedResult{}, counts: newCounters(), http: newDeliveryClient(opt.DeliveryLimit),
	}
	s.Script = simcontrol.Script{Lock: &s.mu, Specs: faultTable(), CheckParam: checkFaultParam}
	for _, e := range opt.Endpoints {
		if err := s.AddEndpoint(e); err != nil {
			stop()
			return nil, err
		}
	}
	return s, nil
}

// Close ends every timer and delivery.
func (s *Server) Close() {
	s.close()
	s.http.CloseIdleConnections()
}

// Addresses are host:port of a started account; Admin is "" when not asked for.
type Addresses struct{ API, Admin string }

// URL is the base that clients of Stripe take.
func (a Addresses) URL() string { return "http://" + a.API }

// Start listens on both addresses (":0" picks a port; an empty admin address leaves scenario
// control out) until stop is called or ctx ends. stop waits at most five seconds for open requests,
// ends timers and deliveries, and may be called again.
func (s *Server) Start(ctx context.Context, listenAPI, listenAdmin string) (Addresses, func(), error) {
	listener, at, err := simcontrol.Listen(ctx, "Stripe", s.Close,
		simcontrol.Port{Address: listenAPI, Handler: s.API()}, simcontrol.Port{Address: listenAdmin, Handler: s.AdminAPI()})
	if err != nil {
		return Addresses{}, nil, err
	}
	a := Addresses{API: at[0], Admin: at[1]}
	s.mu.Lock()
	if s.publicURL == "" {
		s.publicURL = a.URL()
	}
	s.mu.Unlock()
	stop := func() {
		s.Close()
		listener.Stop()
	}
	context.AfterFunc(ctx, stop)
	return a, stop, nil
}

// API is Stripe's API and the hosted payment page.
func (s *Server) API() http.Handler {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		mux.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) { s.serve(w, req, r) })
	}
	mux.HandleFunc("GET /c/pay/{id}", s.showPage)
	mux.HandleFunc("POST /c/pay/{id}", s.usePage)
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) { s.serve(w, req, unknownRoute()) })
	return mux
}

// now is the time of the simulator.
func (s *Server) now() time.Time { return s.clock.Now() }

const idLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// newID draws an identifier with Stripe's prefix for its kind.
func (s *Server) newID(prefix string) string {
	b := make([]byte, 24)
	for i := range b {
		b[i] = idLetters[s.rng.IntN(len(idLetters))]
	}
	return prefix + string(b)
}

// mode is test or live, as identifiers of sessions have it.
func (s *Server) mode() string {
	if s.live {
		return "live"
	}
	return "test"
}

// commit runs f under the lock. The events that f emits are delivered when it has ended.
func (s *Server) commit(f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

// noEffect is the error of an act that the present state refuses.
func noEffect(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, simcontrol.ErrNoEffect)...)
}
