// Package boot answers firmware and installers: the iPXE script of a machine,
// by its MAC address, and what its installer asks for, by the token that the
// script handed out. These are plain HTTP routes: firmware can do no
// more. Only a token proves the identity of a machine, so all input is bounded, and an
// unknown machine causes at most a row in `discovered`.
package boot

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/pxetemplate"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Config is what a Server is made of.
type Config struct {
	Store *db.Store
	Log   *slog.Logger // nil drops
	// BaseURL is how the boot network reaches this server; "" takes the address
	// that each request was sent to.
	BaseURL string
	Limits  Limits           // zero fields have defaults
	Now     func() time.Time // nil: the clock; for the limits
	// Own returns the control plane's own services, from which no image is fetched; nil: none.
	Own func(context.Context) []netip.AddrPort
	// AgentURL and AgentCAPEM are what the agents of nodes are told; without a URL
	// no agent is handed out.
	AgentURL   string
	AgentCAPEM string
}

// Server serves /boot.
type Server struct {
	cfg       Config
	admission *admissionControl
	images    chan struct{} // places for transfers
	// The places for those of one address, of one node, and of one node by one address.
	ofSource, ofNode, ofBoth *ratelimit.Places
}

// New makes a server.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Own == nil {
		cfg.Own = func(context.Context) []netip.AddrPort { return nil }
	}
	cfg.BaseURL = strings.TrimRight(cfg.BaseURL, "/")
	cfg.Limits = cfg.Limits.withDefaults()
	return &Server{
		cfg: cfg, admission: newAdmissionControl(cfg.Limits, cfg.Now), images: make(chan struct{}, maxTransfers), ofSource: ratelimit.NewPlaces(maxOfSource),
		ofNode: ratelimit.NewPlaces(cfg.Limits.TransfersOfNode * sourcesOfNode), ofBoth: ratelimit.NewPlaces(cfg.Limits.TransfersOfNode),
	}
}

// Prefix is where the routes stand.
const Prefix = "/boot"

// IsRoute reports whether a path is one of the boot network: a boot route or that of reports.
func IsRoute(path string) bool { return strings.HasPrefix(path, Prefix+"/") || path == reportPath }

// Register adds the routes of firmware and installers to the API, and the operation by which
// machines report.
func (s *Server) Register(a *op.API) {
	a.RedactPath(loggedPath)
	a.Unbounded(isTransfer)
	s.routes(a.Router())
	s.registerReport(a)
}

func (s *Server) routes(r chi.Router) {
	r.Get(Prefix+"/start.ipxe", s.start)
	r.Get(Prefix+"/{mac}.ipxe", s.script)
	r.Get(Prefix+"/{token}/user-data", s.userData)
	r.Get(Prefix+"/{token}/meta-data", s.metaData)
	r.Get(Prefix+"/{token}/vendor-data", s.vendorData)
	r.Get(Prefix+"/{token}/"+pxetemplate.AgentPath, s.installAgent)
	r.Get(Prefix+"/{token}/image/{number}", s.image)
	r.Head(Prefix+"/{token}/image/{number}", s.image)
}

// tokenPrefix begins every boot token.
const tokenPrefix = "pxe_"

var tokenPattern = regexp.MustCompile(`^pxe_[A-Za-z0-9_-]{43}$`)

func newToken() (string, error) {
	text, err := randomText()
	if err != nil {
		return "", fmt.Errorf("make a boot token: %w", err)
	}
	return tokenPrefix + text, nil
}

// randomText is 256 random bits in URL-safe text.
func randomText() (string, error) {
	b := make([]byte, 32)
	_, err := rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b), err
}

// tokenHash is what is stored of a token; false for a text that is none.
func tokenHash(token string) ([]byte, bool) {
	h := sha256.Sum256([]byte(token))
	return h[:], tokenPattern.MatchString(token)
}

// errManaged: the address belongs to a node of another lifecycle.
var errManaged = errors.New("the MAC address belongs to a node that is not installed over PXE by Slipway")

// seen notes that a machine showed itself and returns its node, which is made, in `discovered`,
// when no node has the address. The facts that a machine without a token reports are stored while
// it awaits approval; afterwards nothing is written. *busyError, errManaged and db.ErrDiscoveryFull
// say why nothing was made.
func (s *Server) seen(ctx context.Context, d db.Discovery) (db.Node, error) {
	n, err := s.cfg.Store.NodeOfMAC(ctx, d.MAC)
	if err == nil && n.Status != lifecycle.NodeDiscovered {
		return n, nil
	}
	if err == nil {
		return n, s.cfg.Store.SeeDiscovered(ctx, n.ID, d.Source, d.Facts)
	}
	if !errors.Is(err, db.ErrNotFound) {
		return db.Node{}, err
	}
	if err := s.admission.discover(d.Source); err != nil {
		return db.Node{}, err
	}
	_, err = s.cfg.Store.OtherNodeOfMAC(ctx, d.MAC)
	if err == nil {
		return db.Node{}, errManaged
	}
	if !errors.Is(err, db.ErrNotFound) {
		return db.Node{}, err
	}
	var created bool
	err = s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		n, created, err = tx.Discover(ctx, d)
		return err
	})
	if err == nil && created {
		s.cfg.Log.InfoContext(ctx, "node discovered", "node", n.ID, "mac", d.MAC, "source", d.Source)
	}
	return n, err
}

// booted is seen for a machine whose firmware asks for its script. Where its node
// is to boot from the network, that it did is noted; what it says of itself counts
// while it migrates, as evidence of which machine stands there.
func (s *Server) booted(ctx context.Context, d db.Discovery) (db.Node, error) {
	n, err := s.seen(ctx, d)
	if err != nil {
		return n, err
	}
	switch n.Status {
	case lifecycle.NodeMigrating:
		return n, s.cfg.Store.SeePXEFirmware(ctx, n.ID, d.Source, d.Facts)
	case lifecycle.NodePending, lifecycle.NodeInstalling, lifecycle.NodeInstallFailed, lifecycle.NodeDeprovisioning:
		return n, s.cfg.Store.SeePXENode(ctx, n.ID, d.Source, db.PXEFacts{})
	default:
		return n, nil
	}
}

var hostPattern = regexp.MustCompile(`^[A-Za-z0-9.-]+(:[0-9]{1,5})?$|^\[[0-9A-Fa-f:]+\](:[0-9]{1,5})?$`)

// base is the URL under which the machine reaches this server. It is told its
// own Host back, which can mislead nobody else: answers are not stored.
func (s *Server) base(r *http.Request) (string, bool) {
	if s.cfg.BaseURL != "" {
		return s.cfg.BaseURL, true
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return scheme + r.Host, hostPattern.MatchString(r.Host) && len(r.Host) < 256
}

// enter admits a request, or answers it.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) (leave func(), ok bool) {
	source := ratelimit.RemoteAddress(r)
	err := s.admission.paced(source)
	if err == nil {
		leave, err = s.admission.place(r.Context(), source)
	}
	if err != nil {
		s.refuse(w, r, err)
		return nil, false
	}
	return leave, true
}

// atPlace makes a text at a place, or answers why there is none. The text is sent without the
// place: a machine that reads slowly keeps nobody waiting.
func (s *Server) atPlace(w http.ResponseWriter, r *http.Request, do func() (string, error)) (text string, ok bool) {
	leave, ok := s.enter(w, r)
	if !ok {
		return "", false
	}
	text, err := func() (string, error) {
		defer leave()
		return do()
	}()
	if err != nil {
		s.refuse(w, r, err)
	}
	return text, err == nil
}

// answer sends a text that is made at a place.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, do func() (string, error)) {
	if text, ok := s.atPlace(w, r, do); ok {
		write(w, text)
	}
}

// refuse answers a failure in plain text; firmware shows the status.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var busy *busyError
	var early *db.ConflictError
	switch {
	case errors.As(err, &busy):
		w.Header().Set("Retry-After", strconv.Itoa(busy.seconds()))
		http.Error(w, busy.Error(), http.StatusTooManyRequests)
	case errors.As(err, &early):
		http.Error(w, early.Message, http.StatusConflict)
	case errors.Is(err, db.ErrNotFound):
		http.Error(w, "The token is unknown, expired or of an attempt that is over; boot the machine again to get a new one.", http.StatusNotFound)
	case errors.Is(err, errEnrolled):
		http.Error(w, "The token is unknown, expired or of an attempt that is over, or the node's agent has enrolled since.", http.StatusNotFound)
	case errors.Is(err, errNoAgent):
		http.Error(w, "The install workflow of this node has no agent block; an admin adds it.", http.StatusNotFound)
	case errors.Is(err, errNoImage):
		http.Error(w, "This install workflow has no such image that is checked.", http.StatusNotFound)
	case errors.Is(err, errNoMAC):
		http.Error(w, "The address must be an Ethernet MAC such as 52-54-00-12-34-56.", http.StatusBadRequest)
	case errors.Is(err, errNoHost):
		http.Error(w, "The Host header must be a host name or address with an optional port.", http.StatusBadRequest)
	default:
		if r.Context().Err() == nil {
			s.cfg.Log.ErrorContext(r.Context(), "boot request failed", "route", route(r), "error", err)
		}
		if p := problem.From(err); p.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
			http.Error(w, "Slipway cannot answer now; ask again.", http.StatusServiceUnavailable)
			return
		}
		http.Error(w, "Something went wrong inside Slipway; the log of the server says what.", http.StatusInternalServerError)
	}
}

var (
	errNoMAC  = errors.New("no MAC address")
	errNoHost = errors.New("no usable Host")
)

var tokenInPath = regexp.MustCompile(`^/boot/pxe_[^/]*`)

// loggedPath is a path without the token that it may hold.
func loggedPath(path string) string {
	return tokenInPath.ReplaceAllLiteralString(path, Prefix+"/"+tokenPrefix+"...")
}

// route is the pattern of a request: the path itself may hold a token.
func route(r *http.Request) string {
	if c := chi.RouteContext(r.Context()); c != nil {
		return c.RoutePattern()
	}
	return Prefix
}
