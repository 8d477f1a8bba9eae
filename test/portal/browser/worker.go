package browser

import (
	"context"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// attachLimit is how long the browser may take to let the watch see a new worker.
const attachLimit = 30 * time.Second

// watchWorkers makes w note what the shared workers of a profile do, whose requests no page sees. A
// worker that cannot be watched is a fault. What a worker does in its first moments, before the
// browser lets the watch attach, is not noted: to hold a worker until then ends Chromium 156 when the
// worker is left.
func (b *Browser) watchWorkers(profile cdp.BrowserContextID, w *watch) {
	chromedp.ListenBrowser(b.ctx, func(event any) {
		e, ok := event.(*target.EventTargetCreated)
		if !ok || e.TargetInfo.Type != "shared_worker" || e.TargetInfo.BrowserContextID != profile {
			return
		}
		go func() {
			if err := b.watchWorker(e.TargetInfo.TargetID, w); err != nil && b.ctx.Err() == nil {
				w.fault("the worker %s is not watched: %s", e.TargetInfo.URL, err)
			}
		}()
	})
}

func (b *Browser) watchWorker(id target.ID, w *watch) error {
	ctx, _ := chromedp.NewContext(b.ctx, chromedp.WithTargetID(id)) // ends with the browser
	chromedp.ListenTarget(ctx, w.handle)
	done := make(chan error, 1)
	go func() { done <- chromedp.Run(ctx, network.Enable(), runtime.Enable()) }()
	select {
	case err := <-done:
		return err
	case <-time.After(runenv.Patience(attachLimit)):
		return context.DeadlineExceeded
	}
}
