package identity

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	loginPath     = "/login"
	signedOutPath = "/signed-out"
	loginCookie   = "slipway_dev_identity"
	loginLasts    = 12 * time.Hour
	maxForm       = 4 << 10
)

// login is a user who is signed in at the provider in one browser.
type login struct {
	subject, sid string
	at           time.Time
}

type loginKey struct{}

// withLogin notes in the context which login a browser has.
func (p *Provider) withLogin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := r.Cookie(loginCookie); err == nil {
			p.mu.Lock()
			l, found := p.logins[c.Value]
			p.mu.Unlock()
			if found && time.Since(l.at) < loginLasts {
				r = r.WithContext(context.WithValue(r.Context(), loginKey{}, l))
			}
		}
		next.ServeHTTP(w, r)
	})
}

func sidOf(ctx context.Context) string {
	l, _ := ctx.Value(loginKey{}).(login)
	return l.sid
}

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,"><title>Slipway dev identity provider</title>
<main><h1>{{.Heading}}</h1>
{{if .Problem}}<p role="alert">{{.Problem}}</p>{{end}}
{{if .ID}}<form method="post" action="{{.Action}}">
<input type="hidden" name="id" value="{{.ID}}">
<p><label>User name <input name="user" autocomplete="username" required autofocus></label></p>
<p><label>Password <input name="password" type="password" autocomplete="current-password" required></label></p>
<p><button>Sign in</button></p>
</form>{{end}}
</main></html>
`))

type pageData struct{ Heading, Problem, ID, Action string }

func pageHeaders(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; img-src data:; base-uri 'none'; frame-ancestors 'none'")
}

func show(w http.ResponseWriter, status int, d pageData) {
	pageHeaders(w)
	w.WriteHeader(status)
	d.Action = loginPath
	_ = page.Execute(w, d) // the status is out; a broken connection is the browser's to notice
}

const loginHeading = "Sign in to the dev identity provider"

// showLogin shows the form. A browser that is signed in goes on without it, unless the client wants
// the user to be asked.
func (p *Provider) showLogin(w http.ResponseWriter, r *http.Request) {
	asked, err := p.request(r.URL.Query().Get("id"))
	if err != nil {
		show(w, http.StatusBadRequest, pageData{Heading: "The sign-in cannot go on", Problem: err.Error() + "; begin again where you came from"})
		return
	}
	l, found := r.Context().Value(loginKey{}).(login)
	if found && !asked.wantsPassword(l.at) {
		p.finish(w, r, asked.id, l)
		return
	}
	show(w, http.StatusOK, pageData{Heading: loginHeading, ID: asked.id})
}

// wantsPassword reports whether a login of that time is not enough.
func (r *request) wantsPassword(at time.Time) bool {
	return slices.Contains(r.Prompt, oidc.PromptLogin) || r.MaxAge != nil && time.Since(at) >= time.Duration(*r.MaxAge)*time.Second
}

// takeLogin checks the password.
func (p *Provider) takeLogin(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	id := r.PostFormValue("id")
	if _, err := p.request(id); err != nil {
		show(w, http.StatusBadRequest, pageData{Heading: "The sign-in cannot go on", Problem: err.Error() + "; begin again where you came from"})
		return
	}
	u, err := p.User(r.PostFormValue("user"))
	if err != nil || subtle.ConstantTimeCompare([]byte(u.Password), []byte(r.PostFormValue("password"))) != 1 {
		show(w, http.StatusUnauthorized, pageData{Heading: loginHeading, ID: id, Problem: "User name or password is wrong. slipway-dev prints both."})
		return
	}
	cookie, l := rand.Text(), login{subject: u.Subject(), sid: sidOf(r.Context()), at: time.Now()}
	if before, ok := r.Context().Value(loginKey{}).(login); !ok || before.subject != l.subject {
		l.sid = rand.Text()
	}
	p.mu.Lock()
	if old, err := r.Cookie(loginCookie); err == nil {
		delete(p.logins, old.Value)
	}
	p.logins[cookie] = l
	p.mu.Unlock()
	http.SetCookie(w, &http.Cookie{Name: loginCookie, Value: cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: int(loginLasts / time.Second)})
	p.finish(w, r, id, l)
}

// finish lets an authorization go on for a user.
func (p *Provider) finish(w http.ResponseWriter, r *http.Request, id string, l login) {
	p.mu.Lock()
	if asked := p.requests[id]; asked != nil {
		asked.subject, asked.sid, asked.authTime = l.subject, l.sid, l.at
	}
	p.mu.Unlock()
	http.Redirect(w, r, op.AuthCallbackURL(p.engine)(op.ContextWithIssuer(r.Context(), p.Issuer), id), http.StatusSeeOther)
}

func (p *Provider) showSignedOut(w http.ResponseWriter, _ *http.Request) {
	show(w, http.StatusOK, pageData{Heading: "You are signed out"})
}

// endLogins ends logins and tells the portal of each (OpenID Connect Back-Channel Logout).
func (p *Provider) endLogins(ctx context.Context, which func(login) bool) error {
	p.mu.Lock()
	var ended []login
	for cookie, l := range p.logins {
		if which(l) {
			ended = append(ended, l)
			delete(p.logins, cookie)
		}
	}
	p.mu.Unlock()
	var failed []error
	for _, l := range ended {
		failed = append(failed, p.tellPortal(ctx, l))
	}
	return errors.Join(failed...)
}

const logoutTokenLasts = 2 * time.Minute

func (p *Provider) tellPortal(ctx context.Context, l login) error {
	token, err := p.Sign(oidc.NewLogoutTokenClaims(p.Issuer, l.subject, oidc.Audience{PortalClient}, time.Now().Add(logoutTokenLasts), rand.Text(), l.sid, 0))
	if err != nil {
		return err
	}
	body := strings.NewReader(url.Values{"logout_token": {token}}.Encode())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.portalURL+"/portal/oidc/logout", body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := p.http.Do(req)
	if err != nil {
		return err
	}
	if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("the portal answers a logout with status %d", res.StatusCode), err)
	}
	return nil
}

// AgeLogins makes all logins older, as time does. It is for tests.
func (p *Provider) AgeLogins(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for cookie, l := range p.logins {
		l.at = l.at.Add(-by)
		p.logins[cookie] = l
	}
}
