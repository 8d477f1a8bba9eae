package secrets

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// sitesStore is a store with uses and sites. It counts the values that are read.
type sitesStore struct {
	Memory
	uses  map[string]spec.SecretUse
	reads int
}

func (s *sitesStore) SecretVersion(ctx context.Context, name string, version int) (int, string, []byte, bool, error) {
	s.reads++
	return s.Memory.SecretVersion(ctx, name, version)
}

func (s *sitesStore) SecretUse(_ context.Context, name string) (spec.SecretUse, bool, error) {
	use, found := s.uses[name]
	return use, found, nil
}

func (s *sitesStore) SiteForAddresses(_ context.Context, id string) (string, spec.SiteSpec, error) {
	site, found := map[string]spec.SiteSpec{
		"site_ber": {BMCNetworks: []string{"10.1.0.0/16", "fd00:1::/64"}},
		"site_ams": {BMCNetworks: []string{"10.2.0.0/16"}},
		"site_sim": {BMCNetworks: []string{"127.0.0.0/8"}, Simulated: true},
		"site_any": {BMCNetworks: []string{"0.0.0.0/0", "::/0"}},
	}[id]
	if !found {
		return "", site, errors.New("no such site")
	}
	return id, site, nil
}

// names answers for a name server.
type names map[string][]string

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, ip := range n[host] {
		out = append(out, netip.MustParseAddr(ip))
	}
	return out, nil
}

func target(kind spec.SecretKind, site, node, address string) providers.Use {
	return providers.Use{Kind: kind, Site: site, Node: node, Address: address}
}

func TestResolve_OnlyForStatedUse(t *testing.T) {
	t.Parallel()
	store := &sitesStore{uses: map[string]spec.SecretUse{
		"ber":   {Kind: spec.SecretBMCLogin, Sites: []string{"site_ber"}},
		"any":   {Kind: spec.SecretBMCLogin, Installation: true},
		"node":  {Kind: spec.SecretBMCLogin, Nodes: []string{"node_1"}},
		"rack":  {Kind: spec.SecretBMCLogin, Networks: []string{"10.1.4.0/24", "127.0.0.0/8"}},
		"maas":  {Kind: spec.SecretMAASKey, Sites: []string{"site_ber"}},
		"ca":    {Kind: spec.SecretBMCLogin, Installation: true},
		"empty": {},
	}}
	s, err := Open(t.Context(), store, keyFile(t), Options{
		Own: []string{"ca"}, Protected: []string{"10.1.0.9:5432", "db.example:5432"},
		Resolver: names{
			"bmc.example": {"10.1.4.7"}, "mixed.example": {"10.1.4.7", "127.0.0.1"}, "localhost": {"127.0.0.1"}, "meta.example": {"169.254.169.254"}, "db.example": {"10.1.0.8"},
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for _, name := range []string{"ber", "any", "node", "rack", "maas", "ca", "empty", "unstated", "slipway/key"} {
		_, err := s.Put(t.Context(), name, providers.NewSecret("value"))
		require.NoError(t, err)
	}
	bmc, region, own := spec.SecretBMCLogin, spec.SecretMAASKey, spec.SecretInternal
	for name, tc := range map[string]struct {
		ref     providers.SecretRef
		use     providers.Use
		refused string // "" opens it
	}{
		"own site":               {"ber", target(bmc, "site_ber", "node_1", "10.1.4.7"), ""},
		"own site, a version":    {"ber@1", target(bmc, "site_ber", "", "https://10.1.4.7:8443"), ""},
		"a name in the networks": {"ber", target(bmc, "site_ber", "", "https://bmc.example"), ""},
		"installation":           {"any", target(bmc, "site_ams", "", "10.2.0.1"), ""},
		"own node":               {"node", target(bmc, "site_ber", "node_1", "10.1.0.1"), ""},
		"networks":               {"rack", target(bmc, "site_ber", "", "10.1.4.1"), ""},
		"simulated, plain http":  {"rack", target(bmc, "site_sim", "", "http://127.0.0.1:80"), ""},
		"no site, its networks":  {"rack", target(bmc, "", "node_9", "10.1.4.1"), ""},
		"its region":             {"maas", target(region, "site_ber", "", "https://10.9.9.9:5240/MAAS"), ""},
		"Slipway's own":          {"slipway/key", providers.Use{Kind: own}, ""},

		"another site":             {"ber", target(bmc, "site_ams", "", "10.2.0.1"), "may not be used for site"},
		"another node":             {"node", target(bmc, "site_ber", "node_2", "10.1.0.1"), "may not be used for site"},
		"another network":          {"rack", target(bmc, "site_ber", "", "10.1.5.1"), "networks that secret rack may be used in"},
		"network, another site":    {"rack", target(bmc, "site_ams", "", "10.1.4.1"), "is not in the"},
		"no site, no networks":     {"any", target(bmc, "", "node_9", "10.1.4.1"), "without a site needs its networks"},
		"another kind":             {"ber", target(region, "site_ber", "", "https://10.1.4.7"), "may be used as bmc_login and not as maas_key"},
		"unstated":                 {"unstated", target(bmc, "site_ber", "", "10.1.4.7"), "nobody has stated"},
		"own key as a login":       {"slipway/key", target(bmc, "site_ber", "", "10.1.4.7"), "Slipway's own"},
		"own CA as a login":        {"ca", target(bmc, "site_ber", "", "10.1.4.7"), "Slipway's own"},
		"a login as own key":       {"ber", providers.Use{Kind: own}, "not one that Slipway keeps"},
		"unknown site":             {"any", target(bmc, "site_none", "", "10.1.4.7"), "store"},
		"outside bmc_networks":     {"any", target(bmc, "site_ber", "", "203.0.113.5"), "bmc_networks of site site_ber"},
		"plain http":               {"any", target(bmc, "site_ber", "", "http://10.1.4.7"), "plain http"},
		"plain http region":        {"maas", target(region, "site_ber", "", "http://10.1.4.7"), "plain http"},
		"loopback":                 {"any", target(bmc, "site_any", "", "127.0.0.1"), "loopback"},
		"loopback, IPv6":           {"any", target(bmc, "site_any", "", "https://[::1]:443"), "loopback"},
		"loopback, mapped":         {"any", target(bmc, "site_any", "", "https://[::ffff:127.0.0.1]"), "loopback"},
		"loopback, by name":        {"any", target(bmc, "site_any", "", "localhost"), "loopback"},
		"loopback, one of several": {"any", target(bmc, "site_any", "", "mixed.example"), "loopback"},
		"loopback region":          {"maas", target(region, "site_ber", "", "https://127.0.0.1/MAAS"), "loopback"},
		"metadata":                 {"any", target(bmc, "site_any", "", "https://169.254.169.254"), "metadata"},
		"metadata, by name":        {"any", target(bmc, "site_any", "", "meta.example"), "metadata"},
		"metadata, IPv6":           {"any", target(bmc, "site_any", "", "[fd00:ec2::254]"), "metadata"},
		"metadata, NAT64":          {"any", target(bmc, "site_any", "", "[64:ff9b::a9fe:a9fe]"), "metadata"},
		"link-local":               {"any", target(bmc, "site_any", "", "[fe80::1]"), "link-local"},
		"multicast":                {"any", target(bmc, "site_any", "", "224.0.0.1"), "multicast"},
		"unspecified":              {"any", target(bmc, "site_any", "", "0.0.0.0"), "reserved"},
		"the database":             {"any", target(bmc, "site_ber", "", "10.1.0.9:5432"), "control plane itself"},
		"the database, by name":    {"any", target(bmc, "site_ber", "", "10.1.0.8:5432"), "control plane itself"},
		"a number for an address":  {"any", target(bmc, "site_any", "", "2130706433"), "cannot be resolved"},
	} {
		t.Run(name, func(t *testing.T) {
			store.reads = 0
			value, err := s.Resolve(t.Context(), tc.ref, tc.use)
			if tc.refused == "" {
				require.NoError(t, err)
				require.Equal(t, "value", value.Reveal())
				return
			}
			require.ErrorContains(t, err, tc.refused)
			if tc.ref != "unstated" { // which is looked up to tell it from one that is not stored
				require.Zero(t, store.reads, "nothing was read")
			}
		})
	}
}
