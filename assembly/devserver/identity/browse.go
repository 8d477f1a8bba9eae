package identity

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"golang.org/x/oauth2"
)

// Browser goes through the provider's form as a user's browser does, and keeps its cookies.
type Browser struct {
	Forms    int // how often a form was filled in
	provider *Provider
	http     *http.Client
}

// NewBrowser makes a browser without cookies.
func (p *Provider) NewBrowser() *Browser {
	jar, _ := cookiejar.New(nil) // it fails for no options
	return &Browser{provider: p, http: &http.Client{
		Timeout: callTimeout, Jar: jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

var hiddenID = regexp.MustCompile(`name="id" value="([^"]+)"`)

// maxSteps bounds the pages of one sign-in.
const maxSteps = 10

// Authorize opens the address that a client sends browsers to, fills in the form where there is
// one, and returns where the provider sends the browser back to.
func (b *Browser) Authorize(ctx context.Context, address string, as User) (*url.URL, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	var form url.Values
	for range maxSteps {
		status, location, body, err := b.open(ctx, at, form)
		if err != nil {
			return nil, err
		}
		form = nil
		if location != "" {
			if at, err = at.Parse(location); err != nil {
				return nil, err
			}
			if "http://"+at.Host != b.provider.Issuer {
				return at, nil
			}
			continue
		}
		id := hiddenID.FindStringSubmatch(body)
		if id == nil || status != http.StatusOK {
			return nil, fmt.Errorf("the provider refuses the sign-in with status %d: %s", status, body)
		}
		b.Forms++
		form = url.Values{"id": {id[1]}, "user": {as.Name}, "password": {as.Password}}
		at, _ = at.Parse(loginPath)
	}
	return nil, errors.New("the provider does not come to an end with the sign-in")
}

// AnswerDevice opens the address that a program without a browser shows, and confirms or denies its
// sign-in. It returns the page that shows which program asks.
func (b *Browser) AnswerDevice(ctx context.Context, address string, as User, confirm bool) (shown string, err error) {
	at, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	status, _, shown, err := b.open(ctx, at, nil)
	if err != nil || status != http.StatusOK {
		return shown, errors.Join(err, fmt.Errorf("the provider answers a device's address with status %d", status))
	}
	form := url.Values{"user_code": {at.Query().Get("user_code")}, "user": {as.Name}, "password": {as.Password}, "answer": {"deny"}}
	if confirm {
		form.Set("answer", "confirm")
	}
	b.Forms++
	status, _, said, err := b.open(ctx, &url.URL{Scheme: at.Scheme, Host: at.Host, Path: devicePath}, form)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the provider answers a confirmation with status %d: %s", status, said)
	}
	return shown, err
}

// SignOut ends the browser's login at the provider.
func (b *Browser) SignOut(ctx context.Context) error {
	at, err := url.Parse(b.provider.Issuer + "/end_session")
	if err != nil {
		return err
	}
	status, _, body, err := b.open(ctx, at, nil)
	if err == nil && status != http.StatusFound {
		err = fmt.Errorf("the provider refuses the sign-out with status %d: %s", status, body)
	}
	return err
}

const maxPage = 64 << 10

// open reads a page, or posts a form. It returns the status, the address of a redirect, and the
// page.
func (b *Browser) open(ctx context.Context, at *url.URL, form url.Values) (status int, location, body string, err error) {
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, at.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return 0, "", "", err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := b.http.Do(req)
	if err != nil {
		return 0, "", "", err
	}
	defer res.Body.Close() //nolint:errcheck // read to the end below
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxPage))
	return res.StatusCode, res.Header.Get("Location"), string(raw), err
}

// BearerToken signs a user in as the command line would, and returns the token for the API.
func (p *Provider) BearerToken(ctx context.Context, user string) (string, error) {
	u, err := p.User(user)
	if err != nil {
		return "", err
	}
	config := oauth2.Config{
		ClientID: ProgramClient, RedirectURL: programRedirect, Scopes: []string{oidc.ScopeOpenID, oidc.ScopeProfile, oidc.ScopeEmail},
		Endpoint: oauth2.Endpoint{AuthURL: p.Issuer + "/authorize", TokenURL: p.Issuer + "/oauth/token", AuthStyle: oauth2.AuthStyleInParams},
	}
	verifier, state := oauth2.GenerateVerifier(), rand.Text()
	b := p.NewBrowser()
	back, err := b.Authorize(ctx, config.AuthCodeURL(state, oauth2.S256ChallengeOption(verifier)), u)
	if err != nil {
		return "", err
	}
	if back.Query().Get("state") != state {
		return "", errors.New("the provider answers another request")
	}
	token, err := config.Exchange(context.WithValue(ctx, oauth2.HTTPClient, b.http), back.Query().Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		return "", err
	}
	return token.AccessToken, nil
}
