package op

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/internal/bounds"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Prefix begins the paths of all operations.
const Prefix = "/api/v1"

const maxBody = 1 << 20 // bytes

// Add declares one operation under Prefix. Its role is in the access table. Every error that the
// handler returns becomes a problem document here.
func Add[I, O any](a *API, op huma.Operation, handler func(context.Context, *I) (*O, error)) {
	op.Path = Prefix + op.Path
	role, open := a.access[op.Method+" "+op.Path], false
	if role == RoleNone {
		open = true
	}
	if op.MaxBodyBytes == 0 {
		op.MaxBodyBytes = maxBody
	}
	switch {
	case open:
	case role.isOfTenant():
		a.requireTenant(&op, role)
	default:
		op.Security = []map[string][]string{{"bearer": {}}, {"session": {}}}
		op.Description = strings.TrimSpace(op.Description + "\n\nNeeds role " + string(role) + " or higher.")
		op.Middlewares = append(op.Middlewares, a.requires(role, op.Method+" "+op.Path))
	}
	op.Middlewares = append(op.Middlewares, a.fits, a.selectors)
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = &huma.Response{Description: "Problem document (RFC 9457)", Content: map[string]*huma.MediaType{
		"application/problem+json": {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}},
	}}
	a.inputs = append(a.inputs, typeOf[I]())
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		if bad := bounds.Check(in); len(bad) > 0 {
			return nil, a.Problem(ctx, outOfBounds(bad))
		}
		if role.isOfTenant() && op.Method != http.MethodGet {
			if err := a.checkAgain(ctx); err != nil {
				return nil, a.Problem(ctx, err)
			}
		}
		out, err := handler(ctx, in)
		if err != nil {
			return nil, a.Problem(ctx, err)
		}
		return out, nil
	})
}

// outOfBounds lists the bounds that huma does not check.
func outOfBounds(bad []bounds.Violation) *problem.Problem {
	fields := make([]problem.Field, 0, len(bad))
	for _, b := range bad {
		fields = append(fields, problem.Field{Location: b.Location, Message: b.Message})
	}
	return problem.NewInvalid(fields...)
}

// Inputs returns the types of the inputs of all operations, which have the parameters and bodies.
func (a *API) Inputs() []reflect.Type { return a.inputs }

// fits refuses a request whose Content-Length is too large, without reading the body.
func (a *API) fits(c huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(c)
	if most := c.Operation().MaxBodyBytes; r.ContentLength >= most {
		a.WriteError(w, r, problem.New(problem.TooLarge, fmt.Sprintf("the body must have less than %d bytes; send less at once", most)))
		return
	}
	next(c)
}

// requires refuses a request whose principal does not have the role. A destructive request of a
// session also requires a second sign-in.
func (a *API) requires(role Role, route string) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		r, w := humachi.Unwrap(c)
		who, session, p := a.authorize(w, r, role)
		if p == nil {
			p = a.checkStepUp(r, route, session)
		}
		if p != nil {
			a.WriteError(w, r, p)
			return
		}
		c = huma.WithValue(c, recheckKey, a.recheckOf(r, role, session))
		next(huma.WithValue(c, principalKey, who))
	}
}

// transform turns the errors of huma, for validation and bodies that cannot be read, into problem
// documents. They contain no values of the request, which may be secrets.
func (a *API) transform(c huma.Context, _ string, v any) (any, error) {
	e, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := problem.New(kindOfStatus(e.Status), e.Detail)
	if p.Of(problem.Internal) {
		a.log.ErrorContext(c.Context(), "request failed", "request", Route(c.Context()), "status", e.Status, "error", e.Detail)
	}
	for _, d := range e.Errors {
		if d != nil {
			p.Errors = append(p.Errors, problem.Field{Location: d.Location, Message: safeMessage(e.Status, d)})
		}
	}
	switch e.Status {
	case http.StatusUnprocessableEntity:
		p.Detail = problem.NewInvalid().Detail
	case http.StatusBadRequest:
		p.Detail = "The body cannot be read; /docs shows the JSON that this call takes."
		if body, ok := c.BodyReader().(*bounds.Body); ok && body.HasTooManyValues() {
			p.Detail, p.Errors = bounds.TooManyValues, nil
		}
	case http.StatusUnsupportedMediaType:
		p.Detail = "The body must be JSON; send it with Content-Type: application/json."
	}
	p.Status, p.RequestID = e.Status, RequestID(c.Context())
	return p, nil
}

// safeMessage returns a message without text from a body that cannot be read.
func safeMessage(status int, d *huma.ErrorDetail) string {
	if status == http.StatusBadRequest {
		return "is not the JSON that this call takes"
	}
	return d.Message
}

func kindOfStatus(status int) problem.Kind {
	for _, i := range []problem.Kind{
		problem.Malformed, problem.Unauthenticated, problem.Forbidden, problem.NotFound, problem.MethodNotAllowed, problem.NotAcceptable,
		problem.RequestTimeout, problem.TooLarge, problem.UnsupportedMedia, problem.Invalid,
	} {
		if problem.New(i, "").Status == status {
			return i
		}
	}
	return problem.Internal
}

// tidyDocument replaces the error model of huma in the OpenAPI document by the problem document.
func (a *API) tidyDocument() {
	schemas := a.huma.OpenAPI().Components.Schemas
	schemas.Schema(typeOf[problem.Problem](), true, "Problem")
	for _, unused := range []string{"ErrorModel", "ErrorDetail"} {
		delete(schemas.Map(), unused)
	}
}

// PrefixFieldErrors turns a *spec.InvalidError into a problem that names each field by its location
// in the request. It returns other errors unchanged.
func PrefixFieldErrors(location string, err error) error {
	var invalid *spec.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	p := problem.NewInvalid()
	for _, f := range invalid.Fields {
		p.Errors = append(p.Errors, problem.Field{Location: location + "." + f.Field, Message: f.Problem})
	}
	return p
}
