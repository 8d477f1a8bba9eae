package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// reporter is the function through which a page tells of what only it can see.
const reporter = "slipwayTestReport"

// prelude runs before any script of a page. hostileRan is what the hostile texts set when one of
// them is run as a script.
const prelude = `(() => {
  const report = window.` + reporter + `;
  document.addEventListener("securitypolicyviolation", (e) => report("content security policy: " + e.violatedDirective + " " + e.blockedURI + " " + e.sourceFile));
  Object.defineProperty(window, "hostileRan", { set(v) { report("a hostile text ran as a script: " + v); }, get() { return undefined; } });
  window.alert = window.confirm = window.prompt = (m) => { report("a page opened a dialog of the browser: " + m); return null; };
})();`

// allowance is an answer that a test expects although it is no success.
type allowance struct {
	status int64
	path   string
}

// watch notes the faults of one page.
type watch struct {
	origins []string

	mu       sync.Mutex
	faults   []string
	allowed  []allowance
	urls     map[network.RequestID]string
	requests int
}

func (w *watch) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// attributeRequest names the script that a request belongs to if the watch has not seen it begin.
func (w *watch) attributeRequest(id network.RequestID, script string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, seen := w.urls[id]; !seen {
		w.urls[id] = script + " (a request that began before the watch)"
	}
}

func (w *watch) isAllowed(status int64, url string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.allowed {
		if a.status == status && strings.Contains(url, a.path) {
			return true
		}
	}
	return false
}

func (w *watch) isOurs(url string) bool {
	for _, o := range w.origins {
		if url == o || strings.HasPrefix(url, o+"/") {
			return true
		}
	}
	// A data URL reaches nobody. The browser loads its own pictures of form fields in this way.
	return url == "about:blank" || strings.HasPrefix(url, "data:")
}

// listen begins to watch the page of ctx.
func (w *watch) listen(ctx context.Context) error {
	w.urls = map[network.RequestID]string{}
	chromedp.ListenTarget(ctx, w.handle)
	return chromedp.Run(ctx, network.Enable(), runtime.Enable(), log.Enable(), inspector.Enable(), runtime.AddBinding(reporter),
		chromedp.ActionFunc(func(ctx context.Context) error {
			_, err := page.AddScriptToEvaluateOnNewDocument(prelude).Do(ctx)
			return err
		}))
}

func (w *watch) handle(event any) {
	switch e := event.(type) {
	case *runtime.EventBindingCalled:
		w.fault("%s", e.Payload)
	case *inspector.EventTargetCrashed:
		w.fault("the page has crashed")
	case *runtime.EventExceptionThrown:
		w.fault("page error: %s", e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeAssert {
			w.fault("console error: %s", arguments(e.Args))
		}
	case *log.EventEntryAdded:
		// An answer that is no success stands here too; its status is checked below.
		if e.Entry.Level == log.LevelError && e.Entry.Source != log.SourceNetwork {
			w.fault("console error: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		w.mu.Lock()
		w.urls[e.RequestID] = e.Request.URL
		w.requests++
		w.mu.Unlock()
		if !w.isOurs(e.Request.URL) {
			w.fault("request to another origin: %s", e.Request.URL)
		}
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 && !w.isAllowed(e.Response.Status, e.Response.URL) {
			w.fault("answer %d to %s", e.Response.Status, e.Response.URL)
		}
	case *network.EventLoadingFailed:
		w.mu.Lock()
		url := w.urls[e.RequestID]
		w.mu.Unlock()
		// A page that is left gives its open requests up.
		if !e.Canceled && e.ErrorText != "net::ERR_ABORTED" {
			w.fault("request failed: %s %s", url, e.ErrorText)
		}
	}
}

func arguments(args []*runtime.RemoteObject) string {
	var out []string
	for _, a := range args {
		var text string
		switch {
		case json.Unmarshal(a.Value, &text) == nil:
			out = append(out, text)
		case a.Description != "":
			out = append(out, a.Description)
		default:
			out = append(out, string(a.Value))
		}
	}
	return strings.Join(out, " ")
}

// browserExecutor addresses the browser rather than the page of ctx.
func browserExecutor(ctx context.Context) context.Context {
	return cdp.WithExecutor(ctx, chromedp.FromContext(ctx).Browser)
}
