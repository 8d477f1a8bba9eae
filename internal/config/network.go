package config

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// NetworkProbe says what nodes of tenants must not reach, besides what Slipway knows itself.
type NetworkProbe struct {
	// Targets are NAME=HOST:PORT, separated by commas. Allowed are names of targets that nodes may
	// reach.
	Targets string `yaml:"targets"`
	Allowed string `yaml:"allowed"`
}

// AllowedNames returns the members of Allowed.
func (n NetworkProbe) AllowedNames() []string { return splitList(n.Allowed) }

func (n NetworkProbe) targets() []spec.ProbeTarget {
	var out []spec.ProbeTarget
	for _, text := range splitList(n.Targets) {
		name, address, _ := strings.Cut(text, "=")
		out = append(out, spec.ProbeTarget{Name: name, Address: address})
	}
	return out
}

// maxOwnTargets leaves room for BMCs and other nodes in a probe.
const maxOwnTargets = 24

func (n NetworkProbe) validate(v *validator) {
	all := n.targets()
	if len(all) > maxOwnTargets {
		v.add("network_probe.targets", "must name at most "+strconv.Itoa(maxOwnTargets)+" targets")
	}
	for i, t := range all {
		if t.Check() != nil || slices.ContainsFunc(all[:i], func(o spec.ProbeTarget) bool { return o.Name == t.Name }) {
			v.add("network_probe.targets", "must be NAME=HOST:PORT separated by commas, each name once, such as grafana=10.0.0.7:3000")
			return
		}
	}
}

// ProtectedTargets returns where the control plane listens as far as the settings say it, for nodes
// to try: PostgreSQL, Temporal and its pages, the API and the metrics of this process where they
// listen on one address, and what network_probe.targets names. The API's public URL is for
// everybody, so the API is left out where it may listen there.
func (c Config) ProtectedTargets() []spec.ProbeTarget {
	out := c.NetworkProbe.targets()
	add := func(name, address string) {
		if t := (spec.ProbeTarget{Name: name, Address: address}); t.Check() == nil && !slices.ContainsFunc(out, func(o spec.ProbeTarget) bool { return o.Name == name || o.Address == address }) {
			out = append(out, t)
		}
	}
	for i, address := range c.Database.addresses() {
		name := "postgres"
		if i > 0 {
			name += "-" + strconv.Itoa(i+1)
		}
		add(name, address)
	}
	add("temporal", c.Temporal.Address)
	add("temporal-ui", urlAddress(c.Portal.TemporalUIURL))
	if !mayBeSame(c.API.Listen, urlAddress(c.API.PublicURL)) {
		add("api", oneAddress(c.API.Listen))
	}
	add("metrics", oneAddress(c.Metrics.Listen))
	add("boot", oneAddress(c.Boot.Listen))
	return out
}

// addresses returns the servers of the database.
func (d Database) addresses() []string {
	var out []string
	for _, raw := range []string{d.URL, d.OwnerURL, d.CustomerURL} {
		c, err := pgconn.ParseConfig(raw)
		if raw == "" || err != nil {
			continue
		}
		add := func(host string, port uint16) {
			address := net.JoinHostPort(host, strconv.Itoa(int(port)))
			if !strings.HasPrefix(host, "/") && !slices.Contains(out, address) {
				out = append(out, address)
			}
		}
		add(c.Host, c.Port)
		for _, f := range c.Fallbacks {
			add(f.Host, f.Port)
		}
	}
	return out
}

// mayBeSame tells whether two addresses may name one socket: those of the same port and host, and
// those of the same port where a host is a name or stands for all addresses.
func mayBeSame(a, b string) bool {
	aHost, aPort, aErr := net.SplitHostPort(a)
	bHost, bPort, bErr := net.SplitHostPort(b)
	if aErr != nil || bErr != nil || aPort != bPort {
		return false
	}
	aIP, aErr := netip.ParseAddr(aHost)
	bIP, bErr := netip.ParseAddr(bHost)
	return aErr != nil || bErr != nil || aIP.IsUnspecified() || bIP.IsUnspecified() || aIP.Unmap() == bIP.Unmap()
}

// oneAddress returns an address to listen on that names one, "" for those that stand for all.
func oneAddress(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || host == "" || port == "0" {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		return ""
	}
	return listen
}

func urlAddress(raw string) string {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "":
		return ""
	case u.Port() != "":
		return u.Host
	case u.Scheme == "http":
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return net.JoinHostPort(u.Hostname(), "443")
}
