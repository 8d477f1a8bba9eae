package rest

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const (
	prefix  = "/api/v1"
	maxBody = 1 << 20 // bytes
)

// add declares one operation under /api/v1. Its role is in the access table.
// Whatever error the handler returns becomes a problem document here.
func add[I, O any](s *Server, op huma.Operation, handler func(context.Context, *I) (*O, error)) {
	op.Path = prefix + op.Path
	role, open := s.access[op.Method+" "+op.Path], false
	if role == RoleNone {
		open = true
	}
	if op.MaxBodyBytes == 0 {
		op.MaxBodyBytes = maxBody
	}
	if !open {
		op.Security = []map[string][]string{{"bearer": {}}}
		op.Description = strings.TrimSpace(op.Description + "\n\nNeeds role " + string(role) + " or higher.")
		op.Middlewares = append(op.Middlewares, s.requires(role))
	}
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = &huma.Response{Description: "Problem document (RFC 9457)", Content: map[string]*huma.MediaType{
		"application/problem+json": {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}},
	}}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		return out, nil
	})
}

// requires lets a request through whose principal has the role.
func (s *Server) requires(role Role) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		r, w := humachi.Unwrap(c)
		who, p := s.authorize(r, role)
		if p != nil {
			s.answer(w, r, p)
			return
		}
		next(huma.WithValue(c, principalKey, who))
	}
}

// transform turns huma's own errors (validation, unreadable bodies) into
// problem documents. Values are never echoed: they may be secrets.
func (s *Server) transform(c huma.Context, _ string, v any) (any, error) {
	e, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := problem.New(kindOfStatus(e.Status), e.Detail)
	if p.Of(problem.Internal) {
		s.log.ErrorContext(c.Context(), "request failed", "request", route(c.Context()), "status", e.Status, "error", e.Detail)
	}
	for _, d := range e.Errors {
		if d != nil {
			p.Errors = append(p.Errors, problem.Field{Location: d.Location, Message: safeMessage(e.Status, d)})
		}
	}
	if e.Status == http.StatusUnprocessableEntity {
		p.Detail = problem.NewInvalid().Detail
	}
	p.Status, p.RequestID = e.Status, requestID(c.Context())
	return p, nil
}

// safeMessage keeps the text of an unreadable body out of the answer.
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

// tidyDocument puts the real problem document into OpenAPI in place of huma's.
func (s *Server) tidyDocument() {
	schemas := s.api.OpenAPI().Components.Schemas
	schemas.Schema(typeOf[problem.Problem](), true, "Problem")
	for _, unused := range []string{"ErrorModel", "ErrorDetail"} {
		delete(schemas.Map(), unused)
	}
}

// List is one page of a list.
type List[T any] struct {
	Data []T `json:"data" nullable:"false"`
	// NextCursor is absent on the last page.
	NextCursor string `json:"next_cursor,omitempty" doc:"Pass it as cursor to get the next page; absent on the last"`
}

// Listed is the answer of a list call.
type Listed[T any] struct{ Body List[T] }

// Page is how a list is asked for.
type Page struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"Rows in one page"`
	Cursor string `query:"cursor" maxLength:"200" doc:"next_cursor of the page before"`
}

// after reads the cursor: the id of the last row of the page before.
func (p Page) after() (string, error) {
	if p.Cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err != nil || strings.ContainsRune(string(b), 0) {
		return "", problem.NewInvalid(problem.Field{Location: "query.cursor", Message: "is not a cursor of this API; leave it out to begin at the first page"})
	}
	return string(b), nil
}

// paged cuts rows, of which one more than the limit was read, to a page.
func paged[R, V any](rows []R, limit int, id func(R) string, view func(R) V) *Listed[V] {
	out := &Listed[V]{Body: List[V]{Data: []V{}}}
	if len(rows) > limit {
		rows = rows[:limit]
		out.Body.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(id(rows[limit-1])))
	}
	for _, r := range rows {
		out.Body.Data = append(out.Body.Data, view(r))
	}
	return out
}

// Versioned answers with a resource and its version.
type Versioned[T any] struct {
	ETag string `header:"ETag"`
	Body T
}

func versioned[T any](version int64, body T) *Versioned[T] {
	return &Versioned[T]{ETag: etag(version), Body: body}
}

func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// Match is the version that a write is meant for.
type Match struct {
	IfMatch string `header:"If-Match" doc:"ETag of the version that is changed, or * for whichever is there"`
}

// version reads If-Match; current is asked for with *.
func (m Match) version(current func() (int64, error)) (int64, error) {
	text := strings.Trim(strings.TrimPrefix(strings.TrimSpace(m.IfMatch), "W/"), `"`)
	switch text {
	case "":
		return 0, problem.New(problem.VersionMissing, "this call needs If-Match with the ETag that reading the resource gave, or * to change whichever version is there")
	case "*":
		return current()
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 1 {
		return 0, problem.NewInvalid(problem.Field{Location: "header.If-Match", Message: "is not an ETag of this API"})
	}
	return v, nil
}

// under moves the fields of an InvalidError to where they stand in the request.
func under(location string, err error) error {
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

// actor is who asks, for the audit row.
func (s *Server) actor(ctx context.Context) db.Actor {
	return db.Actor{Owner: lifecycle.OwnerAdmin, ID: principal(ctx).ID}
}

// audit notes in the transaction what a person did to a resource.
func (s *Server) audit(ctx context.Context, tx *db.Tx, kind, id string, nodeID *string, name string, meta map[string]any) error {
	a := s.actor(ctx)
	a.Metadata = meta
	return tx.AppendAudit(ctx, db.Entry{ResourceKind: kind, ResourceID: id, NodeID: nodeID, Kind: db.EntryAction, Name: name, Actor: a})
}
