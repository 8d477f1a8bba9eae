// Package session signs browsers in: with an API token that is exchanged once for a cookie, or at
// an OpenID Connect provider. A session is a row of the database; the browser holds a random text
// of which only the hash is stored, and which changes with each sign-in and each change of roles. A
// session ends when nobody uses it, after its absolute time, at sign-out, and with its token.
package session

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/db"
	portaldb "github.com/slipway-cloud/slipway/db/portal"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Config is how browsers sign in.
type Config struct {
	// PublicURL is where browsers reach the server.
	PublicURL string
	// Idle is how long a session lasts that nobody uses, and Max how long it lasts at most;
	// defaults 30 minutes and 12 hours.
	Idle, Max time.Duration
	// OIDC is the provider; one without a ClientID lets nobody sign in.
	OIDC OIDC
	// TemporalUI is the address of the Temporal Web UI, for links.
	TemporalUI string
	// Stylesheet is the path of the portal's styles, for the page of a refused sign-in.
	Stylesheet string
}

const (
	defaultIdle = 30 * time.Minute
	defaultMax  = 12 * time.Hour
)

// How often one address may be refused, and how many refusals are audited: the audit log is never
// pruned, so a flood of refusals must not fill it. Refusals beyond are only counted.
const (
	refusedRate, refusedBurst = 0.5, 10
	auditRate, auditBurst     = 1.0 / 60, 30
	beginRate, beginBurst     = 1, 30
	// A good sign-in or second sign-in writes to the audit log too. A sign-out is never refused:
	// there are no more of them than sign-ins.
	signInRate, signInBurst = 1.0 / 10, 20
)

// Manager begins, finds and ends sessions.
type Manager struct {
	cfg      Config
	api      *op.API
	store    *db.Store
	log      *slog.Logger
	provider *provider // nil: no provider
	refused  *ratelimit.Limiter
	audited  *ratelimit.Limiter
	begun    *ratelimit.Limiter
	signedIn *ratelimit.Limiter
}

var _ op.Sessions = (*Manager)(nil)

// New makes a manager that stores sessions in the API's database.
func New(api *op.API, cfg Config) *Manager {
	if cfg.Idle <= 0 {
		cfg.Idle = defaultIdle
	}
	if cfg.Max <= 0 {
		cfg.Max = defaultMax
	}
	m := &Manager{
		cfg: cfg, api: api, store: api.Store(), log: api.Log(),
		refused: ratelimit.New(refusedRate, refusedBurst, time.Now),
		audited: ratelimit.New(auditRate, auditBurst, time.Now),
		begun:   ratelimit.New(beginRate, beginBurst, time.Now),

		signedIn: ratelimit.New(signInRate, signInBurst, time.Now),
	}
	if cfg.OIDC.ClientID != "" {
		m.provider = newProvider(api, cfg.OIDC, cfg.PublicURL)
	}
	return m
}

// Session returns the live session of the request's cookie, or nil. A session whose roles have
// changed gets a new cookie.
func (m *Manager) Session(w http.ResponseWriter, r *http.Request) (*op.Session, error) {
	live, err := m.find(w, r)
	if err != nil || live == nil {
		return nil, err
	}
	s := live.PortalSession
	return &op.Session{ID: s.ID, SteppedUp: live.SteppedUp, Principal: principal(s.Method, s.Name, live.RolesNow, op.Identity{Subject: s.Principal, Email: s.Email, Groups: s.Groups})}, nil
}

// principal is who a session speaks for. Email and groups are those of the last sign-in at the
// provider.
func principal(method, name string, roles []string, as op.Identity) op.Principal {
	who := op.Principal{ID: as.Subject, Name: name, Roles: roles}
	if method == portaldb.MethodOIDC {
		who.Identity = as
		who.Identity.Kept = true
	}
	return who
}

// Principal returns who a live session speaks for now.
func (m *Manager) Principal(ctx context.Context, id string) (op.Principal, error) {
	s, err := portaldb.FindByID(ctx, m.store, id)
	if errors.Is(err, db.ErrNotFound) {
		return op.Principal{}, signedOut()
	}
	return principal(s.Method, s.Name, s.RolesNow, op.Identity{Subject: s.Principal, Email: s.Email, Groups: s.Groups}), err
}

func signedOut() *problem.Problem {
	return problem.New(problem.Unauthenticated, "nobody is signed in here, or the session has ended; sign in at /portal/")
}

// find returns the live session of the request's cookie, or nil, and notes that it is used.
func (m *Manager) find(w http.ResponseWriter, r *http.Request) (*portaldb.Live, error) {
	text := cookieText(r, m.sessionName(r))
	if text == "" {
		return nil, nil
	}
	ctx := r.Context()
	live, err := portaldb.Find(ctx, m.store, hashOf(text))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if live.IsStale {
		if err := portaldb.Touch(ctx, m.store, live.PortalSession.ID, m.cfg.Idle); err != nil {
			return nil, err
		}
	}
	if !live.IsPrevious && !slices.Equal(live.RolesNow, live.PortalSession.Roles) {
		if err := m.rotate(w, r, live); err != nil {
			return nil, err
		}
	}
	return &live, nil
}

// rotate gives a session a new cookie, unless another request just did.
func (m *Manager) rotate(w http.ResponseWriter, r *http.Request, live portaldb.Live) error {
	text, err := newCookieText()
	if err != nil {
		return err
	}
	rotated, err := portaldb.Rotate(r.Context(), m.store, live, hashOf(text))
	if err == nil && rotated {
		m.setSession(w, r, text)
	}
	return err
}

// begin starts a session with a cookie of its own, so that nobody can plant one that is signed in
// later, and sets it. It ends the session that the request's cookie names, and the one that the
// sign-in replaces: the provider's answer comes from another site, without the strict cookie.
func (m *Manager) begin(w http.ResponseWriter, r *http.Request, n portaldb.New, replaces string) (*portaldb.Live, error) {
	if err := m.limitSignIns(n.Principal); err != nil {
		return nil, err
	}
	text, err := newCookieText()
	if err != nil {
		return nil, err
	}
	n.Hash, n.Idle, n.Max, n.UserAgent = hashOf(text), m.cfg.Idle, m.cfg.Max, r.UserAgent()
	old := cookieText(r, m.sessionName(r))
	err = m.store.Tx(r.Context(), func(tx *db.Tx) error {
		if old != "" {
			if live, err := portaldb.Find(r.Context(), tx, hashOf(old)); err == nil {
				if _, err := portaldb.End(r.Context(), tx, live.PortalSession.ID); err != nil {
					return err
				}
			}
		}
		if replaces != "" {
			if _, err := portaldb.End(r.Context(), tx, replaces); err != nil {
				return err
			}
		}
		id, err := portaldb.Begin(r.Context(), tx, n)
		if err != nil {
			return err
		}
		return audit(r.Context(), tx, n.Principal, id, "sign_in", map[string]any{"method": n.Method, "roles": n.Roles, "address": ratelimit.RemoteAddress(r)})
	})
	if err != nil {
		return nil, err
	}
	return m.give(w, r, text)
}

// limitSignIns refuses a principal that signs in too often: the audit log is never pruned.
func (m *Manager) limitSignIns(principal string) error {
	if ok, wait := m.signedIn.AllowName(principal); !ok {
		return problem.RateLimited("you have signed in or confirmed it too often: 20 times at once, and then once in 10 seconds, are allowed to each user and each token", wait)
	}
	return nil
}

// give sets the cookie of a session that was just written, and returns the session.
func (m *Manager) give(w http.ResponseWriter, r *http.Request, text string) (*portaldb.Live, error) {
	m.setSession(w, r, text)
	live, err := portaldb.Find(r.Context(), m.store, hashOf(text))
	return &live, err
}

// stepUp records a second sign-in of a session, and sets its new cookie.
func (m *Manager) stepUp(w http.ResponseWriter, r *http.Request, id string, by portaldb.New) (*portaldb.Live, error) {
	if err := m.limitSignIns(by.Principal); err != nil {
		return nil, err
	}
	text, err := newCookieText()
	if err != nil {
		return nil, err
	}
	by.Hash = hashOf(text)
	err = m.store.Tx(r.Context(), func(tx *db.Tx) error {
		if err := portaldb.StepUp(r.Context(), tx, id, by); err != nil {
			return err
		}
		return audit(r.Context(), tx, by.Principal, id, "step_up", map[string]any{"method": by.Method, "address": ratelimit.RemoteAddress(r)})
	})
	if errors.Is(err, db.ErrNotFound) {
		return nil, problem.New(problem.Forbidden, "the second sign-in is of somebody else, or the session has ended; sign in again as who began the session")
	}
	if err != nil {
		return nil, err
	}
	return m.give(w, r, text)
}

// end ends a session at its owner's wish.
func (m *Manager) end(r *http.Request, s portaldb.Session) error {
	return m.store.Tx(r.Context(), func(tx *db.Tx) error {
		ended, err := portaldb.End(r.Context(), tx, s.ID)
		if err != nil || !ended {
			return err
		}
		return audit(r.Context(), tx, s.Principal, s.ID, "sign_out", nil)
	})
}

// EndAll ends the sessions of all browsers and returns how many. A restored backup has sessions
// that were ended after it was made.
func EndAll(ctx context.Context, store *db.Store) (int, error) {
	ended := 0
	err := store.Tx(ctx, func(tx *db.Tx) error {
		rows, err := portaldb.EndAll(ctx, tx)
		if err != nil {
			return err
		}
		for _, s := range rows {
			if err := audit(ctx, tx, s.Principal, s.ID, "sign_out", map[string]any{"by": "end-all"}); err != nil {
				return err
			}
		}
		ended = len(rows)
		return nil
	})
	return ended, err
}

// The kind of what the audit rows of sessions are about, and the id of sign-ins that were refused.
const (
	auditKind    = "portal_session"
	auditRefused = "refused"
)

func audit(ctx context.Context, tx db.Conn, principal, id, name string, meta map[string]any) error {
	return tx.AppendAudit(ctx, db.Entry{
		ResourceKind: auditKind, ResourceID: id, Kind: db.EntryAction, Name: name,
		Actor: db.Actor{Owner: lifecycle.OwnerAdmin, ID: principal, Metadata: meta},
	})
}

// refuse counts and audits a refused sign-in, and returns what to answer. A client with a good
// token is never kept out by the refusals of others.
func (m *Manager) refuse(r *http.Request, method, why string) error {
	addr := ratelimit.RemoteAddress(r)
	allowed, wait := m.refused.Allow(addr)
	m.api.CountRefusal(method)
	if ok, _ := m.audited.AllowAll(); ok {
		meta := map[string]any{"method": method, "reason": why, "address": addr}
		if err := audit(r.Context(), m.store, "portal", auditRefused, "sign_in_refused", meta); err != nil {
			return err
		}
		m.log.WarnContext(r.Context(), "sign-in refused", "method", method, "reason", why, "address", addr, "request_id", op.RequestID(r.Context()))
	}
	if !allowed {
		return problem.RateLimited("too many sign-ins from your address "+addr+" were refused; behind a proxy all browsers share one address", wait)
	}
	return problem.New(problem.Unauthenticated, "the sign-in is refused: "+why)
}
