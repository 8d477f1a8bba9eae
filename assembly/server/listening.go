package server

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/slipway-cloud/slipway/db"
)

const (
	listeningEvery = db.ListenerGap / 4
	listeningLimit = 3 * time.Second
)

// noteListening records until ctx ends that this process listens for heartbeats. When it cannot,
// the sweeper moves no silent node, which is right: the heartbeats cannot be stored either.
func (a *App) noteListening(ctx context.Context) {
	host, _ := os.Hostname()
	name := fmt.Sprintf("%s/%d/%s", host, os.Getpid(), db.NewID("run"))
	tick := time.NewTicker(listeningEvery)
	defer tick.Stop()
	for {
		lctx, cancel := context.WithTimeout(ctx, listeningLimit)
		if err := a.Store.Listening(lctx, name); err != nil && ctx.Err() == nil {
			a.Log.Warn("listening for heartbeats was not noted", "error", err)
		}
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listeningLimit)
			defer cancel()
			if err := a.Store.StopListening(sctx, name); err != nil {
				a.Log.Warn("the end of listening was not noted", "error", err)
			}
			return
		}
	}
}
