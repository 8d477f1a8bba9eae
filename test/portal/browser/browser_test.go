package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/portal/browser"
)

// worker starts a shared worker of the page's own; each page that has it starts another one.
const worker = `<script>new SharedWorker("/worker.js", { name: location.pathname }).port.onmessage = () => document.body.append("worker runs")</script>`

const policy = "default-src 'none'; script-src 'self' 'unsafe-inline'; connect-src *; img-src 'self'"

func serve(t *testing.T, pages map[string]string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Security-Policy", policy)
		if strings.HasSuffix(r.URL.Path, ".js") {
			w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
			fmt.Fprint(w, body)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!doctype html><html lang="en"><title>t</title><link rel="icon" href="/icon">%s</html>`, body)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// Each fault that the tests of the portal rely on is made once and must be seen.
func TestPage_NotesFaults(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	other := serve(t, map[string]string{"/x": ""})
	pages := map[string]struct{ body, fault string }{
		"/console":   {`<script>console.error("went wrong")</script>`, "console error: went wrong"},
		"/exception": {`<script>throw new Error("thrown")</script>`, "thrown"},
		"/rejection": {`<script>Promise.reject(new Error("refused"))</script>`, "refused"},
		"/missing":   {`<script src="/none.js"></script>`, "answer 404"},
		"/failed":    {`<script>fetch("http://127.0.0.1:1/").catch(() => 0)</script>`, "request failed"},
		"/origin":    {`<script>fetch("` + other + `/x", {mode: "no-cors"})</script>`, "request to another origin: " + other},
		"/policy":    {`<p style="color: red">x</p>`, "content security policy: style-src-attr"},
		"/hostile":   {`<img src="data:x" onerror="window.hostileRan=1">`, "a hostile text ran as a script: 1"},
		"/shared":    {worker, "request to another origin: " + other + "/worker"},
		"/missed":    {worker, "answer 404 to"},
		"/logged":    {worker, "console error: worker went wrong"},
		"/dialog":    {`<script>alert("hello")</script>`, "dialog of the browser: hello"},
	}
	all := map[string]string{
		"/icon": "", "/clean": `<p>clean</p>`,
		"/worker.js": `onconnect = (e) => e.ports[0].postMessage("runs"); setInterval(() => { fetch("` + other + `/worker", {mode: "no-cors"}); fetch("/worker-missing"); console.error("worker went wrong"); }, 500)`,
	}
	for path, p := range pages {
		all[path] = p.body
	}
	origin := serve(t, all)
	page := b.Open(t, origin)
	for path, want := range pages {
		page.Go(path)
		if want.body == worker {
			page.AwaitText("worker runs")
			page.WatchWorkers()
		}
		var faults string
		page.Await("a fault of "+path, 10*time.Second, func() bool {
			faults += strings.Join(page.Faults(), "\n") + "\n"
			return strings.Contains(faults, want.fault)
		})
		page.Go("/clean")
		page.AwaitText("clean")
		page.Faults() // the rest of the same fault
	}
	page.RequireNoFaults()
	page.Allow(404, "/none")
	page.Evaluate(`fetch("/none").then((r) => r.status)`, new(int))
	page.RequireNoFaults()
}

// A request of a worker that began before the watch names the worker when it fails.
func TestPage_NamesWorkerOfEarlierRequest(t *testing.T) {
	t.Parallel()
	lost := make(chan struct{})
	loseStream := sync.OnceFunc(func() { close(lost) })
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stream":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-lost
			panic(http.ErrAbortHandler) // closes the connection in the middle of the answer
		case "/worker.js":
			w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
			fmt.Fprint(w, `onconnect = (e) => fetch("/stream").then((r) => { e.ports[0].postMessage("runs"); return r.text(); }).catch(() => 0)`)
		default:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintf(w, `<!doctype html><html lang="en"><title>t</title><link rel="icon" href="data:,">%s</html>`, worker)
		}
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(loseStream)
	page := browser.Start(t).Open(t, srv.URL)
	page.Go("/")
	page.AwaitText("worker runs")
	page.WatchWorkers()
	page.RequireNoFaults()
	loseStream()
	var faults []string
	page.Await("the fault of the lost stream", 10*time.Second, func() bool {
		faults = append(faults, page.Faults()...)
		return len(faults) > 0
	})
	require.Len(t, faults, 1)
	require.Contains(t, faults[0], "request failed: "+srv.URL+"/worker.js (a request that began before the watch)")
}

func TestPage_ActsByRoleAndName(t *testing.T) {
	t.Parallel()
	origin := serve(t, map[string]string{"/icon": "", "/": `
		<form onsubmit="event.preventDefault(); document.querySelector('output').textContent = new URLSearchParams(new FormData(this)).toString()">
		<label>Name <input name="name" value="before"></label>
		<label>Site <select name="site"><option value="">any</option><option value="a">alpha</option><option value="b">beta</option></select></label>
		<button>Send</button> <button disabled>Never</button></form><output></output>`})
	page := browser.Start(t).Open(t, origin)
	page.Go("/")
	page.Fill("Name", "café")
	page.Choose("Site", "beta")
	page.Click("button", "Send")
	page.AwaitText("name=caf%C3%A9&site=b")
	require.True(t, page.Find("button", "Never").Disabled)
	require.False(t, page.Has("button", "Absent"))

	page.Reload()
	page.Type("Name", "typed")
	page.Pick("Site", "alpha")
	page.PressOn("button", "Send")
	page.AwaitText("name=typed&site=a")
	page.Press(kb.Tab)
	tab := page.OpenTab(t)
	tab.Go("/")
	require.Equal(t, "button", tab.Find("button", "Send").Role)
}

// A page is found again after forms that lead to other origins, however early the test looks at it.
func TestPage_FollowsNavigations(t *testing.T) {
	t.Parallel()
	var origins [2]string
	for i := range origins {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				http.Redirect(w, r, origins[1-i]+"/?round="+r.FormValue("round"), http.StatusSeeOther)
				return
			}
			w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			round, _ := strconv.Atoi(r.FormValue("round"))
			fmt.Fprintf(w, `<!doctype html><html lang="en"><title>t</title><link rel="icon" href="data:,"><h1>Round %d</h1>
				<form method="post"><input type="hidden" name="round" value="%d"><button>Go on</button></form></html>`, round, round+1)
		}))
		t.Cleanup(srv.Close)
		origins[i] = srv.URL
	}
	page := browser.Start(t).Open(t, origins[0], origins[1])
	page.Go("/")
	for round := range 12 {
		page.Find("heading", fmt.Sprintf("Round %d", round))
		page.Click("button", "Go on")
	}
}
