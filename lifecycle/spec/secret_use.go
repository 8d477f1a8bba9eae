package spec

import (
	"net/netip"
	"slices"
	"strings"
)

// SecretKind says what a secret is good for.
type SecretKind string

// The kinds of secrets. Slipway itself stores and reads those of SecretInternal: its own keys,
// sealed user-data and the MAAS token of a machine.
const (
	SecretBMCLogin  SecretKind = "bmc_login"
	SecretMAASKey   SecretKind = "maas_key"
	SecretSSHKey    SecretKind = "ssh_key"
	SecretBootstrap SecretKind = "bootstrap_bundle"
	SecretInternal  SecretKind = "internal"

	SecretSMTPPassword SecretKind = "smtp_password"

	// SecretStripeKey is a key of Stripe's API, SecretStripeWebhook one that signs Stripe's
	// webhooks.
	SecretStripeKey     SecretKind = "stripe_key"
	SecretStripeWebhook SecretKind = "stripe_webhook"

	// SecretCloudKey is the secret key of an account at a cloud provider.
	SecretCloudKey SecretKind = "cloud_key"

	// SecretKubeconfig is a kubeconfig with which Slipway speaks to a cluster.
	SecretKubeconfig SecretKind = "kubeconfig"
)

// SecretKinds returns the kinds that an administrator may state.
func SecretKinds() []SecretKind {
	return []SecretKind{SecretBMCLogin, SecretMAASKey, SecretSSHKey, SecretBootstrap, SecretSMTPPassword, SecretStripeKey, SecretStripeWebhook, SecretCloudKey, SecretKubeconfig}
}

// SecretUse is what a stored secret may be used for: its kind, and the targets that may receive it.
// A target is allowed when one of the lists has it. Sites and nodes are named by their ids.
type SecretUse struct {
	Kind     SecretKind `json:"kind" enum:"bmc_login,maas_key,ssh_key,bootstrap_bundle,smtp_password,stripe_key,stripe_webhook,cloud_key,kubeconfig" doc:"What the value is"`
	Sites    []string   `json:"sites,omitempty" maxItems:"100" itemMaxLength:"64" doc:"Sites whose targets may receive it, by id"`
	Nodes    []string   `json:"nodes,omitempty" maxItems:"100" itemMaxLength:"64" doc:"Nodes that may receive it, by id"`
	Networks []string   `json:"networks,omitempty" maxItems:"100" itemMaxLength:"64" doc:"Networks whose addresses may receive it, such as 10.4.0.0/16; not for ssh_key, bootstrap_bundle and stripe_webhook"`
	// Installation allows every target.
	Installation bool `json:"installation,omitempty" doc:"Every target of the installation may receive it; excludes the lists"`
}

// Allows reports whether a target may receive the secret whatever its address is.
func (u SecretUse) Allows(siteID, nodeID string) bool {
	return u.Installation || siteID != "" && slices.Contains(u.Sites, siteID) || nodeID != "" && slices.Contains(u.Nodes, nodeID)
}

// RuleWithoutSite returns the rule for the address of a target that no site bounds: the networks of
// the use do. Loopback networks allow loopback addresses, and loopback networks alone allow plain
// HTTP, because no site says that the target is simulated.
func (u SecretUse) RuleWithoutSite() AddressRule {
	networks := ParseNetworks(u.Networks)
	loopback := func(n netip.Prefix) bool { return n.Addr().IsLoopback() }
	real := func(n netip.Prefix) bool { return !loopback(n) }
	return AddressRule{
		Networks: networks, Loopback: slices.ContainsFunc(networks, loopback),
		PlainHTTP: len(networks) > 0 && !slices.ContainsFunc(networks, real), Where: "networks that the secret may be used in",
	}
}

// maxUseTargets bounds each list of a use.
const maxUseTargets = 100

// Validate returns an *InvalidError that names every wrong field.
func (u SecretUse) Validate() error {
	var p problems
	if !slices.Contains(SecretKinds(), u.Kind) {
		p.add("kind", "must be one of %s", joinKinds())
	}
	targets := len(u.Sites) + len(u.Nodes) + len(u.Networks)
	switch {
	case !u.Installation && targets == 0:
		p.add("sites", "name the sites, nodes or networks that may receive the secret, or set installation")
	case u.Installation && targets > 0:
		p.add("installation", "must not be set beside sites, nodes or networks")
	}
	if slices.Contains([]SecretKind{SecretSSHKey, SecretBootstrap, SecretStripeWebhook}, u.Kind) && len(u.Networks) > 0 {
		p.add("networks", "must be empty for %s: it is not used for an address; name the sites or nodes that may receive it, or set installation", u.Kind)
	}
	for field, prefix := range map[string]string{"sites": "site_", "nodes": "node_"} {
		list := map[string][]string{"sites": u.Sites, "nodes": u.Nodes}[field]
		if len(list) > maxUseTargets || slices.ContainsFunc(list, func(id string) bool { return !strings.HasPrefix(id, prefix) || len(id) > 64 }) {
			p.add(field, "must be at most %d ids that begin with %s", maxUseTargets, prefix)
		}
	}
	checkNetworks(&p, "networks", u.Networks)
	return p.err()
}

func joinKinds() string {
	var names []string
	for _, k := range SecretKinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// checkNetworks adds a problem unless all texts are networks without host bits.
func checkNetworks(p *problems, field string, networks []string) {
	if len(networks) > maxUseTargets {
		p.add(field, "must be at most %d networks", maxUseTargets)
		return
	}
	for _, text := range networks {
		n, err := netip.ParsePrefix(text)
		if err != nil || n != n.Masked() {
			p.add(field, "must be networks such as 10.4.0.0/16 or fd00:4::/64, without host bits")
			return
		}
	}
}

// ParseNetworks returns the networks that the texts name. It leaves out what is not one.
func ParseNetworks(texts []string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		if n, err := netip.ParsePrefix(text); err == nil {
			out = append(out, n.Masked())
		}
	}
	return out
}

// IsInternalSecret reports whether Slipway itself stores and reads the secret of this name. Nobody
// else may store it, and its kind is SecretInternal without being stated.
func IsInternalSecret(name string) bool {
	for _, prefix := range []string{ReservedSecrets, "_slipway/", "userdata/"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return strings.HasPrefix(name, "nodes/node_") && strings.HasSuffix(name, "/maas-token") ||
		strings.HasPrefix(name, "instances/inst_") && strings.HasSuffix(name, "/worker")
}
