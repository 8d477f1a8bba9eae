package spec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Texts that firmware shows in the place of a serial number or a UUID.
var (
	fillerSerials = []string{
		"NA", "n/a", "To be filled by O.E.M", "To Be Filled By O.E.M.", "Default String", "Not Available", "Not Specified", "Empty", "System Serial Number",
		"Chassis Serial Number", "None", "Unspecified", "Unknown", "0", "00000000", "xxxxxxxxxx", "1234567890", "0123456789", "12345678", "-", "....", "OEM", "",
	}
	fillerUUIDs = []string{
		"00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009",
		"12345678-1234-5678-90AB-CDDEEFAABBCC", "78563412-3412-7856-90ab-cddeefaabbcc", "4C4C4544-0000-2010-8020-80C04F202020", "44454c4c-0000-1020-8020-80c04f202020",
		"fefefefe-fefe-fefe-fefe-fefefefefefe", "Not Settable", "", "4c4c4544",
	}
)

func TestNormalSerial(t *testing.T) {
	t.Parallel()
	for _, text := range fillerSerials {
		require.Empty(t, spec.NormalSerial(text), text)
		require.False(t, spec.SameSerial(text, text), text)
	}
	for _, text := range []string{"CN7016342900A1", "J1ZK0W2", "A123456X0012345", "S452092X3B04567", "MT2233X00001", "1234", "SN-1", "12345679"} {
		require.Equal(t, text, spec.NormalSerial(" "+text+" "))
		require.True(t, spec.SameSerial(text, strings.ToLower(text)))
	}
}

func TestNormalUUID(t *testing.T) {
	t.Parallel()
	for _, text := range fillerUUIDs {
		_, ok := spec.NormalUUID(text)
		require.False(t, ok, text)
	}
	u, ok := spec.NormalUUID(" 4C4C4544-0042-3510-8054-B7C04F503033\n")
	require.True(t, ok)
	require.Equal(t, "4c4c4544-0042-3510-8054-b7c04f503033", u)
}

func TestMachineKeys_Compare(t *testing.T) {
	t.Parallel()
	const uuid, swapped, other = "4c4c4544-0042-3510-8054-b7c04f503031", "44454C4C-4200-1035-8054-B7C04F503031", "4c4c4544-0042-3510-8054-b7c04f503032"
	a := spec.MachineKeys{Serial: "SN-1", UUID: uuid, MACs: []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}}
	for name, c := range map[string]struct {
		is           spec.MachineKeys
		one          bool
		same, differ []string
	}{
		"itself":           {is: a, one: true, same: []string{spec.KeySerial, spec.KeyUUID, spec.KeyMAC}},
		"other byte order": {is: spec.MachineKeys{Serial: "sn-1", UUID: swapped}, one: true, same: []string{spec.KeySerial, spec.KeyUUID}},
		"filler UUID":      {is: spec.MachineKeys{Serial: "SN-1", UUID: fillerUUIDs[2], MACs: []string{"52:54:00:00:00:02"}}, one: true, same: []string{spec.KeySerial, spec.KeyMAC}},
		"one key":          {is: spec.MachineKeys{Serial: "SN-1"}, same: []string{spec.KeySerial}},
		"another serial":   {is: spec.MachineKeys{Serial: "SN-2", UUID: uuid}, same: []string{spec.KeyUUID}, differ: []string{spec.KeySerial}},
		"another UUID":     {is: spec.MachineKeys{Serial: "SN-1", UUID: other, MACs: a.MACs}, same: []string{spec.KeySerial, spec.KeyMAC}, differ: []string{spec.KeyUUID}},
		"other cards":      {is: spec.MachineKeys{Serial: "SN-1", UUID: uuid, MACs: []string{"52:54:00:00:00:09"}}, same: []string{spec.KeySerial, spec.KeyUUID}, differ: []string{spec.KeyMAC}},
		"fillers":          {is: spec.MachineKeys{Serial: "NA", UUID: fillerUUIDs[0]}},
	} {
		l := a.Compare(c.is)
		require.Equal(t, spec.Likeness{Same: c.same, Differ: c.differ}, l, name)
		require.Equal(t, c.one, l.SameMachine(), name)
	}
}

// A comparison does not depend on who asks, and a filler on either side never makes a key the same.
func TestMachineKeys_Fillers(t *testing.T) {
	t.Parallel()
	serials, uuids := append([]string{"SN-1", "SN-2"}, fillerSerials...), append([]string{"4c4c4544-0042-3510-8054-b7c04f503031", "44454C4C-4200-1035-8054-B7C04F503031"}, fillerUUIDs...)
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string) spec.MachineKeys {
			return spec.MachineKeys{Serial: rapid.SampledFrom(serials).Draw(rt, name+" serial"), UUID: rapid.SampledFrom(uuids).Draw(rt, name+" uuid")}
		}
		a, b := draw("a"), draw("b")
		l := a.Compare(b)
		require.Equal(rt, l, b.Compare(a))
		want := 0
		if a.Serial == b.Serial && strings.HasPrefix(a.Serial, "SN-") {
			want++
		}
		if strings.HasSuffix(strings.ToLower(a.UUID), "503031") && strings.HasSuffix(strings.ToLower(b.UUID), "503031") {
			want++
		}
		require.Len(rt, l.Same, want)
	})
}
