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

// Session is the session of a signed-in browser.
type Session struct {
	ID        string
	Principal Principal
	SteppedUp bool // the session has a recent second sign-in
}

// Sessions finds the session of a browser by its cookie.
type Sessions interface {
	// Session returns the live session of the request's cookie, or nil. It may set a new cookie.
	Session(w http.ResponseWriter, r *http.Request) (*Session, error)
	// Principal returns the current principal of a session. It fails when the session has ended.
	Principal(ctx context.Context, id string) (Principal, error)
}

// UseSessions makes the API accept requests with the cookie of a session. If a request also has a
// bearer token, the token decides.
func (a *API) UseSessions(s Sessions) { a.sessions = s }

// bySession authenticates a request by its cookie. It returns nil when there is no session. The
// body of a write must be JSON or have one of the given types.
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

// CheckOrigin refuses a request that a browser sends on behalf of another site. It is for requests
// with a cookie. Writes must have an Origin, and their body must be JSON, which no HTML form can
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

// StepUp is a row of the table of destructive calls. It has a route under Prefix, such as "DELETE
// /admin/skus/{id}". Param and Values limit the row to some values of a path parameter.
type StepUp struct {
	Route  string
	Param  string
	Values []string
}

// RequireStepUp adds the rows of an area to the table of calls that require a second sign-in of a
// session. The area must call it before it declares its operations.
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

// needs reports whether the row applies to a request.
func (u StepUp) needs(r *http.Request) bool {
	if u.Param == "" {
		return true
	}
	got := chi.URLParam(r, u.Param)
	if r.URL.RawPath != "" { // the router returns the escaped parameter, and the operation gets it unescaped
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

// recheckOf returns the function that checks the access of a request again.
func (a *API) recheckOf(r *http.Request, role Role, s *Session) func(context.Context) error {
	identify := a.identifyAgain(r, s)
	return func(ctx context.Context) error {
		who, err := identify(ctx)
		return stillMay(who, role, err)
	}
}

// identifyAgain returns a function that reads the current principal and roles of a request. The
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
