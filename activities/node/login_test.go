package node_test

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// loopbackNames is a name server that gives every name a loopback address.
type loopbackNames struct{}

func (loopbackNames) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.9")}, nil
}

// newLoginFixture has a control plane that serves at 10.7.0.1:7080.
func newLoginFixture(t *testing.T, answers map[string][]any) *nodeFixture {
	t.Helper()
	store := dbtest.Store(t)
	sec, err := secrets.Open(t.Context(), store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")},
		secrets.Options{Resolver: loopbackNames{}, Protected: []string{"10.7.0.1:7080"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	b := newNodeFixture(t, store, sec, answers)
	b.in.JobID, b.in.Stage = "job_1", "check_ssh_seed"
	return b
}

// TestSSHLogin_RefusedAddress: MAAS, or a record of the node, names an address that is not the
// node's.
func TestSSHLogin_RefusedAddress(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ip     string
		change func(*spec.SiteSpec)
		says   string
	}{
		"loopback of a real site":  {"127.0.0.1", func(s *spec.SiteSpec) { s.Simulated = false }, "loopback"},
		"metadata service":         {"169.254.169.254", func(*spec.SiteSpec) {}, "metadata"},
		"outside the networks":     {"10.8.0.1", func(s *spec.SiteSpec) { s.NodeNetworks = []string{"10.9.0.0/16"} }, "node_networks of site"},
		"the control plane":        {"10.7.0.1", func(s *spec.SiteSpec) { s.Simulated = false }, "control plane itself"},
		"a name of a refused one":  {"node.example", func(s *spec.SiteSpec) { s.Simulated = false }, "resolves to one that is refused"},
		"IPv4 hidden in an IPv6":   {"64:ff9b::a9fe:a9fe", func(*spec.SiteSpec) {}, "reserved"},
		"the host's own interface": {"0.0.0.0", func(*spec.SiteSpec) {}, "reserved"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLoginFixture(t, nil)
			b.changeSite(tc.change)
			b.in.IPs = []string{tc.ip}
			_, err := b.env.ExecuteActivity(b.acts.CheckSSHSeed, b.in)
			b.ends(err, lifecycle.FailConfiguration, tc.says)
			require.Empty(t, b.shell.ran, "nothing was sent to the node")
			require.Equal(t, [][]string{b.row("refused")}, b.logins())
		})
	}
}

// TestSSHLogin_InNodeNetworks: the same addresses are used where the site allows them.
func TestSSHLogin_InNodeNetworks(t *testing.T) {
	t.Parallel()
	b := newLoginFixture(t, map[string][]any{"cloud-init": {exits(0, `{"status": "done"}`)}})
	b.changeSite(func(s *spec.SiteSpec) { s.Simulated, s.NodeNetworks = false, []string{"10.9.0.0/16"} })
	b.in.IPs = []string{"10.9.0.1"}
	_, err := b.env.ExecuteActivity(b.acts.CheckSSHSeed, b.in)
	require.NoError(t, err)
	require.NoError(t, b.shell.to.Rule.Check(netip.MustParseAddrPort("10.9.0.1:22")))
	require.Error(t, b.shell.to.Rule.Check(netip.MustParseAddrPort("10.8.0.1:22")), "the connection keeps the rule")
}

func TestSSHLogin_Audited(t *testing.T) {
	t.Parallel()
	done := exits(0, `{"status": "done"}`)
	unreachable := sshFails(providers.KindUnreachable)
	b := newLoginFixture(t, map[string][]any{"cloud-init": {unreachable, unreachable, sshFails(providers.KindUnauthorized), done, done}})
	b.in.Until = time.Now().Add(time.Minute)
	for range 2 {
		_, err := b.env.ExecuteActivity(b.acts.CheckSSHSeed, b.in)
		require.NoError(t, err)
	}
	require.Equal(t, 5, b.shell.times("cloud-init"))
	require.Equal(t, [][]string{b.row("started"), b.row("unknown"), b.row("rejected"), b.row("accepted")}, b.logins(),
		"one row of each outcome, however many logins")
}

func (b *nodeFixture) row(outcome string) []string {
	return []string{b.in.JobID, b.in.Site.SSHKeyRef, net.JoinHostPort(b.in.IPs[0], "22"), "check_ssh_seed", outcome}
}

func (b *nodeFixture) logins() [][]string { return dbtest.Logins(b.t, b.acts.Store, "job", b.in.JobID) }

// changeSite changes the site of the node.
func (b *nodeFixture) changeSite(change func(*spec.SiteSpec)) {
	b.t.Helper()
	site, err := b.acts.Store.Site(b.t.Context(), b.in.SiteID)
	require.NoError(b.t, err)
	change(&site.Spec)
	_, err = b.acts.Store.UpdateSite(b.t.Context(), site.ID, site.Version, site.Name, site.Spec)
	require.NoError(b.t, err)
}
