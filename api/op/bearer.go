package op

import (
	"context"
	"errors"
	"net/http"

	"github.com/slipway-cloud/slipway/api/problem"
)

// SignIn returns the context of a request that is no operation, with the caller that its bearer token
// names. A browser's session is not taken.
func (a *API) SignIn(r *http.Request) (context.Context, error) {
	ctx, err := a.SignInAgain(context.WithValue(r.Context(), signInKey, a.identifyAgain(r, nil)))
	return ctx, a.limitRefusals(r, err)
}

// SignInBrowser is SignIn for requests that portal pages send too: without a bearer token it takes the
// session of the browser, under the rules of CheckOrigin. The body is JSON, or of one of the further
// types, which must be types that no form sends and no other origin may send without asking first.
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

// SessionOf returns the session of a request that SignInBrowser let through, nil for a bearer token.
func SessionOf(ctx context.Context) *Session {
	s, _ := ctx.Value(sessionKey).(*Session)
	return s
}

// NeedsStepUp returns the problem of a session that has to sign in a second time, nil for others.
func NeedsStepUp(ctx context.Context) error {
	if s := SessionOf(ctx); s != nil && !s.SteppedUp {
		return stepUpRequired()
	}
	return nil
}

// SignInAgain finds out whom the token or the session of the request names now, for a request that lasts.
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

// LacksRole returns the problem of a caller who has not the role.
func LacksRole(who Principal, role Role) error { return lacksRole(who, role) }

// OpenStream counts a stream of a request until leave is called. The context ends when recheck says that
// its reader has no access any more; AccessEnded tells that from other ends. project is "" for streams
// that are not of a project's members. OpenStream returns a problem when the reader or the project has as
// many streams as they may have.
func (a *API) OpenStream(ctx context.Context, project string, recheck func(context.Context) error) (stream context.Context, leave func(), err error) {
	closed, err := a.streams.open(PrincipalOf(ctx).ID, project)
	if err != nil {
		return ctx, nil, err
	}
	stream, stop := whileAllowed(context.WithValue(ctx, recheckKey, recheck), a.recheckEvery, recheckLimit)
	return stream, func() {
		stop()
		closed()
	}, nil
}

// AccessEnded returns the problem of a stream whose reader has no access any more, nil for others.
func AccessEnded(stream context.Context) error {
	if !errors.Is(context.Cause(stream), errAccessEnded) {
		return nil
	}
	return problem.New(problem.Unauthenticated, "your access has ended; sign in again")
}
