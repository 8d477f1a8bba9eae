// Package browser drives Chromium for the tests of the portal. It finds elements by role and
// accessible name, as a screen reader does, acts with the mouse or the keyboard, and notes whatever
// a page does that it should not.
package browser

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/realhost"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// programs are the names under which distributions install the browser.
var programs = []string{"chromium", "chromium-browser", "google-chrome"}

// Browser is one running browser.
type Browser struct {
	ctx context.Context
}

// Start starts a browser with a profile of its own, and stops it when the test ends. It skips the
// test where no browser is installed, and fails it where none may be missing.
func Start(t *testing.T) *Browser {
	t.Helper()
	path := ""
	for _, name := range programs {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		const missing = "no browser is installed: apt-get install --no-install-recommends chromium"
		if os.Getenv(realhost.RequireVar) == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(filepath.Join(t.TempDir(), "profile")),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("font-render-hinting", "none"),
		chromedp.Flag("lang", "en-GB"), chromedp.WSURLReadTimeout(runenv.Patience(time.Minute)))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // the sandbox refuses to start as root
	}
	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	// Events that a newer browser words in another way are no fault of the page.
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(func() {
		end, done := context.WithTimeout(ctx, 20*time.Second)
		defer done()
		_ = chromedp.Cancel(end) // waits for the process, which writes to its profile until then
		cancel()
		stop()
	})
	require.NoError(t, chromedp.Run(ctx), "the browser %s does not start", path)
	return &Browser{ctx: ctx}
}

// Open opens a page of a profile without cookies. Requests may go to origin and to others alone.
func (b *Browser) Open(t *testing.T, origin string, others ...string) *Page {
	t.Helper()
	var profile cdp.BrowserContextID
	require.NoError(t, chromedp.Run(b.ctx, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		profile, err = target.CreateBrowserContext().Do(browserExecutor(ctx))
		return err
	})))
	return b.open(t, profile, append([]string{origin}, others...))
}

// OpenTab opens another page beside p, with the same cookies.
func (p *Page) OpenTab(t *testing.T) *Page {
	t.Helper()
	return p.browser.open(t, p.profile, p.watch.origins)
}

func (b *Browser) open(t *testing.T, profile cdp.BrowserContextID, origins []string) *Page {
	t.Helper()
	var id target.ID
	require.NoError(t, chromedp.Run(b.ctx, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		id, err = target.CreateTarget("about:blank").WithBrowserContextID(profile).WithNewWindow(true).Do(browserExecutor(ctx))
		return err
	})))
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithTargetID(id))
	p := &Page{t: t, ctx: ctx, browser: b, profile: profile, watch: &watch{origins: origins}}
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Run(ctx)) // the page ends with this context, so it has no deadline
	require.NoError(t, p.watch.listen(ctx))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last picture: %s\nlast text: %.3000s", p.Picture("failed"), p.text())
		}
		p.RequireNoFaults()
	})
	return p
}
