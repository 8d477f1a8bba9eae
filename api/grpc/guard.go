package grpc

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle/listfilter"
	"github.com/slipway-cloud/slipway/proto/gen/slipway/v1/slipwayv1connect"
)

// The headers that select the project of a call, and give the reason of an operator. A project
// token needs no header.
const (
	projectHeader = op.ProjectHeader
	reasonHeader  = "Slipway-Reason"
)

// problemHeader is the header with the kind of an error. It has the same values as the type of a
// problem document of the REST API.
const problemHeader = "Slipway-Problem"

// rights are the least roles for a call: the role of the platform, and the role in the project for
// callers that act in one. With "" such callers may not make the call.
type rights struct {
	platform op.Role
	project  op.Role
	write    bool
}

// access is the access table of the API.
func access() map[string]rights {
	return map[string]rights{
		slipwayv1connect.MachineServiceGetMachineProcedure:       {op.RoleViewer, op.RoleProjectViewer, false},
		slipwayv1connect.MachineServiceListMachinesProcedure:     {op.RoleViewer, op.RoleProjectViewer, false},
		slipwayv1connect.MachineServiceRegisterMachineProcedure:  {op.RoleOperator, "", true},
		slipwayv1connect.MachineServiceUpdateMachineProcedure:    {op.RoleOperator, "", true},
		slipwayv1connect.MachineServiceSetMachinePhaseProcedure:  {op.RoleOperator, "", true},
		slipwayv1connect.MachineServiceSetMachineAccessProcedure: {op.RoleAdmin, "", true},
		slipwayv1connect.PlanServiceGetPlanProcedure:             {op.RoleViewer, op.RoleProjectViewer, false},
		slipwayv1connect.PlanServiceListPlansProcedure:           {op.RoleViewer, op.RoleProjectViewer, false},
		slipwayv1connect.PlanServiceCreatePlanProcedure:          {op.RoleAdmin, "", true},
		slipwayv1connect.RunServiceStartRunProcedure:             {op.RoleOperator, op.RoleProjectMember, true},
		slipwayv1connect.RunServiceCancelRunProcedure:            {op.RoleOperator, op.RoleProjectMember, true},
		slipwayv1connect.RunServiceRetryRunProcedure:             {op.RoleOperator, "", true},
		slipwayv1connect.RunServiceGetRunProcedure:               {op.RoleViewer, op.RoleProjectViewer, false},
		slipwayv1connect.RunServiceListRunsProcedure:             {op.RoleViewer, op.RoleProjectViewer, false},
		slipwayv1connect.RunServiceWatchRunsProcedure:            {op.RoleViewer, op.RoleProjectViewer, false},
		slipwayv1connect.RunServiceStreamRunLogsProcedure:        {op.RoleViewer, op.RoleProjectViewer, false},
		slipwayv1connect.CampaignServiceCreateCampaignProcedure:  {op.RoleOperator, op.RoleProjectMember, true},
		slipwayv1connect.CampaignServiceGetCampaignProcedure:     {op.RoleViewer, op.RoleProjectViewer, false},
		slipwayv1connect.CampaignServiceListCampaignsProcedure:   {op.RoleViewer, op.RoleProjectViewer, false},
		slipwayv1connect.CampaignServicePauseCampaignProcedure:   {op.RoleOperator, op.RoleProjectMember, true},
		slipwayv1connect.CampaignServiceResumeCampaignProcedure:  {op.RoleOperator, op.RoleProjectMember, true},
		slipwayv1connect.CampaignServiceCancelCampaignProcedure:  {op.RoleOperator, op.RoleProjectMember, true},
		slipwayv1connect.CampaignServiceRetryCampaignProcedure:   {op.RoleOperator, op.RoleProjectMember, true},
	}
}

// caller is the caller of an admitted call. Project is "" for calls to the platform.
type caller struct{ Project string }

type callerKey struct{}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// read runs queries for the caller. If the caller acts in a project, the queries see only this
// project.
func (s *server) read(ctx context.Context, fn func(machinesdb.Conn) error) error {
	if project := callerOf(ctx).Project; project != "" {
		return s.store.ForProject(ctx, project, func(tx *db.ProjectTx) error { return fn(tx) })
	}
	return fn(s.store)
}

// admit checks that the caller may make a call. It returns a context with the caller.
func (s *server) admit(ctx context.Context, procedure string, header http.Header) (context.Context, error) {
	need, ok := access()[procedure]
	if !ok {
		return ctx, problem.New(problem.Forbidden, "the call has no role")
	}
	if err := checkPortalCall(ctx, procedure, need); err != nil {
		return ctx, err
	}
	who := op.PrincipalOf(ctx)
	project := header.Get(projectHeader)
	if project == "" {
		project = who.Project
	}
	if project == "" {
		if !who.May(need.platform) {
			return ctx, op.LacksRole(who, need.platform)
		}
		return context.WithValue(ctx, callerKey{}, caller{}), nil
	}
	if need.project == "" {
		return ctx, problem.New(problem.Forbidden, "this call is for operators of the platform; leave "+projectHeader+" out, and use a token of the platform")
	}
	ctx, err := op.EnterProject(ctx, s.api, project, need.project, need.write, header.Get(reasonHeader))
	return context.WithValue(ctx, callerKey{}, caller{Project: project}), err
}

// paced applies the rate limit of the principal, and the limit of its concurrent requests.
func (s *server) paced(ctx context.Context, _ string, _ http.Header) (context.Context, error) {
	return ctx, s.api.LimitPrincipal(ctx)
}

// allow applies the limits of the principal and admits the call, before the message is read. It
// leaves an unknown call to the handler, which returns the error.
func (s *server) allow(ctx context.Context, procedure string, header http.Header) (context.Context, error) {
	ctx, err := s.paced(ctx, procedure, header)
	if _, known := access()[procedure]; err != nil || !known {
		return ctx, err
	}
	return s.admit(ctx, procedure, header)
}

// guard is the interceptor that serves only admitted calls, and gives every error its code.
type guard struct{ s *server }

// admitted returns an error if allow has not admitted the call.
func admitted(ctx context.Context) error {
	if _, ok := ctx.Value(callerKey{}).(caller); !ok {
		return problem.New(problem.Forbidden, "the call has no role")
	}
	return nil
}

// WrapUnary implements connect.Interceptor.
func (g *guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		err := admitted(ctx)
		if err == nil {
			err = op.AuditAccess(ctx, g.s.api)
		}
		if err == nil {
			var out connect.AnyResponse
			if out, err = next(ctx, r); err == nil {
				return out, nil
			}
		}
		return nil, g.s.connectError(ctx, err)
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (g *guard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		procedure, header := conn.Spec().Procedure, conn.RequestHeader()
		if err := admitted(ctx); err != nil {
			return g.s.connectError(ctx, err)
		}
		ctx, leave, err := g.s.api.OpenStream(ctx, callerOf(ctx).Project, func(ctx context.Context) error {
			ctx, err := g.s.api.SignInAgain(ctx)
			if err == nil {
				_, err = g.s.admit(ctx, procedure, header)
			}
			return err
		})
		if err != nil {
			return g.s.connectError(ctx, err)
		}
		defer leave()
		// A stream is one access, however often it checks the rights of its reader.
		if err := op.AuditAccess(ctx, g.s.api); err != nil {
			return g.s.connectError(ctx, err)
		}
		err = next(ctx, conn)
		if ended := op.AccessEnded(ctx); ended != nil {
			err = ended
		}
		return g.s.connectError(ctx, err)
	}
}

// WrapStreamingClient implements connect.Interceptor; a server has no client streams.
func (g *guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

var errUnknownService = errors.New("there is no service of that name here")

// connectError returns an error with its code, and with the text of the REST API. It logs the
// details of an internal error, and does not include them in the text.
func (s *server) connectError(ctx context.Context, err error) error {
	var coded *connect.Error
	var filter *listfilter.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &coded):
		return err
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, errors.New("the call was cancelled"))
	case errors.As(err, &filter):
		err = problem.NewInvalid(problem.Field{Location: "filter", Message: filter.Problem})
	}
	p := s.api.Problem(ctx, err)
	text := p.Detail
	for i, f := range p.Errors {
		separator := "; "
		if i == 0 {
			text, separator = strings.TrimSuffix(text, "."), ": "
		}
		text += separator + strings.TrimPrefix(f.Location, "body.") + " " + f.Message
	}
	out := connect.NewError(p.Code(), errors.New(text))
	out.Meta().Set(problemHeader, p.Type)
	if p.RequestID != "" {
		out.Meta().Set("Slipway-Request-Id", p.RequestID)
	}
	if p.RetryAfter > 0 {
		out.Meta().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	return out
}
