package op

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

type contextKey int

const (
	requestIDKey contextKey = iota
	principalKey
	pathKey
	projectKey
	recheckKey
	accessKey
	signInKey
	sessionKey
	placeKey
)

// requestLimit bounds every request that is not Unbounded. An action on a job waits for its
// workflow within this time.
const requestLimit = 30 * time.Second

// Unbounded exempts streams and transfers from the time limit of requests, by their paths.
func (a *API) Unbounded(match func(path string) bool) { a.unbounded = append(a.unbounded, match) }

// RedactPath registers a function that removes secrets from paths before they are logged.
func (a *API) RedactPath(redact func(path string) string) { a.redacted = append(a.redacted, redact) }

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// identify gives each request an id. It uses the id from the caller if that is safe to log.
func (a *API) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !requestIDPattern.MatchString(id) {
			id = db.NewID("req")
		}
		w.Header().Set("X-Request-Id", id)
		ctx := context.WithValue(r.Context(), requestIDKey, id)
		path := r.URL.Path
		for _, redact := range a.redacted {
			path = redact(path)
		}
		ctx = context.WithValue(ctx, pathKey, r.Method+" "+path)
		began := time.Now()
		next.ServeHTTP(w, r.WithContext(ctx))
		a.log.DebugContext(ctx, "request", "method", r.Method, "path", path, "request_id", id, "took", time.Since(began))
	})
}

// RequestID returns the id of the request, which names it in the log.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey).(string)
	return id
}

// Route returns method and path of the request, the scope of an idempotency key.
func Route(ctx context.Context) string {
	p, _ := ctx.Value(pathKey).(string)
	return p
}

func (a *API) recoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler { //nolint:errorlint // a sentinel that is never wrapped
				panic(cause)
			}
			a.WriteError(w, r, fmt.Errorf("panic: %v\n%s", cause, debug.Stack()))
		}()
		next.ServeHTTP(w, r)
	})
}

func (a *API) headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// deadline bounds the time of a request, and the time in which the client must read the answer. The
// memory of an answer is in use until then.
func (a *API) deadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := http.NewResponseController(w)
		if slices.ContainsFunc(a.unbounded, func(match func(string) bool) bool { return match(r.URL.Path) }) {
			_ = answer.SetWriteDeadline(time.Time{}) // the connection still has the previous request's deadline
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
		defer cancel()
		_ = answer.SetWriteDeadline(time.Now().Add(a.rates.answerLimit)) // a writer that supports none has its own limit
		held := &heldPlace{}
		defer held.end()
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, placeKey, held)))
	})
}

// middleware returns the middleware of every route. deadline comes before each middleware that can
// answer, since the connection still has the deadline of the previous request.
func (a *API) middleware() chi.Middlewares {
	return chi.Chain(a.identify, a.recoverPanic, a.headers, a.deadline, a.limitAddress, a.fewValues, a.serveShort)
}

// Around serves h, which is not a route of the API, with the same limits as the routes.
func (a *API) Around(h http.Handler) http.Handler { return a.middleware().Handler(h) }

// WriteError answers a request that is served outside of an operation.
func (a *API) WriteError(w http.ResponseWriter, r *http.Request, err error) {
	a.Problem(r.Context(), err).Write(w)
}

// Problem returns the problem document of an error. It logs the details of an internal error, and
// does not include them in the document.
func (a *API) Problem(ctx context.Context, err error) *problem.Problem {
	p := problem.From(err)
	p.RequestID = RequestID(ctx)
	if p.FailureClass != "" {
		p.Runbook = a.DocURL(lifecycle.Failure(p.FailureClass).Runbook())
	}
	if p.Status >= http.StatusInternalServerError && ctx.Err() == nil {
		a.log.ErrorContext(ctx, "request failed", "request", Route(ctx), "request_id", p.RequestID, "status", p.Status, "error", err)
	}
	return p
}
