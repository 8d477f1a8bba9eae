package maas_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

const machinePath = "machines/" + id + "/"

// TestPowerLoginIsComparedAndNeverGivenOut: what PowerLogin returns says whether the
// password is the one asked about, and holds none.
func TestPowerLoginIsComparedAndNeverGivenOut(t *testing.T) {
	t.Parallel()
	r := record(t, map[string]string{
		"GET " + machinePath:                       `{"system_id":"` + id + `","status":6,"power_type":"ipmi","hostname":"n1"}`,
		"GET " + machinePath + "?power_parameters": `{"power_address":"10.0.0.1","power_user":"root","power_pass":"held-pw-1"}`,
	})
	m := open(t, r.URL)
	got, err := m.PowerLogin(within(t), id, "https://10.0.0.1", providers.NewSecret("held-pw-1"))
	require.NoError(t, err)
	require.Equal(t, providers.MAASPower{Type: "ipmi", Address: "10.0.0.1", User: "root", SameBMC: true, SamePassword: true}, got)
	for _, other := range []string{"", "held-pw-2"} {
		got, err = m.PowerLogin(within(t), id, "https://10.0.0.1", providers.NewSecret(other))
		require.NoError(t, err)
		require.False(t, got.SamePassword)
	}
	held, err := m.HeldLogin(within(t), id, "https://10.0.0.1")
	require.NoError(t, err)
	require.Equal(t, "root", held.Username)
	require.Equal(t, "held-pw-1", held.Password.Reveal())
	_, err = m.HeldLogin(within(t), id, "https://10.0.0.2")
	requireKind(t, err, providers.KindNotFound)
	odd := record(t, map[string]string{
		"GET " + machinePath: machineJSON(id, 6), "GET " + machinePath + "?power_parameters": `{"power_pass":"held-pw-1"`,
	})
	_, err = open(t, odd.URL).PowerLogin(within(t), id, "", providers.NewSecret("x"))
	require.NotContains(t, requireKind(t, err, providers.KindProtocol).Err.Error(), "held-pw-1")
}

// TestSetPowerLoginKeepsTheOtherParameters whatever their type is.
func TestSetPowerLoginKeepsTheOtherParameters(t *testing.T) {
	t.Parallel()
	r := record(t, map[string]string{
		"GET " + machinePath: `{"system_id":"` + id + `","status":6,"power_type":"ipmi","hostname":"n1"}`,
		"GET " + machinePath + "?power_parameters": `{"power_address":"10.0.0.1","power_user":"root","power_pass":"held-pw-1","cipher_suite_id":"17",
			"k_g":"","port":623,"workaround_flags":["opensesspriv","none"],"mac_address":null,"odd":{"a":1}}`,
		"PUT " + machinePath: machineJSON(id, 6),
	})
	require.NoError(t, open(t, r.URL).SetPowerLogin(within(t), id, "root", providers.NewSecret(password)))
	got := r.requests()
	require.Len(t, got, 3)
	require.Equal(t, http.MethodPut, got[2].method)
	require.Equal(t, url.Values{
		"power_type": {"ipmi"}, "power_parameters_power_address": {"10.0.0.1"}, "power_parameters_power_user": {"root"},
		"power_parameters_power_pass": {password}, "power_parameters_cipher_suite_id": {"17"}, "power_parameters_k_g": {""},
		"power_parameters_port": {"623"}, "power_parameters_workaround_flags": {"opensesspriv", "none"},
	}, got[2].form)
}

func TestSetPowerLoginRefuses(t *testing.T) {
	t.Parallel()
	r := record(t, map[string]string{
		"GET " + machinePath: machineJSON(id, 6), "GET " + machinePath + "?power_parameters": `{}`,
	})
	m := open(t, r.URL)
	requireKind(t, m.SetPowerLogin(within(t), id, "root", providers.NewSecret("")), providers.KindInvalid)
	requireKind(t, m.SetPowerLogin(within(t), id, "a\nb", providers.NewSecret("pw")), providers.KindInvalid)
	require.Empty(t, r.requests())
	requireKind(t, m.SetPowerLogin(within(t), id, "root", providers.NewSecret("pw")), providers.KindUnsupported)
	requireKind(t, m.SetPowerLogin(within(t), "../x", "root", providers.NewSecret("pw")), providers.KindInvalid)
}

// TestARefusalRepeatsNoPassword: neither the new one nor the one that MAAS held.
func TestARefusalRepeatsNoPassword(t *testing.T) {
	t.Parallel()
	s := newStub(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			answer(400, "application/json", `{"power_parameters":["held-pw-1 and fresh-pw-2 are no good"]}`)(w, r)
		case r.URL.Query().Get("op") == "power_parameters":
			answer(200, "application/json", `{"power_pass":"held-pw-1"}`)(w, r)
		default:
			answer(200, "application/json", `{"system_id":"`+id+`","status":6,"power_type":"redfish","hostname":"n1"}`)(w, r)
		}
	})
	err := open(t, s.URL).SetPowerLogin(within(t), id, "root", providers.NewSecret("fresh-pw-2"))
	pe := requireKind(t, err, providers.KindInvalid)
	for _, text := range []string{pe.Error(), pe.Err.Error()} {
		require.NotContains(t, text, "held-pw-1")
		require.NotContains(t, text, "fresh-pw-2")
	}
}

// TestPowerFollowsTheLogin on the simulated region: MAAS's own login is wrong
// after the BMC's password changed, and right again when MAAS was told.
func TestPowerFollowsTheLogin(t *testing.T) {
	t.Parallel()
	fleet := simhw.NewFleet(t.Context(), simhw.NewClock(50))
	machine, err := fleet.Add(simhw.GPUServer("HPE", 1))
	require.NoError(t, err)
	spec := machine.Spec()
	machine.SetBMC("https://192.0.2.10", spec.BMCUser, spec.BMCPassword)
	spec = machine.Spec()
	srv, err := maassim.New(maassim.Options{Fleet: fleet, APIKey: apiKey})
	require.NoError(t, err)
	addrs, stop, err := srv.Start(t.Context(), "127.0.0.1:0", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)
	m := open(t, "http://"+addrs.API)
	created, err := m.CreateMachine(within(t), providers.MAASCreate{
		Hostname: "n1", Architecture: "amd64/generic", MACs: []string{spec.NICs[0].MAC}, PowerType: "redfish",
		PowerAddress: spec.BMCAddress, PowerUser: spec.BMCUser, PowerPassword: providers.NewSecret(spec.BMCPassword),
	})
	require.NoError(t, err)
	state := func() string {
		s, err := m.QueryPower(within(t), created.SystemID)
		require.NoError(t, err)
		return s
	}
	require.Equal(t, "off", state())
	fresh := providers.NewSecret("another-password-1")
	machine.SetBMC(spec.BMCAddress, spec.BMCUser, fresh.Reveal())
	require.Equal(t, "error", state())
	requireKind(t, m.PowerOff(within(t), created.SystemID, true), providers.KindUncertain)
	for range 2 {
		require.NoError(t, m.SetPowerLogin(within(t), created.SystemID, spec.BMCUser, fresh))
		require.Equal(t, "off", state())
	}
	got, err := m.PowerLogin(within(t), created.SystemID, "192.0.2.11", fresh)
	require.NoError(t, err)
	require.Equal(t, providers.MAASPower{Type: "redfish", Address: spec.BMCAddress, User: spec.BMCUser, SamePassword: true}, got)
	require.Equal(t, 1, srv.Counters().Total["power_settings"], "the same login again is no change")
}
