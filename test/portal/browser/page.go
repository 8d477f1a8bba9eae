package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// patience is how long a page may take to show what a test waits for, on a machine that is not
// busy.
const patience = 15 * time.Second

// Page is one tab. Its methods end the test when they cannot do what they are asked.
type Page struct {
	t       *testing.T
	ctx     context.Context
	browser *Browser
	profile cdp.BrowserContextID
	watch   *watch
}

func (p *Page) run(actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(p.ctx, runenv.Patience(patience))
	defer cancel()
	return chromedp.Run(ctx, actions...)
}

// RequireNoFaults fails the test if the page did something that it should not.
func (p *Page) RequireNoFaults() {
	p.t.Helper()
	if faults := p.Faults(); len(faults) > 0 {
		p.t.Errorf("the page has faults:\n  %s", strings.Join(faults, "\n  "))
	}
}

// Faults returns what the page did that it should not, and forgets it.
func (p *Page) Faults() []string {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	out := slices.Compact(p.watch.faults)
	p.watch.faults = nil
	return out
}

// Requests returns how many requests the page has sent.
func (p *Page) Requests() int {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	return p.watch.requests
}

// Allow says that answers with a status to URLs with path in them are expected.
func (p *Page) Allow(status int64, path string) {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	p.watch.allowed = append(p.watch.allowed, allowance{status, path})
}

// Go opens a path of the page's own origin.
func (p *Page) Go(path string) {
	p.t.Helper()
	require.NoError(p.t, p.run(chromedp.Navigate(p.watch.origins[0]+path)), "open %s", path)
}

// Visit opens a page of any origin.
func (p *Page) Visit(url string) {
	p.t.Helper()
	require.NoError(p.t, p.run(chromedp.Navigate(url)), "open %s", url)
}

// Reload loads the page again.
func (p *Page) Reload() {
	p.t.Helper()
	require.NoError(p.t, p.run(chromedp.Reload()))
}

// Path returns path and query of the address.
func (p *Page) Path() string {
	p.t.Helper()
	return p.String(`location.pathname + location.search`)
}

// String evaluates a JavaScript expression whose value is a string.
func (p *Page) String(expression string) string {
	p.t.Helper()
	var out string
	p.Evaluate(expression, &out)
	return out
}

// Evaluate evaluates a JavaScript expression, or waits for it where it is a promise.
func (p *Page) Evaluate(expression string, into any) {
	p.t.Helper()
	require.NoError(p.t, p.run(chromedp.Evaluate(expression, into, chromedp.EvalAsValue, awaitPromise)), "%.300s", expression)
}

// Text returns what the page shows.
func (p *Page) Text() string {
	p.t.Helper()
	return p.String(bodyText)
}

const bodyText = `document.body ? document.body.innerText : ""`

// text is Text for a test that has failed already.
func (p *Page) text() string {
	var out string
	if err := p.look(chromedp.Evaluate(bodyText, &out).Do); err != nil {
		return err.Error()
	}
	return out
}

// Await waits until ok returns true.
func (p *Page) Await(what string, within time.Duration, ok func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(runenv.Patience(within)); ; {
		if ok() {
			return
		}
		require.NoError(p.t, p.ctx.Err(), "the browser has ended while the page was to show %s", what)
		if time.Now().After(deadline) {
			require.FailNow(p.t, fmt.Sprintf(runenv.Deadline+"the page at %s does not show %s; it shows:\n%.2000s", p.Path(), what, p.text()))
		}
		p.Pause(100 * time.Millisecond)
	}
}

// Pause is a bounded pause between two looks.
func (p *Page) Pause(d time.Duration) {
	select {
	case <-p.t.Context().Done():
	case <-time.After(d):
	}
}

// AwaitText waits until the page shows a text.
func (p *Page) AwaitText(want string) {
	p.t.Helper()
	p.AwaitTextWithin(want, patience)
}

// AwaitTextWithin is AwaitText for what takes long outside the page.
func (p *Page) AwaitTextWithin(want string, within time.Duration) {
	p.t.Helper()
	p.Await(fmt.Sprintf("%q", want), within, func() bool { return strings.Contains(strings.ToLower(p.text()), strings.ToLower(want)) })
}

// Resize sets the size of the page's area.
func (p *Page) Resize(width, height int64) {
	p.t.Helper()
	require.NoError(p.t, p.run(chromedp.EmulateViewport(width, height)))
}

// Pictures is where the pictures go, below the root of the checkout.
const Pictures = ".test/portal"

// Picture keeps a picture of the page and returns its file.
func (p *Page) Picture(name string) string {
	var raw []byte
	if err := p.run(chromedp.CaptureScreenshot(&raw)); err != nil {
		return err.Error()
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err.Error()
	}
	file := filepath.Join(root, Pictures, strings.ReplaceAll(p.t.Name(), "/", "-")+"-"+name+".png")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err.Error()
	}
	if err := os.WriteFile(file, raw, 0o644); err != nil {
		return err.Error()
	}
	return file
}

// PictureThemes keeps a picture of the page in each of the themes, and leaves it in the first.
func (p *Page) PictureThemes(name string, themes []string) {
	p.t.Helper()
	for _, theme := range themes {
		p.UseTheme(theme)
		p.Picture(name + "-" + theme)
	}
	p.UseTheme(themes[0])
}

// HeapBytes returns how much memory the scripts of the page hold, after what they no longer need is
// gone.
func (p *Page) HeapBytes() float64 {
	p.t.Helper()
	var used float64
	require.NoError(p.t, p.run(heapprofiler.CollectGarbage(), chromedp.ActionFunc(func(ctx context.Context) (err error) {
		used, _, _, _, err = runtime.GetHeapUsage().Do(ctx)
		return err
	})))
	return used
}
