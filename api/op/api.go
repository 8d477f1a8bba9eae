// Package op is the kernel that every REST area shares: operations with their roles, problem
// documents, idempotency keys, pages, versions, sign-in and the middleware of the listener. An area
// is a package with a Register function that takes an API: it grants roles to its routes, declares
// its operations with Add, and writes in transactions of the API's store.
package op

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

// Config configures an API. Only Store is required.
type Config struct {
	Store   *db.Store
	Auth    AuthConfig
	Log     *slog.Logger // nil discards the log
	Version string       // "" is dev
	// PublicURL is the address of the API for its users. The OpenAPI document contains it, and
	// links to pages of docs/ begin with it.
	PublicURL string
	// StreamRecheck is the interval at which a stream checks that its reader still has access. 0
	// selects 20 s.
	StreamRecheck time.Duration
	// PrincipalRate and AddressRate are the maximum requests per second of one principal and of one
	// address. 0 selects the default. A burst may have five times as many.
	PrincipalRate, AddressRate int
}

// API collects the operations of all areas and serves them on one router.
type API struct {
	store     *db.Store
	log       *slog.Logger
	version   string
	publicURL string
	router    chi.Router
	huma      huma.API
	access    map[string]Role
	stepUps   map[string]StepUp
	sessions  Sessions // nil: bearer tokens only
	inputs    []reflect.Type
	oidc      *oidcVerifier
	refused   refusals
	unbounded []func(path string) bool
	redacted  []func(path string) string
	feeds     *feeds
	streams   *streamCounter
	rates     rates
	// recheckEvery is the interval at which a stream checks that its reader still has access.
	recheckEvery time.Duration
	uses         tokenUses
	shorts       map[string]Short // by method and path
	misuse       []error          // mistakes in declarations, which Close reports
}

// New returns an API without operations. Areas register their operations until Close is called.
func New(cfg Config) (*API, error) {
	if cfg.Store == nil {
		return nil, errors.New("the API needs a store")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Version == "" {
		cfg.Version = "dev"
	}
	a := &API{store: cfg.Store, log: cfg.Log, version: cfg.Version, publicURL: cfg.PublicURL, router: chi.NewRouter(), access: map[string]Role{}, stepUps: map[string]StepUp{}, shorts: map[string]Short{},
		feeds: newFeeds(cfg.Store), streams: newStreamCounter(), refused: newRefusals(), recheckEvery: cmp.Or(cfg.StreamRecheck, recheckEvery),
		rates: newRates(cfg), uses: tokenUses{write: cfg.Store.NoteTokenUses, log: cfg.Log, now: time.Now}}
	if cfg.Auth.Issuer != "" {
		a.oidc = newOIDCVerifier(cfg.Auth)
	}
	a.router.Use(a.middleware()...)
	a.router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		a.WriteError(w, r, problem.New(problem.NotFound, "there is no "+r.URL.Path+"; /openapi.json lists what there is"))
	})
	a.router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		a.WriteError(w, r, problem.New(problem.MethodNotAllowed, r.Method+" is not possible here; the Allow header and /openapi.json say what is"))
	})
	a.huma = humachi.New(a.router, a.humaConfig(cfg))
	a.registerDocument()
	a.router.Get("/docs", serveDocs)
	a.router.Get("/docs/ui/{file}", a.serveViewer)
	a.router.Get("/docs/*", a.servePage)
	a.router.Get("/", a.redirectHome)
	return a, nil
}

// redirectHome sends a browser to the portal, and a program to the API reference.
func (a *API) redirectHome(w http.ResponseWriter, r *http.Request) {
	to := "/docs"
	if a.sessions != nil && AcceptsHTML(r) {
		to = "/portal/"
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// AcceptsHTML reports whether a request asks for a page, as browsers do.
func AcceptsHTML(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// Close ends the registration. It returns an error when a route has no role, or when the access
// table names a route that does not exist.
func (a *API) Close() error {
	a.tidyDocument()
	return errors.Join(append(a.misuse, a.checkAccess(), a.checkStepUps())...)
}

// Handler serves the API and the plain routes.
func (a *API) Handler() http.Handler { return a.router }

// Router returns the router for plain routes. A plain route is not an operation: it has no role and
// is not in the OpenAPI document. RequireRole adds a role.
func (a *API) Router() chi.Router { return a.router }

// OpenAPI returns the API's document as YAML.
func (a *API) OpenAPI() ([]byte, error) { return a.huma.OpenAPI().YAML() }

// Schema returns the schema of T for a response that an operation describes by hand.
func Schema[T any](a *API, name string) *huma.Schema {
	return a.huma.OpenAPI().Components.Schemas.Schema(typeOf[T](), true, name)
}

// Store returns the store that operations read and write.
func (a *API) Store() *db.Store { return a.store }

// Log returns the API's logger.
func (a *API) Log() *slog.Logger { return a.log }

// Version returns the server's version.
func (a *API) Version() string { return a.version }

func (a *API) humaConfig(cfg Config) huma.Config {
	c := huma.DefaultConfig("Slipway", cfg.Version)
	c.CreateHooks = nil                                   // no $schema in bodies
	c.SchemasPath, c.DocsPath, c.OpenAPIPath = "", "", "" // registerDocument serves the document
	c.FieldsOptionalByDefault = true                      // omitted fields get their defaults; types mark required fields
	c.RejectUnknownQueryParameters = true
	c.Transformers = []huma.Transformer{a.transform}
	c.Info.Description = "The control plane of a GPU cloud: bare servers become active GPU nodes.\n\n" +
		"Every call but health, documentation and version needs a bearer token, or the session of a browser that is signed in at /portal/. POSTs that create need an Idempotency-Key. " +
		"Writes carry the version of what they change in If-Match. Errors are problem documents (RFC 9457)."
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer":  {Type: "http", Scheme: "bearer", Description: "An API token (slp_...) or an OIDC token"},
		"session": {Type: "apiKey", In: "cookie", Name: "__Host-slipway_session", Description: "The session of the portal in a browser"},
	}
	if cfg.PublicURL != "" {
		c.Servers = []*huma.Server{{URL: cfg.PublicURL}}
	}
	return c
}
