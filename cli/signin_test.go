package cli_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// people is an API whose users sign in at an identity provider, and the home of one account of this
// machine.
type people struct {
	t        *testing.T
	provider *identity.Provider
	url      string
	config   string
	// open does what a user does with the address that login opens.
	open func(address string)
	// portOwner is whose the browser is; nil asks the system.
	portOwner func(here, there string) (int, bool)
}

func newPeople(t *testing.T) *people {
	t.Helper()
	provider, err := identity.Start(t.Context(), identity.Options{PortalURL: "http://127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = provider.Close() })
	p := &people{t: t, provider: provider, config: filepath.Join(t.TempDir(), "slipway", "config.yaml")}
	p.url = p.serveAPI(rest.SignIn{Issuer: provider.Issuer, ClientID: identity.ProgramClient, Token: "access_token"})
	return p
}

// serveAPI runs an API that tells programs how they sign in.
func (p *people) serveAPI(how rest.SignIn) string {
	p.t.Helper()
	store := dbtest.Store(p.t)
	sealed, err := secrets.Open(p.t.Context(), store, secrets.Keeper{URL: "base64key://", KeyFile: filepath.Join(p.t.TempDir(), "key")}, secrets.Options{})
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = sealed.Close() })
	api, err := httpapi.New(httpapi.Config{
		API:  op.Config{Store: store, Auth: op.AuthConfig{Issuer: p.provider.Issuer, Audience: identity.Audience}},
		REST: rest.Config{Temporal: &world{}, Secrets: sealed, SignIn: how},
	})
	require.NoError(p.t, err)
	srv := httptest.NewServer(api.Handler())
	p.t.Cleanup(srv.Close)
	return srv.URL
}

// signsInAs returns what a user does with the address of a sign-in: he signs in and follows the
// redirect.
func (p *people) signsInAs(name string) func(string) {
	user, err := p.provider.User(name)
	require.NoError(p.t, err)
	return func(address string) {
		back, err := p.provider.NewBrowser().Authorize(p.t.Context(), address, user)
		if err == nil {
			_, _ = p.openPage(back.String())
		}
	}
}

func (p *people) openPage(address string) (int, string) {
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(body)
}

// watched is what a command prints, which the test reads meanwhile.
type watched struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func (p *people) runIn(ctx context.Context, errs io.Writer, args ...string) said {
	var out, kept bytes.Buffer
	code := cli.Run(ctx, cli.Env{
		In: strings.NewReader(""), Out: &out, Err: io.MultiWriter(errs, &kept), Version: "test", ConfigPath: p.config,
		Getenv: func(string) string { return "" }, PortOwner: p.portOwner, OpenBrowser: func(address string) {
			if p.open != nil {
				go p.open(address)
			}
		},
	}, args)
	return said{p.t, code, out.String(), kept.String()}
}

func (p *people) runCLI(args ...string) said {
	p.t.Helper()
	return p.runIn(p.t.Context(), io.Discard, args...)
}

var deviceAddress = regexp.MustCompile(`http://\S+/device\?user_code=[A-Z-]+`)

// loginByDevice runs a login, and answers the page that it prints.
func (p *people) loginByDevice(user string, confirm bool, args ...string) (said, string) {
	p.t.Helper()
	as, err := p.provider.User(user)
	require.NoError(p.t, err)
	errs, shown := &watched{}, make(chan string, 1)
	ended := make(chan said, 1)
	go func() {
		ended <- p.runIn(p.t.Context(), errs, append([]string{"login", "--server", p.url, "--device"}, args...)...)
	}()
	require.Eventually(p.t, func() bool { return deviceAddress.MatchString(errs.String()) }, 20*time.Second, 10*time.Millisecond, "the address of the page")
	page, err := p.provider.NewBrowser().AnswerDevice(p.t.Context(), deviceAddress.FindString(errs.String()), as, confirm)
	require.NoError(p.t, err)
	shown <- page
	return <-ended, <-shown
}

// expire makes the stored token old, and returns the file as it was.
func (p *people) expire() {
	p.t.Helper()
	raw, err := os.ReadFile(p.config)
	require.NoError(p.t, err)
	old := regexp.MustCompile(`expires: .*`).ReplaceAll(raw, []byte("expires: 2020-01-01T00:00:00Z"))
	require.NotEqual(p.t, raw, old)
	require.NoError(p.t, os.WriteFile(p.config, old, 0o600))
}

func TestLogin_SignsAUserInByTheBrowser(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	p.open = p.signsInAs(identity.Ada)
	in := p.runCLI("login", "--server", p.url).exits(0)
	require.Contains(t, in.out, "as ada@acme.example (no role of the platform)")
	require.NotContains(t, in.out+in.err, "eyJ", "no token is printed")
	info, err := os.Stat(p.config)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.Contains(t, p.runCLI("whoami").exits(0).out, "ada@acme.example")
	p.runCLI("logout").exits(0)
	p.runCLI("whoami").exits(cli.ExitUnauthorised)
	p.runCLI("logout").exits(cli.ExitUsage)
}

func TestLogin_KeepsOneContextForEachUser(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	host := strings.TrimPrefix(p.url, "http://")
	for _, name := range []string{identity.Ada, identity.Bob, identity.Ada} {
		p.open = p.signsInAs(name)
		p.runCLI("login", "--server", p.url).exits(0)
	}
	list := p.runCLI("context", "list").exits(0).out
	require.Equal(t, 2, strings.Count(list, p.url), list)
	require.Contains(t, p.runCLI("whoami", "--context", host).exits(0).out, "ada@acme.example")
	require.Contains(t, p.runCLI("whoami", "--context", host+"/bob@acme.example").exits(0).out, "bob@acme.example")

	p.open = p.signsInAs(identity.Bob)
	refused := p.runCLI("login", "--server", p.url, "--name", host).exits(cli.ExitRefused)
	require.Contains(t, refused.err, "is of ada@acme.example")
	require.Contains(t, p.runCLI("whoami", "--context", host).exits(0).out, "ada@acme.example")
}

func TestLogin_WaitsForTheAnswerToItsOwnQuestion(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	var forged, second int
	done := make(chan struct{})
	p.open = func(address string) {
		defer close(done)
		callback := regexp.MustCompile(`redirect_uri=([^&]+)`).FindStringSubmatch(address)[1]
		callback = strings.NewReplacer("%3A", ":", "%2F", "/").Replace(callback)
		forged, _ = p.openPage(callback + "?code=stolen&state=guessed")
		user, _ := p.provider.User(identity.Ada)
		back, err := p.provider.NewBrowser().Authorize(p.t.Context(), address, user)
		if err == nil {
			_, _ = p.openPage(back.String())
			second, _ = p.openPage(callback + "?code=stolen&state=guessed")
		}
	}
	p.runCLI("login", "--server", p.url).exits(0)
	<-done
	require.Equal(t, http.StatusBadRequest, forged)
	require.NotEqual(t, http.StatusOK, second)
}

func TestLogin_TellsThatTheUserWasRefused(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	p.open = func(address string) {
		find := func(name string) string {
			return strings.NewReplacer("%3A", ":", "%2F", "/").Replace(regexp.MustCompile(name + `=([^&]+)`).FindStringSubmatch(address)[1])
		}
		_, _ = p.openPage(find("redirect_uri") + "?error=access_denied&state=" + find("state") + "&iss=" + p.provider.Issuer)
	}
	require.Contains(t, p.runCLI("login", "--server", p.url).exits(cli.ExitUnauthorised).err, "denied in the browser")
}

func TestLogin_SignsAUserInByADevice(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	in, page := p.loginByDevice(identity.Bob, true)
	in.exits(0)
	require.Contains(t, in.out, "bob@acme.example")
	require.Contains(t, page, "slipway-cli", "the page names the program")
	require.Contains(t, page, "127.0.0.1", "and where it asks from")
	require.Contains(t, page, "slipway/test ("+cli.DeviceName()+")", "and the device")

	denied, _ := p.loginByDevice(identity.Ada, false, "--name", "other")
	require.Contains(t, denied.exits(cli.ExitUnauthorised).err, "denied in the browser")
	require.Contains(t, p.runCLI("whoami").exits(0).out, "bob@acme.example", "the context of before stays")
}

// Two commands find the token old at the same time. The provider takes each refresh token once.
func TestAccount_RenewsAnOldTokenOnce(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	p.open = p.signsInAs(identity.Ada)
	p.runCLI("login", "--server", p.url).exits(0)
	for range 3 {
		p.expire()
		var both sync.WaitGroup
		said := make([]said, 2)
		for i := range said {
			both.Go(func() { said[i] = p.runCLI("whoami") })
		}
		both.Wait()
		for _, s := range said {
			require.Contains(t, s.exits(0).out, "ada@acme.example")
		}
	}
}

func TestAccount_EndsWithTheSignIn(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	p.open = p.signsInAs(identity.Ada)
	p.runCLI("login", "--server", p.url).exits(0)
	kept, err := os.ReadFile(p.config)
	require.NoError(t, err)
	p.runCLI("logout").exits(0)
	require.NoError(t, os.WriteFile(p.config, kept, 0o600)) // somebody had copied the file
	p.expire()
	require.Contains(t, p.runCLI("whoami").exits(cli.ExitUnauthorised).err, "run slipway login --server "+p.url)
}

func TestLogin_RefusesWhatItCannotTrust(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	require.Contains(t, p.runCLI("login", "--server", p.serveAPI(rest.SignIn{})).exits(cli.ExitUsage).err, "--token-stdin")
	plain := p.serveAPI(rest.SignIn{Issuer: "http://id.example.com", ClientID: "c", Token: "access_token"})
	require.Contains(t, p.runCLI("login", "--server", plain).exits(cli.ExitError).err, "no https URL")
	p.open = p.signsInAs(identity.Ada)
	away := p.serveAPI(rest.SignIn{Issuer: "http://127.0.0.1:1", ClientID: "c", Token: "access_token"})
	require.Contains(t, p.runCLI("login", "--server", away).exits(cli.ExitUnreachable).err, "does not answer")
	p.runCLI("login", "--server", p.url, "--device", "--token-stdin").exits(cli.ExitUsage)
	require.NoFileExists(t, p.config)
}
