package rest

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/slipway-cloud/slipway/api/boot"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

type contextKey int

const (
	requestIDKey contextKey = iota
	principalKey
	pathKey
	sourceKey
)

// requestLimit bounds every request but an event stream and the transfer of a
// boot image; an action waits for its workflow within it.
const requestLimit = 30 * time.Second

const eventsPath = "/api/v1/events"

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// identify gives each request an id, the caller's own where it is harmless.
func (s *Server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !requestIDPattern.MatchString(id) {
			id = db.NewID("req")
		}
		w.Header().Set("X-Request-Id", id)
		ctx := context.WithValue(r.Context(), requestIDKey, id)
		path := boot.LoggedPath(r.URL.Path)
		ctx = context.WithValue(ctx, pathKey, r.Method+" "+path)
		began := time.Now()
		next.ServeHTTP(w, r.WithContext(ctx))
		s.log.DebugContext(ctx, "request", "method", r.Method, "path", path, "request_id", id, "took", time.Since(began))
	})
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey).(string)
	return id
}

// route is method and path of the request, the scope of an idempotency key.
func route(ctx context.Context) string {
	p, _ := ctx.Value(pathKey).(string)
	return p
}

func (s *Server) recoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler { //nolint:errorlint // a sentinel that is never wrapped
				panic(cause)
			}
			s.answer(w, r, fmt.Errorf("panic: %v\n%s", cause, debug.Stack()))
		}()
		next.ServeHTTP(w, r)
	})
}

func (s *Server) headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

func (s *Server) deadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == eventsPath || boot.LongLived(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// answer writes an error outside huma.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, err error) {
	s.problem(r.Context(), err).Write(w)
}

// problem turns an error into a document; what is the server's own trouble goes
// to the log whole.
func (s *Server) problem(ctx context.Context, err error) *problem.Problem {
	p := problem.From(err)
	p.RequestID = requestID(ctx)
	if p.Status >= http.StatusInternalServerError && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "request failed", "request", route(ctx), "request_id", p.RequestID, "status", p.Status, "error", err)
	}
	return p
}
