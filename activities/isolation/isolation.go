// Package isolation says what a node must not reach over its network, and holds the activity that
// lists it for a node. The node's agent tries the list; workflows and the reconciler decide by what
// it names.
package isolation

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Policy is what the configuration says about networks of nodes.
type Policy struct {
	// Known are the addresses of the control plane itself.
	Known []spec.ProbeTarget
	// Allowed are names of targets, or the first words of names, that nodes may reach.
	Allowed []string
}

// sample is how many BMCs, and how many other nodes, one probe tries. Each probe draws others.
const sample = 16

// Ports of what is known by its host alone.
const (
	sshPort   = 22
	httpsPort = 443
)

// Targets returns what a node of a site must not reach: the control plane, the site's MAAS, BMCs,
// its own too, and the SSH of other nodes. Of BMCs and nodes it returns a part, drawn by the seed.
// Targets that were open at the node's last probe are tried again.
func (p Policy) Targets(ctx context.Context, c db.Conn, site db.Site, nodeID, seed string) (spec.ProbeNetworkArgs, error) {
	out := spec.ProbeNetworkArgs{TimeoutMillis: int(spec.DefaultProbeTime.Milliseconds())}
	add := func(t spec.ProbeTarget) {
		kind, _, _ := strings.Cut(t.Name, " ")
		known := slices.ContainsFunc(out.Targets, func(o spec.ProbeTarget) bool { return o.Name == t.Name })
		if !known && len(out.Targets) < spec.MaxProbeTargets && t.Check() == nil && !slices.Contains(p.Allowed, t.Name) && !slices.Contains(p.Allowed, kind) {
			out.Targets = append(out.Targets, t)
		}
	}
	for _, t := range p.Known {
		add(t)
	}
	if u, err := url.Parse(site.Spec.MAASURL); err == nil {
		add(spec.ProbeTarget{Name: "maas", Address: addressOf(u)})
	}
	last, err := driftdb.LastProbe(ctx, c, nodeID)
	if err != nil {
		return out, err
	}
	open, _ := last.Open() // a result that cannot be read names nothing
	for _, t := range last.Asked.Targets {
		if slices.Contains(open, t.Name) {
			add(t)
		}
	}
	rows, err := driftdb.ProbeAddresses(ctx, c, site.ID, nodeID, seed, sample)
	if err != nil {
		return out, err
	}
	port := site.Spec.SSHPort
	if port == 0 {
		port = sshPort
	}
	for _, r := range rows {
		t := spec.ProbeTarget{Name: r.Kind + " " + r.ID, Address: net.JoinHostPort(r.Address, strconv.Itoa(port))}
		if r.Kind == "bmc" {
			t.Address = bmcAddress(r.Address)
		}
		add(t)
	}
	return out, nil
}

// bmcAddress returns where a BMC takes connections: the port of its URL, else that of its web
// pages, which a BMC that speaks IPMI has too. IPMI itself is not TCP.
func bmcAddress(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return addressOf(u)
	}
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(address, strconv.Itoa(httpsPort))
}

func addressOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Host
	case u.Scheme == "http":
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return net.JoinHostPort(u.Hostname(), strconv.Itoa(httpsPort))
}

// Activities is what the activity of this package needs.
type Activities struct {
	Store  *db.Store
	Policy Policy
}

// ListProbeTargets returns what the job's node must not reach. It changes nothing.
func (a *Activities) ListProbeTargets(ctx context.Context, in contract.JobRef) (spec.ProbeNetworkArgs, error) {
	site, err := a.Store.Site(ctx, in.SiteID)
	if err != nil {
		return spec.ProbeNetworkArgs{}, fault.Internal(ctx, err)
	}
	out, err := a.Policy.Targets(ctx, a.Store, site, in.NodeID, in.JobID)
	return out, fault.Internal(ctx, err)
}
