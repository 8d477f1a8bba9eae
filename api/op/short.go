package op

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
)

// ProjectHeader is the header that names the project of a request whose address names none. A
// project token needs no header.
const ProjectHeader = "Slipway-Project"

// Short is an address without a project, which leads to an operation. It is not in the OpenAPI
// document.
type Short struct {
	Route    string // method and whole path, such as "GET /instances"
	Own      string // path below Prefix, with {id} for the project of the caller
	Platform string // path below Prefix for callers who name no project; "" refuses them
}

// Shorten adds addresses without a project.
func (a *API) Shorten(rows ...Short) {
	for _, row := range rows {
		a.shorts[row.Route] = row
	}
}

// serveShort has the router serve a short address as the operation that it leads to.
func (a *API) serveShort(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		row, is := a.shorts[r.Method+" "+r.URL.Path]
		if !is {
			next.ServeHTTP(w, r)
			return
		}
		project, err := a.projectNamed(r)
		if err = a.limitRefusals(r, err); err != nil {
			a.WriteError(w, r, err)
			return
		}
		path := row.Platform
		if project != "" {
			path = strings.ReplaceAll(row.Own, "{id}", project)
		}
		if path == "" {
			a.WriteError(w, r, problem.NewInvalid(problem.Field{Location: "header." + ProjectHeader, Message: "is missing; name the project, or use a token of the project"}))
			return
		}
		to := *r
		to.URL = &url.URL{Path: Prefix + path, RawQuery: r.URL.RawQuery}
		next.ServeHTTP(w, &to)
	})
}

// projectNamed returns the project that a request names by its header or by its token, "" for none.
// The operation checks the rights.
func (a *API) projectNamed(r *http.Request) (string, error) {
	project := r.Header.Get(ProjectHeader)
	if project != "" {
		if !segmentPattern.MatchString(project) {
			return "", problem.NewInvalid(problem.Field{Location: "header." + ProjectHeader, Message: "must be the id of a project"})
		}
		return project, nil
	}
	_, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if text = strings.TrimSpace(text); !strings.HasPrefix(text, ProjectTokenPrefix) || len(text) > maxBearer {
		return "", nil
	}
	t, err := tenancydb.TokenByHash(r.Context(), a.store, TokenHash(text))
	if errors.Is(err, db.ErrNotFound) {
		return "", rejected()
	}
	return t.ProjectID, err
}
