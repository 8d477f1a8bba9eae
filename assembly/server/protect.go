package server

import (
	"strings"

	"github.com/slipway-cloud/slipway/internal/config"
)

// ownSecrets returns the names of secrets that only this process reads, beside the reserved ones.
func ownSecrets(cfg config.Config) []string {
	if cfg.Agent.CARef == "" {
		return nil
	}
	name, _, _ := strings.Cut(cfg.Agent.CARef, "@")
	return []string{name}
}

// protectedServices returns the control plane's own services as host:port. No login and no request
// is sent to them in the name of a site.
func protectedServices(cfg config.Config) []string {
	out := []string{cfg.API.Listen, cfg.Agent.Listen, cfg.Metrics.Listen, cfg.Temporal.Address}
	if cfg.Boot.Listen != "" {
		out = append(out, cfg.Boot.Listen)
	}
	return append(out, cfg.Database.Hosts()...)
}
