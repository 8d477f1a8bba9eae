package main

import (
	"context"
	"path/filepath"

	"github.com/slipway-cloud/slipway/internal/agent"
	"github.com/slipway-cloud/slipway/internal/agent/scrub"
	"github.com/slipway-cloud/slipway/internal/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// moreHandlers are those that the agent's own package does not hold. The
// scrub's notes lie with the privileged half: who can write them can make a
// scrub that goes on skip what it did not do.
func moreHandlers(c agent.Config) task.Registry {
	return scrub.Handlers(scrub.Host{
		Root: c.Root, Run: scrub.Exec(c.Root, c.ToolsPath), StateDir: filepath.Join(c.Root, c.HelperStateDir, "scrub"),
		Health: func(ctx context.Context) lifecycle.HealthReport { return agent.Report(ctx, c) },
	}, c.PlatformUsers)
}
