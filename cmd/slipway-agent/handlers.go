package main

import (
	"github.com/slipway-cloud/slipway/internal/agent"
	"github.com/slipway-cloud/slipway/internal/agent/task"
)

// moreHandlers are those that the agent's own package does not hold.
func moreHandlers(agent.Config) task.Registry { return nil }
