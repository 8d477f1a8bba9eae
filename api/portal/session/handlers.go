package session

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	portaldb "github.com/slipway-cloud/slipway/db/portal"
)

const maxBody = 20 << 10 // bytes; a token is shorter

// View is a session as the portal sees it.
type View struct {
	Principal   op.Principal `json:"principal"`
	Method      string       `json:"method"`
	AuthTime    time.Time    `json:"auth_time"`
	IdleUntil   time.Time    `json:"idle_until"`
	EndsAt      time.Time    `json:"ends_at"`
	StepUpUntil *time.Time   `json:"step_up_until"`
	SignIn      SignIn       `json:"sign_in"`
	TemporalUI  string       `json:"temporal_ui"`
}

// SignIn says how one can sign in.
type SignIn struct {
	OIDC  bool `json:"oidc"`
	Token bool `json:"token"`
}

// Register adds the routes of sessions to the API's router.
func (m *Manager) Register(api *op.API) {
	r := api.Router()
	handle := func(method, path string, h func(http.ResponseWriter, *http.Request) error) {
		r.MethodFunc(method, path, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				api.WriteError(w, r, err)
			}
		})
	}
	visit := func(path string, h func(http.ResponseWriter, *http.Request) error) {
		r.Get(path, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				if p := api.Problem(r.Context(), err); !m.writePage(w, r, p) {
					p.Write(w)
				}
			}
		})
	}
	handle(http.MethodGet, "/portal/sign-in", m.getSignIn)
	handle(http.MethodGet, "/portal/session", m.getSession)
	handle(http.MethodPost, "/portal/session", m.signInByToken)
	handle(http.MethodDelete, "/portal/session", m.signOut)
	handle(http.MethodPost, "/portal/step-up", m.stepUpByToken)
	visit("/portal/oidc/sign-in", m.beginOIDC)
	visit("/portal/oidc/step-up", m.beginOIDCStepUp)
	visit("/portal/oidc/callback", m.finishOIDC)
	handle(http.MethodPost, "/portal/oidc/logout", m.providerLogout)
}

func (m *Manager) ways() SignIn { return SignIn{OIDC: m.provider != nil, Token: true} }

func (m *Manager) getSignIn(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, http.StatusOK, m.ways())
}

func (m *Manager) getSession(w http.ResponseWriter, r *http.Request) error {
	if p := op.CheckOrigin(r); p != nil {
		return p
	}
	live, err := m.find(w, r)
	if err != nil {
		return err
	}
	if live == nil {
		return signedOut()
	}
	return answer(w, http.StatusOK, m.view(*live))
}

func (m *Manager) view(live portaldb.Live) View {
	s := live.PortalSession
	v := View{
		Principal: op.Principal{ID: s.Principal, Name: s.Name, Roles: live.RolesNow}, Method: s.Method, AuthTime: s.AuthTime.UTC(),
		IdleUntil: s.IdleUntil.UTC(), EndsAt: s.EndsAt.UTC(), SignIn: m.ways(), TemporalUI: m.cfg.TemporalUI,
	}
	if live.SteppedUp {
		until := s.StepUpUntil.UTC()
		v.StepUpUntil = &until
	}
	return v
}

// signInByToken exchanges an API token for a session, which ends with the token.
func (m *Manager) signInByToken(w http.ResponseWriter, r *http.Request) error {
	by, err := m.readToken(w, r)
	if err != nil {
		return err
	}
	live, err := m.begin(w, r, by, "")
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, m.view(*live))
}

func (m *Manager) stepUpByToken(w http.ResponseWriter, r *http.Request) error {
	by, err := m.readToken(w, r)
	if err != nil {
		return err
	}
	live, err := m.find(w, r)
	if err != nil {
		return err
	}
	if live == nil {
		return signedOut()
	}
	if live.PortalSession.Principal != by.Principal {
		return m.refuse(r, by.Method, "the token is not the one that began this session")
	}
	if live, err = m.stepUp(w, r, live.PortalSession.ID, by); err != nil {
		return err
	}
	return answer(w, http.StatusOK, m.view(*live))
}

// readToken reads the token of a request that comes from the portal, and who it speaks for.
func (m *Manager) readToken(w http.ResponseWriter, r *http.Request) (portaldb.New, error) {
	if p := op.CheckOrigin(r); p != nil {
		return portaldb.New{}, p
	}
	var body struct {
		Token string `json:"token"`
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			return portaldb.New{}, problem.New(problem.TooLarge, "send only the token, as {\"token\": \"slp_...\"}")
		}
		return portaldb.New{}, problem.New(problem.Malformed, "send the token as {\"token\": \"slp_...\"}")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return portaldb.New{}, problem.New(problem.Malformed, "send one JSON object, {\"token\": \"slp_...\"}")
	}
	who, id, err := op.TokenPrincipal(r.Context(), m.store, body.Token)
	if p := (*problem.Problem)(nil); errors.As(err, &p) && p.Of(problem.Unauthenticated) {
		return portaldb.New{}, m.refuse(r, portaldb.MethodToken, "the token is unknown, expired or revoked")
	}
	return portaldb.New{Method: portaldb.MethodToken, Principal: who.ID, Name: who.Name, Roles: who.Roles, TokenID: id}, err
}

func (m *Manager) signOut(w http.ResponseWriter, r *http.Request) error {
	if p := op.CheckOrigin(r); p != nil {
		return p
	}
	live, err := m.find(w, r)
	if err != nil {
		return err
	}
	if live != nil {
		if err := m.end(r, live.PortalSession); err != nil {
			return err
		}
	}
	m.clearSession(w, r)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func answer(w http.ResponseWriter, status int, body any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the status is out; a broken connection is the client's to notice
	return nil
}
