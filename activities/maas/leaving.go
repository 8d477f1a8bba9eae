package maas

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// NodeConfigIn is the input of LoadNodeConfig.
type NodeConfigIn struct {
	contract.JobRef
	// Keys asks for what belongs to the platform on the node as well, which a
	// scrub must know; the region is asked for it where it manages the node.
	Keys bool `json:"keys,omitempty"`
}

// sitelessPoll is how often a job looks after a node that belongs to no site.
const sitelessPoll = spec.Duration(2 * time.Second)

// siteless is what a node that belongs to no site goes by instead of a profile:
// only the database is asked for it, and its erase workflow says whether disks
// may be overwritten.
func (a *Activities) siteless(ctx context.Context, n db.Node, p *spec.ProfileSpec) error {
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

// LoadNodeConfig reads what a decommission of the node goes by: its site,
// profile and SKU, and the accounts and public keys that stay. A node without
// site, profile or SKU gets the defaults. Read-only.
func (a *Activities) LoadNodeConfig(ctx context.Context, in NodeConfigIn) (contract.LeavingConfig, error) {
	var out contract.LeavingConfig
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
		if err := a.siteless(ctx, node, &out.Profile); err != nil {
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
	return out, a.platform(ctx, node, &out)
}

// platform adds the accounts and keys that belong on a node: the site's login
// and, where MAAS deployed it, the keys that MAAS gives to every machine.
func (a *Activities) platform(ctx context.Context, node db.Node, out *contract.LeavingConfig) error {
	user := out.Site.SSHUser
	if user == "" {
		user = cloudinit.DefaultUser
	}
	out.KeepUsers = []string{user}
	if ref := out.Site.SSHKeyRef; ref != "" {
		key, err := a.Secrets.Resolve(ctx, providers.SecretRef(ref))
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
	m, _, err := a.region(ctx, node.SiteID)
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

// bareKey is a public key without its comment: "type base64".
func bareKey(line string) string {
	f := strings.Fields(line)
	return strings.Join(f[:min(len(f), 2)], " ")
}

// ProbeRegion proves that the region lets Slipway release and delete
// machines. Read-only.
func (a *Activities) ProbeRegion(ctx context.Context, in contract.JobRef) (contract.MachineFacts, error) {
	m, _, err := a.region(ctx, in.SiteID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	info, err := m.Probe(ctx)
	switch {
	case err != nil:
		return contract.MachineFacts{}, fault.MAAS(ctx, err)
	case !info.IsSuperuser:
		return contract.MachineFacts{}, fault.New(lifecycle.FailConfiguration, "MAAS user %q is no administrator; releasing and deleting machines needs one", info.User)
	}
	return contract.MachineFacts{Done: true, Note: "MAAS " + info.Version + " answers"}, nil
}

// belongs refuses a machine that is not this node's any more: locked, marked for
// another node's job, or owned by another user of MAAS.
func (a *Activities) belongs(ctx context.Context, m providers.MAAS, in MachineIn, got providers.MAASMachine) error {
	if got.Locked {
		return fault.New(lifecycle.FailMAASRejected, "machine %s is locked in MAAS; unlock it there, then retry the stage", in.SystemID)
	}
	if mark := got.Annotations[annotationJob]; mark != "" {
		job, err := a.Store.Job(ctx, mark)
		switch {
		case errors.Is(err, db.ErrNotFound):
		case err != nil:
			return fault.Internal(ctx, err)
		case job.NodeID != nil && *job.NodeID == in.NodeID:
			return nil
		}
		return fault.New(lifecycle.FailStateDisagreement, "machine %s is %s for job %s, which is not one of this node; it is left alone", in.SystemID, got.Status, mark)
	}
	if got.Owner == "" {
		return nil
	}
	info, err := m.Probe(ctx)
	switch {
	case err != nil:
		return fault.MAAS(ctx, err)
	case info.User != got.Owner:
		return fault.New(lifecycle.FailStateDisagreement, "machine %s is %s and belongs to the MAAS user %q; it is left alone", in.SystemID, got.Status, got.Owner)
	}
	return nil
}
