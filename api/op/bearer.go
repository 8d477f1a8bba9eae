package op

import (
	"context"
	"errors"
	"net/http"

	"github.com/slipway-cloud/slipway/api/problem"
)

// SignIn authenticates a request that is not an operation by its bearer token. It returns a context
// with the caller. It does not accept the session of a browser.
func (a *API) SignIn(r *http.Request) (context.Context, error) {
	ctx, err := a.SignInAgain(context.WithValue(r.Context(), signInKey, a.identifyAgain(r, nil)))
	return ctx, a.limitRefusals(r, err)
}

// SignInBrowser is SignIn for requests that pages of the portal may also send. Without a bearer
// token it accepts the session of the browser, under the rules of CheckOrigin. The body must be
// JSON or have one of the given types. Those must be types that no HTML form can send, and that
// another origin cannot send without a CORS preflight.
func (a *API) SignInBrowser(w http.ResponseWriter, r *http.Request, types ...string) (context.Context, error) {
	s, err := a.bySession(w, r, types...)
	if err != nil {
		return r.Context(), err
	}
	if s == nil {
		return a.SignIn(r)
	}
	ctx := context.WithValue(r.Context(), signInKey, a.identifyAgain(r, s))
	ctx = context.WithValue(ctx, sessionKey, s)
	return context.WithValue(ctx, principalKey, s.Principal), nil
}

// SessionOf returns the session of a request that SignInBrowser has authenticated. It is nil for a
// bearer token.
func SessionOf(ctx context.Context) *Session {
	s, _ := ctx.Value(sessionKey).(*Session)
	return s
}

// NeedsStepUp returns a problem when the session must confirm its identity by a second sign-in, and
// nil otherwise.
func NeedsStepUp(ctx context.Context) error {
	if s := SessionOf(ctx); s != nil && !s.SteppedUp {
		return stepUpRequired()
	}
	return nil
}

// SignInAgain authenticates a long request again, by the same token or session.
func (a *API) SignInAgain(ctx context.Context) (context.Context, error) {
	identify, ok := ctx.Value(signInKey).(func(context.Context) (Principal, error))
	if !ok {
		return ctx, rejected()
	}
	who, err := identify(ctx)
	if err != nil {
		return ctx, err
	}
	return context.WithValue(ctx, principalKey, who), nil
}

// LacksRole returns the problem for a caller that does not have the role.
func LacksRole(who Principal, role Role) error { return lacksRole(who, role) }

// OpenStream counts a stream of a request until leave is called. The returned context ends when
// recheck refuses the reader; AccessEnded then returns the reason. project is "" for streams of
// operators. OpenStream returns a problem when the reader or the project already has the maximum
// number of streams.
func (a *API) OpenStream(ctx context.Context, project string, recheck func(context.Context) error) (stream context.Context, leave func(), err error) {
	closed, err := a.streams.open(PrincipalOf(ctx).ID, project)
	if err != nil {
		return ctx, nil, err
	}
	stream, stop := whileAllowed(context.WithValue(ctx, recheckKey, recheck), a.recheckEvery, recheckDeadline, recheckLimit)
	return stream, func() {
		stop()
		closed()
	}, nil
}

// AccessEnded returns a problem when the stream ended because its reader lost the access, and nil
// otherwise.
func AccessEnded(stream context.Context) error {
	if !errors.Is(context.Cause(stream), errAccessEnded) {
		return nil
	}
	return problem.New(problem.Unauthenticated, "your access has ended; sign in again")
}
