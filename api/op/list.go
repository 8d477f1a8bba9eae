package op

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

// List is one page of a list.
type List[T any] struct {
	Data []T `json:"data" nullable:"false"`
	// NextCursor is absent on the last page.
	NextCursor string `json:"next_cursor,omitempty" doc:"Pass it as cursor to get the next page; absent on the last"`
}

// Listed is the answer to a list call.
type Listed[T any] struct{ Body List[T] }

// Page has the parameters of a list call.
type Page struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"Rows in one page"`
	Cursor string `query:"cursor" maxLength:"200" doc:"next_cursor of the page before"`
}

// After decodes the cursor. It returns the id of the last row of the previous page.
func (p Page) After() (string, error) {
	if p.Cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err != nil || strings.ContainsRune(string(b), 0) || !utf8.Valid(b) {
		return "", problem.NewInvalid(problem.Field{Location: "query.cursor", Message: "is not a cursor of this API; leave it out to begin at the first page"})
	}
	return string(b), nil
}

// AfterNumber decodes a cursor that is a number. It returns 0 if there is no cursor.
func (p Page) AfterNumber() (int64, error) {
	at, err := p.After()
	if err != nil || at == "" {
		return 0, err
	}
	n, err := strconv.ParseInt(at, 10, 64)
	if err != nil || n < 0 {
		return 0, problem.NewInvalid(problem.Field{Location: "query.cursor", Message: "is not a cursor of this list; leave it out to begin at the first page"})
	}
	return n, nil
}

// CursorOf returns the cursor from which After returns the place.
func CursorOf(place string) string { return base64.RawURLEncoding.EncodeToString([]byte(place)) }

// Paged returns a page of rows. The caller has read one row more than the limit, which shows
// whether there is a next page.
func Paged[R, V any](rows []R, limit int, id func(R) string, view func(R) V) *Listed[V] {
	out := &Listed[V]{Body: List[V]{Data: []V{}}}
	if len(rows) > limit {
		rows = rows[:limit]
		out.Body.NextCursor = CursorOf(id(rows[limit-1]))
	}
	for _, r := range rows {
		out.Body.Data = append(out.Body.Data, view(r))
	}
	return out
}

// Versioned is an answer with a resource and its version.
type Versioned[T any] struct {
	ETag string `header:"ETag"`
	Body T
}

// WithVersion returns an answer with a resource of this version.
func WithVersion[T any](version int64, body T) *Versioned[T] {
	return &Versioned[T]{ETag: ETag(version), Body: body}
}

// NewCreated returns a 201 answer with a new resource of this version.
func NewCreated[T any](location string, version int64, body T) *Created[T] {
	return &Created[T]{Status: http.StatusCreated, Location: location, ETag: ETag(version), Body: body}
}

// ETag returns a version in the form of the ETag header.
func ETag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// Match has the version of the resource that a write applies to.
type Match struct {
	IfMatch string `header:"If-Match" maxLength:"200" doc:"ETag of the version that is changed, or * for whichever is there"`
}

// AnyVersion returns 0 as the version for *. A caller that checks the version later uses it.
func AnyVersion() (int64, error) { return 0, nil }

// Version returns the version in If-Match. For * it returns the version from current.
func (m Match) Version(current func() (int64, error)) (int64, error) {
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

// OneNamed returns the answer to a list by name: one row, or no row if the name is not found.
func OneNamed[R, V any](view func(R) V) func(R, error) (*Listed[V], error) {
	return func(row R, err error) (*Listed[V], error) {
		out := &Listed[V]{Body: List[V]{Data: []V{}}}
		if errors.Is(err, db.ErrNotFound) {
			return out, nil
		}
		out.Body.Data = append(out.Body.Data, view(row))
		return out, err
	}
}
