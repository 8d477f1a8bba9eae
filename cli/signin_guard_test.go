package cli_test

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
	"github.com/slipway-cloud/slipway/cli"
)

// answerOf returns where the provider sends the browser of a user back to.
func (p *people) answerOf(address, name string) *url.URL {
	user, err := p.provider.User(name)
	if err == nil {
		var back *url.URL
		if back, err = p.provider.NewBrowser().Authorize(p.t.Context(), address, user); err == nil {
			return back
		}
	}
	p.t.Errorf("the provider answers no sign-in: %v", err)
	return &url.URL{}
}

// A mix-up: the answer of one provider comes to a login at another one, which would get its code.
func TestLogin_RefusesAnotherProvidersAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(url.Values)
		says   string
	}{
		"another provider": {func(q url.Values) { q.Set("iss", "https://evil.example") }, "is of the identity provider https://evil.example"},
		"no provider":      {func(q url.Values) { q.Del("iss") }, "does not name its identity provider"},
		"two providers":    {func(q url.Values) { q.Add("iss", "https://evil.example") }, "https://evil.example"},
		"an empty name":    {func(q url.Values) { q.Set("iss", "") }, "is of the identity provider"},
		"a refusal": {func(q url.Values) {
			q.Del("code")
			q.Set("error", "access_denied")
			q.Set("iss", "https://evil.example")
		}, "https://evil.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeople(t)
			p.open = func(address string) {
				back := p.answerOf(address, identity.Ada)
				q := back.Query()
				c.change(q)
				back.RawQuery = q.Encode()
				_, _ = p.openPage(back.String())
			}
			require.Contains(t, p.runCLI("login", "--server", p.url).exits(cli.ExitUnauthorised).err, c.says)
			require.NoFileExists(t, p.config)
			require.Zero(t, p.provider.SignIns(identity.Ada), "the code is not exchanged")
		})
	}
}

// beginLogin runs a login, and returns the address that it opens.
func (p *people) beginLogin() (address string, ended <-chan said) {
	opened, done := make(chan string, 1), make(chan said, 1)
	p.open = func(address string) { opened <- address }
	go func() { done <- p.runIn(p.t.Context(), io.Discard, "login", "--server", p.url) }()
	select {
	case address = <-opened:
	case failed := <-done:
		require.Fail(p.t, "the login opens no page", failed.err)
	}
	return address, done
}

// Two logins at two servers wait at the same time. The answer to one is none to the other.
func TestLogin_TakesTheAnswerToItselfOnly(t *testing.T) {
	t.Parallel()
	first, second := newPeople(t), newPeople(t)
	atFirst, firstEnds := first.beginLogin()
	atSecond, secondEnds := second.beginLogin()
	mine, theirs := first.answerOf(atFirst, identity.Ada), second.answerOf(atSecond, identity.Bob)
	crossed := *mine
	crossed.RawQuery = theirs.RawQuery
	status, _ := first.openPage(crossed.String())
	require.Equal(t, http.StatusBadRequest, status)
	_, _ = first.openPage(mine.String())
	_, _ = second.openPage(theirs.String())
	require.Contains(t, (<-firstEnds).exits(0).out, "as ada@acme.example")
	require.Contains(t, (<-secondEnds).exits(0).out, "as bob@acme.example")
}

func TestLogin_EndsTheSessionThatItReplaces(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	login := func(name string) {
		p.open = p.signsInAs(name)
		p.runCLI("login", "--server", p.url).exits(0)
	}
	login(identity.Ada)
	copied, err := os.ReadFile(p.config)
	require.NoError(t, err)
	login(identity.Bob)
	login(identity.Ada)
	require.Equal(t, 1, p.provider.SignIns(identity.Ada))
	require.Equal(t, 1, p.provider.SignIns(identity.Bob), "the session of another user stays")
	p.expire()
	for name, at := range map[string]string{"ada": "", "bob": "/bob@acme.example"} {
		require.Contains(t, p.runCLI("whoami", "--context", strings.TrimPrefix(p.url, "http://")+at).exits(0).out, name+"@acme.example")
	}
	require.NoError(t, os.WriteFile(p.config, copied, 0o600))
	p.expire()
	require.Contains(t, p.runCLI("whoami").exits(cli.ExitUnauthorised).err, "has ended")
}

func TestLogin_TellsThatTheProviderEndedBoth(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	p.provider.EndAllOnRevoke()
	p.open = p.signsInAs(identity.Ada)
	p.runCLI("login", "--server", p.url).exits(0)
	require.Contains(t, p.runCLI("login", "--server", p.url).exits(cli.ExitUnauthorised).err, "together with the one that it replaces; run slipway login again")
	p.runCLI("login", "--server", p.url).exits(0)
	p.expire()
	p.runCLI("whoami").exits(0)
}

func TestLogin_LeavesNoSessionThatNoContextHas(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	p.open = p.signsInAs(identity.Ada)
	p.runCLI("login", "--server", p.url, "--name", "mine").exits(0)
	p.open = p.signsInAs(identity.Bob)
	p.runCLI("login", "--server", p.url, "--name", "mine").exits(cli.ExitRefused)
	require.Zero(t, p.provider.SignIns(identity.Bob))
	require.Equal(t, 1, p.provider.SignIns(identity.Ada))
}

func TestWhoami_SaysWhenAccessEnds(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	p.open = p.signsInAs(identity.Ada)
	p.runCLI("login", "--server", p.url).exits(0)
	said := p.runCLI("whoami").exits(0).out
	for _, want := range []string{"signed in at  " + p.provider.Issuer, "token ends    in ", "renewed by    slipway itself, until " + p.provider.Issuer, "slipway login --server " + p.url} {
		require.Contains(t, said, want)
	}
	require.Regexp(t, `token ends +\d{4}-\d\d-\d\d`, p.runCLI("whoami", "--utc").exits(0).out)
	require.Contains(t, signedIn(t).run("", "whoami").exits(0).out, "slipway token list")
}

// Whoever sees the address of a sign-in in the list of processes can finish it as himself.
func TestLogin_RefusesTheBrowserOfAnotherUser(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	var mine atomic.Bool
	p.portOwner = func(here, there string) (int, bool) {
		uid, known := cli.PortOwner(here, there)
		if !mine.Load() {
			uid = os.Getuid() + 1
		}
		return uid, known
	}
	address, ended := p.beginLogin()
	status, why := p.openPage(p.answerOf(address, identity.Bob).String())
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, why, "another user of this machine")
	mine.Store(true)
	_, _ = p.openPage(p.answerOf(address, identity.Ada).String())
	require.Contains(t, (<-ended).exits(0).out, "as ada@acme.example")
}

func TestPortOwner_IsTheFarEnds(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"127.0.0.1:0", "[::1]:0"} {
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), "tcp", network)
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		var d net.Dialer
		far, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = far.Close() })
		near, err := l.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _ = near.Close() })
		uid, known := cli.PortOwner(near.LocalAddr().String(), near.RemoteAddr().String())
		require.True(t, known, network)
		require.Equal(t, os.Getuid(), uid)
		_, known = cli.PortOwner(near.LocalAddr().String(), "127.0.0.1:1")
		require.False(t, known)
	}
}

// The kernel prints the words of an address as numbers of the machine, here of one that is little
// endian. A line that is none is left out.
func TestOwnerIn_ReadsTheKernelsTable(t *testing.T) {
	t.Parallel()
	table := "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1001        0 1 1\n" +
		"   x: nonsense\n   y: 01:zz 02 03 04 05 06 07 08\n" +
		"   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n" +
		"   2: 0000000000000000FFFF00000100007F:C351 0000000000000000FFFF00000100007F:1F90 01 0:0 00:0 0  1002        0 3 1\n"
	for port, want := range map[int]int{50000: 1000, 50001: 1002} {
		uid, known := cli.OwnerIn(strings.NewReader(table), "127.0.0.1:"+strconv.Itoa(port), "127.0.0.1:8080")
		require.True(t, known)
		require.Equal(t, want, uid)
	}
	_, known := cli.OwnerIn(strings.NewReader(table), "127.0.0.1:50002", "127.0.0.1:8080")
	require.False(t, known)
}
