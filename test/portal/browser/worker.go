package browser

import (
	"context"
	"time"

	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// attachLimit is how long the browser may take to let the watch see a worker.
const attachLimit = 30 * time.Second

// WatchWorkers makes the watch of p note what the shared workers of its profile do from now on,
// whose requests no page sees. Call it when they run: Chromium 156 does not start a worker that is
// watched too early. A page that is left ends its worker, so call it again for another one.
func (p *Page) WatchWorkers() {
	p.t.Helper()
	var infos []*target.Info
	require.NoError(p.t, p.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		infos, err = target.GetTargets().Do(browserExecutor(ctx))
		return err
	})))
	watched := 0
	for _, info := range infos {
		if info.Type == "shared_worker" && info.BrowserContextID == p.profile {
			require.NoError(p.t, p.watchWorker(info.TargetID, info.URL), "watch %s", info.URL)
			watched++
		}
	}
	require.Positive(p.t, watched, "no shared worker runs")
}

func (p *Page) watchWorker(id target.ID, script string) error {
	ctx, cancel := chromedp.NewContext(p.browser.ctx, chromedp.WithTargetID(id))
	p.t.Cleanup(cancel)
	chromedp.ListenTarget(ctx, func(event any) {
		// The watch begins when the worker runs, so its first requests may be under way, such as
		// the event stream of the portal.
		if failed, ok := event.(*network.EventLoadingFailed); ok {
			p.watch.attributeRequest(failed.RequestID, script)
		}
		// A worker that ends with its last page is said to have crashed.
		if _, ended := event.(*inspector.EventTargetCrashed); !ended {
			p.watch.handle(event)
		}
	})
	done := make(chan error, 1)
	go func() { done <- chromedp.Run(ctx) }() // it attaches, and enables what the watch listens to
	select {
	case err := <-done:
		return err
	case <-time.After(runenv.Patience(attachLimit)):
		return context.DeadlineExceeded
	}
}
