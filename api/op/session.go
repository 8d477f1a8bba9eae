package op

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/slipway-cloud/slipway/api/problem"
)

// Session is a signed-in browser.
type Session struct {
	ID        string
	Principal Principal
	SteppedUp bool // a second sign-in counts now
}

// Sessions finds the session of a browser by its cookie.
type Sessions interface {
	// Session returns the live session of the request's cookie, or nil. It may set a new cookie.
	Session(w http.ResponseWriter, r *http.Request) (*Session, error)
	// Principal returns who a live session speaks for now. It fails when the session has ended.
	Principal(ctx context.Context, id string) (Principal, error)
}

// UseSessions lets requests with the cookie of a session through, besides those with a bearer token.
// A bearer token wins when both come.
func (a *API) UseSessions(s Sessions) { a.sessions = s }

// bySession authenticates a request by its cookie. It returns nil when there is no session. The body of a
// write is JSON or of one of the further types.
func (a *API) bySession(w http.ResponseWriter, r *http.Request, types ...string) (*Session, error) {
	if a.sessions == nil || r.Header.Get("Authorization") != "" {
		return nil, nil
	}
	s, err := a.sessions.Session(w, r)
	if err != nil || s == nil {
		return nil, err
	}
	if p := checkOrigin(r, types...); p != nil {
		return nil, p
	}
	return s, nil
}

// CheckOrigin refuses a request that a browser sends for another site. It is for requests that carry
// a cookie: writes must say where they come from, and their body must be JSON, which no form can
// send.
func CheckOrigin(r *http.Request) *problem.Problem { return checkOrigin(r) }

func checkOrigin(r *http.Request, types ...string) *problem.Problem {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	if site == "cross-site" {
		return problem.New(problem.Forbidden, "the request comes from another site, which may not use this browser's session; open the portal and repeat it there")
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return nil
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return problem.New(problem.Forbidden, "the request comes from another origin, which may not use this browser's session; open the portal and repeat it there")
	}
	if site == "" && origin == "" {
		return problem.New(problem.Forbidden, "a write with a session's cookie needs the header Sec-Fetch-Site or Origin, which browsers send; programs use a bearer token")
	}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if kind = strings.ToLower(strings.TrimSpace(kind)); r.ContentLength != 0 && kind != "application/json" && !slices.Contains(types, kind) {
		return problem.New(problem.UnsupportedMedia, "send the body as application/json")
	}
	return nil
}

// StepUp is a row of the table of destructive calls: a route such as "DELETE /admin/skus/{id}" under
// Prefix. Param and Values limit it to some values of a parameter of the path.
type StepUp struct {
	Route  string
	Param  string
	Values []string
}

// RequireStepUp adds an area's rows to the table of calls that a session may make only after a
// second sign-in. They are needed before the area's operations are declared.
func (a *API) RequireStepUp(rows ...StepUp) {
	for _, row := range rows {
		method, path, _ := strings.Cut(row.Route, " ")
		row.Route = method + " " + Prefix + path
		if _, twice := a.stepUps[row.Route]; twice {
			a.misuse = append(a.misuse, fmt.Errorf("route %s stands twice in the table of second sign-ins", row.Route))
		}
		a.stepUps[row.Route] = row
	}
}

// checkStepUps returns an error when the table names a route that does not exist.
func (a *API) checkStepUps() error {
	for route := range a.stepUps {
		if _, known := a.access[route]; !known {
			return fmt.Errorf("the table of second sign-ins names %s, which does not exist", route)
		}
	}
	return nil
}

// StepUps returns the table of calls that need a second sign-in, by method and path.
func (a *API) StepUps() map[string]StepUp { return a.stepUps }

// needs reports whether a request is one of the row's.
func (u StepUp) needs(r *http.Request) bool {
	if u.Param == "" {
		return true
	}
	got := chi.URLParam(r, u.Param)
	if r.URL.RawPath != "" { // the parameter is still escaped; the operation gets it unescaped
		if plain, err := url.PathUnescape(got); err == nil {
			got = plain
		}
	}
	return slices.Contains(u.Values, got)
}

// checkStepUp refuses a destructive call of a session without a second sign-in.
func (a *API) checkStepUp(r *http.Request, route string, s *Session) *problem.Problem {
	u, listed := a.stepUps[route]
	if !listed || s == nil || s.SteppedUp || !u.needs(r) {
		return nil
	}
	return a.Problem(r.Context(), stepUpRequired())
}

func stepUpRequired() *problem.Problem {
	return problem.New(problem.StepUpRequired, "this call destroys something that cannot be restored; sign in a second time, then repeat it within ten minutes")
}

// recheckOf returns what Recheck does for a request.
func (a *API) recheckOf(r *http.Request, role Role, s *Session) func(context.Context) error {
	identify := a.identifyAgain(r, s)
	return func(ctx context.Context) error {
		who, err := identify(ctx)
		return stillMay(who, role, err)
	}
}

// identifyAgain returns a function that finds out who made a request, with the roles of now. The
// session is nil for a bearer token.
func (a *API) identifyAgain(r *http.Request, s *Session) func(context.Context) (Principal, error) {
	if s == nil {
		header := r.Header.Get("Authorization")
		return func(ctx context.Context) (Principal, error) { return a.byBearer(ctx, header) }
	}
	return func(ctx context.Context) (Principal, error) { return a.sessions.Principal(ctx, s.ID) }
}

func stillMay(who Principal, role Role, err error) error {
	if err == nil && !who.May(role) {
		err = lacksRole(who, role)
	}
	return err
}
