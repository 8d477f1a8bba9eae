package redfish

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

func readSettings(t *testing.T, b *BMC) map[string]string {
	t.Helper()
	r, err := b.ReadSettings(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.Unreadable)
	out := map[string]string{}
	for _, v := range append(r.Values, r.Added...) {
		out[v.Name] = v.Value
	}
	return out
}

// TestReadSettings_ShowsWhatATenantChanges: two reports are equal until somebody changes something,
// and each change shows.
func TestReadSettings_ShowsWhatATenantChanges(t *testing.T) {
	t.Parallel()
	for _, vendor := range redfishsim.Names() {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, vendor)
			b := s.open()
			first := readSettings(t, b)
			require.Equal(t, first, readSettings(t, b))
			changes := map[string]func(){
				"an account":     func() { s.server.AddAccount("back", "Pass-12345678") },
				"the boot order": func() { s.server.SetBootOrder("Boot0002", "Boot0000") },
				"the BIOS":       func() { s.server.SetFirmware("BIOS", "6.6.6") },
				"a directory":    func() { s.server.SetDirectory("ldap.evil.example") },
				"a GPU":          func() { s.server.SetFirmware("GPU_1", "6.6.6") },
			}
			for what, change := range changes {
				before := readSettings(t, b)
				change()
				require.NotEqual(t, before, readSettings(t, b), what)
			}
		})
	}
}

// TestReadSettings_OtherAccounts: an enabled account besides our own is named, since its password
// can change without a trace.
func TestReadSettings_OtherAccounts(t *testing.T) {
	t.Parallel()
	s := newSim(t, "Dell")
	b := s.open()
	r, err := b.ReadSettings(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.OtherAccounts)
	s.server.AddAccount("ADMIN", "Pass-12345678")
	r, err = b.ReadSettings(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"ADMIN"}, r.OtherAccounts)
}

// TestReadSettings_KeysOfAccounts: the keys that an account takes are read where the BMC shows
// them, and are named where it does not. No text that may hold a secret is kept.
func TestReadSettings_KeysOfAccounts(t *testing.T) {
	t.Parallel()
	const service, account = "/redfish/v1/AccountService", "/redfish/v1/AccountService/Accounts/1"
	s := newStub(t)
	s.set("/redfish/v1", "AccountService", ref(service))
	s.put(service, obj{"Accounts": ref(service + "/Accounts"), "AdditionalExternalAccountProviders": ref(service + "/More")})
	s.put(service+"/More", collection(service+"/More/OAuth"))
	s.put(service+"/More/OAuth", obj{"ServiceEnabled": true, "ServiceAddresses": []any{"https://login.example"},
		"RemoteRoleMapping": []any{obj{"RemoteGroup": "ops", "LocalRole": "Administrator"}}})
	s.put(service+"/Accounts", collection(account))
	s.put(account, obj{"UserName": "root", "RoleId": "Administrator", "Enabled": true})
	s.set(sysURI, "Boot", obj{"HttpBootUri": "https://user:Secret-1@evil.example/boot.efi"})
	r, err := s.open().ReadSettings(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"keys for SSH of the BMC's account 1", "what the BMC's boot entries lead to"}, r.NotRead)
	require.Contains(t, r.Added, providers.BMCSetting{Name: "directory/external/OAuth", Value: "enabled true, servers https://login.example, roles ops is Administrator"})
	require.NotContains(t, fmt.Sprint(r), "Secret-1")

	s.set(account, "Keys", ref(account+"/Keys"))
	s.put(account+"/Keys", collection(account+"/Keys/1"))
	s.put(account+"/Keys/1", obj{"KeyString": "ssh-ed25519 AAAA"})
	before := readSettings(t, s.open())
	s.set(account+"/Keys/1", "KeyString", "ssh-ed25519 BBBB")
	after := readSettings(t, s.open())
	require.NotEmpty(t, before["account/1/key/1"])
	require.NotEqual(t, before["account/1/key/1"], after["account/1/key/1"])

	s.on("GET "+account+"/Keys", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	after = readSettings(t, s.open())
	require.Equal(t, providers.SettingUnread, after["account/1/key/"])
	require.Empty(t, after["account/1/key/1"])
}

// TestReadSettings_OneBootIsNoChange: MAAS sets the override of the next boot whenever it starts a
// machine; one that stays is another matter.
func TestReadSettings_OneBootIsNoChange(t *testing.T) {
	t.Parallel()
	s := newSim(t, "Dell")
	b := s.open()
	first := readSettings(t, b)
	_, err := b.SetBootOnce(t.Context(), providers.BootPXE, true)
	require.NoError(t, err)
	require.Equal(t, first, readSettings(t, b))
	o := s.machine.BootOverride()
	o.Enabled = "Continuous"
	s.machine.SetBootOverride(o)
	require.Equal(t, "Pxe", readSettings(t, b)["boot/override"])
}

func TestDisableHostInterfaces(t *testing.T) {
	t.Parallel()
	for _, vendor := range redfishsim.Names() {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, vendor)
			b := s.open()
			for range 2 {
				out, err := b.DisableHostInterfaces(t.Context())
				require.NoError(t, err)
				require.Equal(t, providers.HostInterfaces{Off: 1}, out)
			}
		})
	}
}
