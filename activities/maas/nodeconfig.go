package maas

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// NodeConfigIn is the input of LoadNodeConfig.
type NodeConfigIn struct {
	contract.JobRef
	// Keys also reads the accounts and keys of the platform, which a scrub must keep. They come
	// from the region when it manages the node.
	Keys bool `json:"keys,omitempty"`
}

// sitelessPoll is the poll interval of a job for a node that belongs to no site.
const sitelessPoll = spec.Duration(2 * time.Second)

// addSitelessDefaults sets the profile of a node that belongs to no site. Its erase workflow says
// whether disks may be overwritten.
func (a *Activities) addSitelessDefaults(ctx context.Context, n db.Node, p *spec.ProfileSpec) error {
	if p.PollInterval == 0 {
		p.PollInterval = sitelessPoll
	}
	w, err := a.Store.EraseWorkflowOf(ctx, n)
	switch {
	case errors.Is(err, db.ErrNotFound):
		return nil
	case err != nil:
		return fault.Internal(ctx, err)
	}
	p.ScrubAllowOverwrite = p.ScrubAllowOverwrite || w.Spec.Agent != nil && w.Spec.Agent.AllowOverwrite
	return nil
}

// LoadNodeConfig reads the node's site, profile and SKU, and the accounts and public keys of the
// platform on it. A node without site, profile or SKU gets the defaults. Read-only.
func (a *Activities) LoadNodeConfig(ctx context.Context, in NodeConfigIn) (contract.DecommissionConfig, error) {
	var out contract.DecommissionConfig
	node, err := a.Store.Node(ctx, in.NodeID)
	if err != nil {
		return out, fault.Internal(ctx, err)
	}
	if node.SiteID != "" {
		site, err := a.Store.Site(ctx, node.SiteID)
		if err != nil {
			return out, fault.Internal(ctx, err)
		}
		out.Site = site.Spec
	}
	if node.ProfileID != nil {
		p, err := a.Store.Profile(ctx, *node.ProfileID)
		if err != nil && !errors.Is(err, db.ErrNotFound) {
			return out, fault.Internal(ctx, err)
		}
		out.Profile, out.ProfileID = p.Spec, *node.ProfileID
	}
	if node.SiteID == "" {
		if err := a.addSitelessDefaults(ctx, node, &out.Profile); err != nil {
			return out, err
		}
	}
	out.Profile = out.Profile.WithDefaults()
	if node.SKUID != nil {
		s, err := a.Store.SKU(ctx, *node.SKUID)
		if err != nil && !errors.Is(err, db.ErrNotFound) {
			return out, fault.Internal(ctx, err)
		}
		out.SKU, out.SKUID = s.Spec, *node.SKUID
	}
	if !in.Keys {
		return out, nil
	}
	return out, a.addPlatformKeys(ctx, in.JobRef, node, &out)
}

// addPlatformKeys adds the accounts and keys of the platform: the site's login and, when MAAS
// deployed the node, the keys that MAAS gives to every machine.
func (a *Activities) addPlatformKeys(ctx context.Context, job contract.JobRef, node db.Node, out *contract.DecommissionConfig) error {
	user := out.Site.SSHUser
	if user == "" {
		user = cloudinit.DefaultUser
	}
	out.KeepUsers = []string{user}
	if ref := out.Site.SSHKeyRef; ref != "" {
		key, err := a.Secrets.Resolve(ctx, providers.SecretRef(ref), providers.Use{Kind: spec.SecretSSHKey, Site: node.SiteID, Node: node.ID})
		if err != nil {
			return fault.Secret(ctx, err)
		}
		public, err := cloudinit.PublicKey(key)
		if err != nil {
			return fault.New(lifecycle.FailConfiguration, "secret %s: %v", ref, err)
		}
		out.KeepKeys = append(out.KeepKeys, bareKey(public))
	}
	if node.MAASSystemID == nil {
		return nil
	}
	job.SiteID, job.NodeID = node.SiteID, node.ID
	m, _, err := a.region(ctx, job)
	if err != nil {
		return err
	}
	info, err := m.Probe(ctx)
	if err != nil {
		return fault.MAAS(ctx, err)
	}
	for _, k := range info.AuthorizedKeys {
		out.KeepKeys = append(out.KeepKeys, bareKey(k))
	}
	slices.Sort(out.KeepKeys)
	out.KeepKeys = slices.Compact(out.KeepKeys)
	return nil
}

// bareKey returns a public key without its comment: "type base64".
func bareKey(line string) string {
	f := strings.Fields(line)
	return strings.Join(f[:min(len(f), 2)], " ")
}
