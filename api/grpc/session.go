package grpc

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"connectrpc.com/connect"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/proto/gen/slipway/v1/slipwayv1connect"
)

// streamType is the content type of requests for streams in JSON. No HTML form can send it.
const streamType = "application/connect+json"

// signInFunc authenticates a request.
type signInFunc = func(http.ResponseWriter, *http.Request) (context.Context, error)

// admitFunc checks that an authenticated caller may make a call.
type admitFunc = func(ctx context.Context, procedure string, header http.Header) (context.Context, error)

// signIn accepts a bearer token, or the session of a browser.
func (s *server) signIn(w http.ResponseWriter, r *http.Request) (context.Context, error) {
	return s.api.SignInBrowser(w, r, streamType)
}

// byToken accepts only a bearer token.
func (s *server) byToken(_ http.ResponseWriter, r *http.Request) (context.Context, error) {
	return s.api.SignIn(r)
}

// mounts returns a function that registers a handler behind signIn and admit. Both decide by the
// headers, so that no message of a refused caller is read or decompressed.
func (s *server) mounts(signIn signInFunc, admit admitFunc) func(path string, h http.Handler) {
	writer := connect.NewErrorWriter(WithJSON())
	return func(path string, h http.Handler) {
		s.api.Router().Post(path+"*", func(w http.ResponseWriter, r *http.Request) {
			ctx, err := signIn(w, r)
			if err != nil {
				s.refuse(w, r, writer, err)
				return
			}
			if ctx, err = admit(ctx, r.URL.Path, r.Header); err != nil {
				s.refuseCall(w, r, writer, err)
				return
			}
			ctx = context.WithValue(ctx, writerKey{}, http.NewResponseController(w))
			h.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// refuse answers a request that signIn has refused. A refused session gets the status of the REST
// API, so that a page of another origin never sees a stream that begins with 200.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, writer *connect.ErrorWriter, err error) {
	var p *problem.Problem
	if errors.As(err, &p) && r.Header.Get("Authorization") == "" && p.Status != http.StatusUnauthorized {
		s.api.WriteError(w, r, err)
		return
	}
	s.refuseCall(w, r, writer, err)
}

// refuseCall answers with an error in the protocol of the call.
func (s *server) refuseCall(w http.ResponseWriter, r *http.Request, writer *connect.ErrorWriter, err error) {
	coded := s.connectError(r.Context(), err)
	if writer.IsSupported(r) {
		_ = writer.Write(w, r, coded)
		return
	}
	http.Error(w, coded.Error(), s.api.Problem(r.Context(), err).Status)
}

// portalCalls returns the writing calls of the portal. The session of a browser may make only these
// and the reading calls.
func portalCalls() []string {
	return []string{slipwayv1connect.RunServiceStartRunProcedure, slipwayv1connect.RunServiceCancelRunProcedure}
}

// checkPortalCall refuses calls of a browser session that the portal does not make.
func checkPortalCall(ctx context.Context, procedure string, need rights) error {
	if op.SessionOf(ctx) == nil || !need.write || slices.Contains(portalCalls(), procedure) {
		return nil
	}
	return problem.New(problem.Forbidden, "a browser's session does not make this call; use a token, as the command slipway does")
}

// checkStepUp requires a second sign-in of a session for a destructive run. Such a run has a step
// that may erase the machine, remove it, run commands on it as root, or interrupt work on it.
func checkStepUp(ctx context.Context, tx *db.Tx, in *slipwayv1.StartRunRequest) error {
	need := op.NeedsStepUp(ctx)
	if need == nil || in.GetAcceptRisk() {
		return need
	}
	id := in.GetPlanId()
	if id == "" {
		defaults, err := runplan.Defaults()
		if err != nil {
			return err
		}
		if id = defaults[lifecycle.RunType(in.GetType())].ID; id == "" {
			return nil // StartRun refuses an unknown type
		}
	}
	plan, err := machines.FindPlan(ctx, tx, id)
	if err == nil && slices.ContainsFunc(plan.Steps, mayDestroy) {
		return need
	}
	return err
}

// mayDestroy reports whether a step may have effects that cannot be undone. It returns true for
// unknown kinds.
func mayDestroy(s runplan.Step) bool {
	switch s.Kind() {
	case runplan.KindReboot, runplan.KindNetboot, runplan.KindJoin, runplan.KindVerify, runplan.KindNet:
		return false
	case runplan.KindSSH, runplan.KindRepave, runplan.KindRMA:
		return true
	}
	return true
}
