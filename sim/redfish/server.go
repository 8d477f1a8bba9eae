package redfishsim

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// Options describe one simulated BMC. Machine is needed, all else may be zero.
type Options struct {
	Machine     *simhw.Machine
	Personality string             // one of Names; "" takes the machine's vendor
	Adjust      func(*Personality) // changes single rules of the personality
	TLS         bool               // serve https with a certificate of its own
	Seed        uint64             // makes tokens and certificate serials repeatable; 0 takes random ones
}

// Server is one BMC. All methods are safe for concurrent use.
type Server struct {
	m     *simhw.Machine
	clock *simhw.Clock
	p     Personality
	rand  *source
	certs *certificates // nil without TLS
	cards []string      // chassis of DPUs in the host
	nodes map[string]*node
	ctx   context.Context
	end   context.CancelFunc

	mu       sync.Mutex
	ledWord  string // Lit or Blinking, shown while the light is on
	assetTag string
	cycle    bool      // switch on again once off
	offAt    time.Time // virtual; zero before the first power-off
	order    []string  // boot order as set through a settings object
	// directory is the LDAP server whose accounts may log in, "" for none.
	directory string
	hostOff   bool // the host interface is switched off
	flashed   map[string]string
	faults    []*Fault
	counts    Counters
	sessions  map[string]*session // by token
	nextID    int
	accounts  []*account
	policy    lockout
	media     map[string]*mediaState
	logs      []logEntry
	logSeq    int
	tasks     []*task
	health    map[string]string         // by path
	fields    map[string]map[string]any // by path: SetField
	modes     map[string]string         // of DPUs in the host
	conns     map[net.Conn]http.ConnState
}

// New builds a BMC that does not listen yet; ServeHTTP answers at once. A machine without a BMC
// user gets "root" with a password drawn from Seed.
func New(o Options) (*Server, error) {
	if o.Machine == nil {
		return nil, errors.New("bmcsim: Options.Machine is needed")
	}
	spec := o.Machine.Spec()
	name := o.Personality
	if name == "" {
		name = spec.Vendor
	}
	p, err := PersonalityOf(name)
	if err != nil {
		return nil, err
	}
	if o.Adjust != nil {
		o.Adjust(&p)
	}
	ctx, end := context.WithCancel(context.Background())
	s := &Server{
		m: o.Machine, clock: o.Machine.Clock(), p: p, rand: newSource(o.Seed), ctx: ctx, end: end,
		ledWord: "Lit", sessions: map[string]*session{}, media: map[string]*mediaState{},
		health: map[string]string{}, fields: map[string]map[string]any{}, modes: map[string]string{}, conns: map[net.Conn]http.ConnState{},
		policy: lockout{threshold: p.LockoutThreshold, duration: p.LockoutDuration},
	}
	s.counts.Resets, s.counts.Faults = map[string]int{}, map[string]int{}
	if spec.BMCUser == "" {
		o.Machine.SetBMC(spec.BMCAddress, "root", "Sim-"+s.rand.hex(10))
	}
	if o.TLS {
		if s.certs, err = newCertificates(s.rand); err != nil {
			end()
			return nil, fmt.Errorf("bmcsim: make a certificate: %w", err)
		}
		s.certs.rotateNow = func() bool { return s.take(FaultCertificateChange, nil) != nil }
	}
	s.accounts = s.firstAccounts()
	s.nodes = s.buildNodes()
	s.log("OK", "The BMC has started.")
	o.Machine.Subscribe(s.onEvent)
	return s, nil
}

// Personality returns the rules in force.
func (s *Server) Personality() Personality { return s.p }

// Start listens on addr (for example 127.0.0.1:0), records the address on the
// machine (SetBMC) and serves until ctx ends or stop is called. The URL has no
// path. stop may be called more than once and waits for the listener to close.
func (s *Server) Start(ctx context.Context, addr string) (url string, stop func(), err error) {
	scheme := "http"
	var conf *tls.Config
	if s.certs != nil {
		scheme = "https"
		conf = &tls.Config{GetCertificate: s.certs.get, MinVersion: tls.VersionTLS12}
	}
	host, closeListener, err := s.listen(ctx, addr, s, conf)
	if err != nil {
		return "", nil, err
	}
	url = scheme + "://" + host
	spec := s.m.Spec()
	s.m.SetBMC(url, spec.BMCUser, spec.BMCPassword)
	return url, func() {
		s.end()
		closeListener()
	}, nil
}

// StartAdmin serves AdminHandler over plain HTTP on a port of its own.
func (s *Server) StartAdmin(ctx context.Context, addr string) (url string, stop func(), err error) {
	host, stop, err := s.listen(ctx, addr, s.AdminHandler(), nil)
	if err != nil {
		return "", nil, err
	}
	return "http://" + host, stop, nil
}

func (s *Server) listen(ctx context.Context, addr string, h http.Handler, conf *tls.Config) (string, func(), error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return "", nil, fmt.Errorf("bmcsim: listen on %s: %w", addr, err)
	}
	host := ln.Addr().String()
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 60 * time.Second, IdleTimeout: 2 * time.Minute,
		ConnState:   s.onConn,
		ErrorLog:    quiet(), // handshakes that a client aborts on purpose are no news
		BaseContext: func(net.Listener) context.Context { return s.ctx },
		// BMCs speak HTTP/1.1; HTTP/2 could not drop one connection on demand.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	if conf != nil {
		ln = tls.NewListener(ln, conf)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln)
	}()
	unhook := context.AfterFunc(ctx, func() { _ = srv.Close() })
	var once sync.Once
	stop := func() {
		once.Do(func() {
			unhook()
			_ = srv.Close()
			<-done
		})
	}
	return host, stop, nil
}

func (s *Server) onConn(c net.Conn, st http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st == http.StateClosed || st == http.StateHijacked {
		delete(s.conns, c)
		return
	}
	s.conns[c] = st
}

// dropIdle closes every connection that carries no request, so that the next
// request makes a new TLS handshake.
func (s *Server) dropIdle() {
	s.mu.Lock()
	var idle []net.Conn
	for c, st := range s.conns {
		if st == http.StateIdle {
			idle = append(idle, c)
		}
	}
	s.mu.Unlock()
	for _, c := range idle {
		_ = c.Close()
	}
}

// CertificatePEM is the certificate now served, nil without TLS.
func (s *Server) CertificatePEM() []byte {
	if s.certs == nil {
		return nil
	}
	return s.certs.pem()
}

// now is the virtual time.
func (s *Server) now() time.Time { return s.clock.Now() }

// down reports whether the BMC does not answer at all.
func (s *Server) down() bool {
	return errors.Is(s.m.CheckBMC("", ""), simhw.ErrBMCUnreachable)
}

// resetBMC loses all sessions and makes the BMC unreachable for a virtual
// duration.
func (s *Server) resetBMC(d time.Duration) {
	s.mu.Lock()
	clear(s.sessions)
	s.counts.BMCResets++
	s.mu.Unlock()
	s.m.SetBMCDown(true)
	s.dropIdle()
	s.clock.AfterFunc(s.ctx, d, func() {
		s.m.SetBMCDown(false)
		s.log("OK", "The BMC has started.")
	})
}
