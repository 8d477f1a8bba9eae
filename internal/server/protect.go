package server

import (
	"net"
	"net/url"
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

// protectedServices returns the control plane's own services as host:port. No login and no request is
// sent to them in the name of a site.
func protectedServices(cfg config.Config) []string {
	out := []string{cfg.API.Listen, cfg.Agent.Listen, cfg.Metrics.Listen, cfg.Temporal.Address}
	if cfg.Boot.Listen != "" {
		out = append(out, cfg.Boot.Listen)
	}
	if u, err := url.Parse(cfg.Database.URL); err == nil && u.Hostname() != "" {
		port := u.Port()
		if port == "" {
			port = "5432"
		}
		out = append(out, net.JoinHostPort(u.Hostname(), port))
	}
	return out
}
