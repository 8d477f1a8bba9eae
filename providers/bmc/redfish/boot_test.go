package redfish

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

const settingsURI = sysURI + "/Settings"

// sentBoot decodes what the provider patched.
func sentBoot(t *testing.T, r seen) map[string]any {
	t.Helper()
	var v map[string]map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.Body), &v))
	require.Len(t, v, 1, "only Boot is sent")
	return v["Boot"]
}

func (s *stub) withSettings(boot obj) {
	s.set(sysURI, "@Redfish.Settings", obj{"SettingsObject": ref(settingsURI)})
	s.put(settingsURI, obj{"Boot": boot})
	s.on("PATCH "+settingsURI, func(w http.ResponseWriter, r *http.Request) {
		s.mergeBoot(settingsURI, r)
		w.WriteHeader(http.StatusNoContent)
	})
}

func TestBootOnceSendsTheMinimumAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	b := s.open()
	for range 2 {
		got, err := b.SetBootOnce(t.Context(), providers.BootPXE, true)
		require.NoError(t, err)
		require.Equal(t, providers.BootOverride{Target: providers.BootPXE, Enabled: "Once", Mode: "UEFI", FromURI: sysURI}, got)
	}
	patches := s.requests("PATCH " + sysURI)
	require.Len(t, patches, 1)
	require.Equal(t, map[string]any{"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once", "BootSourceOverrideMode": "UEFI"},
		sentBoot(t, patches[0]))

	got, err := b.SetBootOnce(t.Context(), providers.BootNone, true)
	require.NoError(t, err)
	require.Equal(t, "Disabled", got.Enabled)
	got, err = b.BootOverride(t.Context())
	require.NoError(t, err)
	require.Equal(t, providers.BootNone, got.Target)

	_, err = b.SetBootOnce(t.Context(), providers.BootUEFIHTTP, true)
	requireKind(t, err, providers.KindUnsupported)
	require.Len(t, s.requests("PATCH "+sysURI), 2, "an unsupported target is not sent")
}

func TestEnabledMayReadContinuous(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("PATCH "+sysURI, func(w http.ResponseWriter, _ *http.Request) {
		s.set(sysURI, "Boot", obj{"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Continuous", "BootSourceOverrideMode": "UEFI"})
		w.WriteHeader(http.StatusNoContent)
	})
	got, err := s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
	require.NoError(t, err)
	require.Equal(t, "Continuous", got.Enabled)
}

func TestNoModeWhereTheBMCShowsNone(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.set(sysURI, "Boot", obj{"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled"})
	_, err := s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
	require.NoError(t, err)
	require.NotContains(t, sentBoot(t, s.requests("PATCH " + sysURI)[0]), "BootSourceOverrideMode")
}

func TestRefusedModeIsLeftOut(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("PATCH "+sysURI, func(w http.ResponseWriter, r *http.Request) {
		if n := len(s.requests("PATCH " + sysURI)); n == 1 {
			refuse(http.StatusBadRequest, "Base.1.8.PropertyNotWritable", "")(w, r)
			return
		}
		s.mergeBoot(sysURI, r)
		w.WriteHeader(http.StatusNoContent)
	})
	_, err := s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
	require.NoError(t, err)
	require.Len(t, sentBoot(t, s.requests("PATCH " + sysURI)[1]), 2)
}

func TestSettingsObjectTakesTheChange(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.withSettings(obj{"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled"})
	s.on("PATCH "+sysURI, refuse(http.StatusMethodNotAllowed, "Base.1.8.OperationNotAllowed", ""))
	got, err := s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
	require.NoError(t, err)
	require.Equal(t, settingsURI, got.FromURI)
	require.Empty(t, s.requests("PATCH "+sysURI))
}

// A settings object that holds only the boot order is tried second.
func TestSettingsObjectWithoutOverride(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.withSettings(obj{"BootOrder": []any{"Boot0000"}})
	got, err := s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
	require.NoError(t, err)
	require.Equal(t, sysURI, got.FromURI)
	require.Empty(t, s.requests("PATCH "+settingsURI))

	s = newStub(t)
	s.withSettings(obj{"BootOrder": []any{"Boot0000"}})
	s.on("PATCH "+sysURI, refuse(http.StatusMethodNotAllowed, "Base.1.8.OperationNotAllowed", ""))
	got, err = s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
	require.NoError(t, err)
	require.Equal(t, settingsURI, got.FromURI)
}

// A settings object that shows the override's properties with null, or only their allowed values,
// does not carry it.
func TestSettingsObjectWithEmptyOverride(t *testing.T) {
	t.Parallel()
	for name, boot := range map[string]obj{
		"null": {"BootSourceOverrideTarget": nil, "BootSourceOverrideEnabled": nil, "BootSourceOverrideMode": nil},
		"list": {"BootSourceOverrideTarget@Redfish.AllowableValues": []any{"None", "Pxe"}},
	} {
		s := newStub(t)
		s.withSettings(boot)
		b := s.open()
		now, err := b.BootOverride(t.Context())
		require.NoError(t, err, name)
		require.Equal(t, sysURI, now.FromURI, name)
		got, err := b.SetBootOnce(t.Context(), providers.BootPXE, true)
		require.NoError(t, err, name)
		require.Equal(t, sysURI, got.FromURI, name)
		require.Empty(t, s.requests("PATCH "+settingsURI), name)
	}
}

// The mode is the system's where the settings object has none, and what was asked for is compared
// with it: a boot in Legacy mode is not the UEFI boot that was wanted.
func TestModeOfTheSystemWhereTheCarrierHasNone(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.withSettings(obj{"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled"})
	s.on("PATCH "+sysURI, refuse(http.StatusMethodNotAllowed, "Base.1.8.OperationNotAllowed", ""))
	takesMode := func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(s.requests("PATCH " + settingsURI)[len(s.requests("PATCH "+settingsURI))-1].Body, "Mode") {
			refuse(http.StatusBadRequest, "Base.1.8.PropertyUnknown", "")(w, r)
			return
		}
		s.mergeBoot(settingsURI, r)
		w.WriteHeader(http.StatusNoContent)
	}
	s.on("PATCH "+settingsURI, takesMode)
	got, err := s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
	require.NoError(t, err)
	require.Equal(t, providers.BootOverride{Target: providers.BootPXE, Enabled: "Once", Mode: "UEFI", FromURI: settingsURI}, got)

	boot := s.res[sysURI]["Boot"].(map[string]any)
	boot["BootSourceOverrideMode"] = "Legacy"
	_, err = s.open().SetBootOnce(t.Context(), providers.BootCD, true)
	requireKind(t, err, providers.KindProtocol)
}

// Firmware without a mode names it in the target.
func TestUEFITargetsOfFirmwareWithoutAMode(t *testing.T) {
	t.Parallel()
	boot := func(targets ...any) obj {
		return obj{"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget@Redfish.AllowableValues": targets}
	}
	s := newStub(t)
	s.set(sysURI, "Boot", boot("None", "Pxe", "Hdd", "UsbCd", "UefiPxe", "UefiUsbCd"))
	b := s.open()
	for _, c := range []struct {
		target providers.BootTarget
		sent   string
	}{{providers.BootPXE, "UefiPxe"}, {providers.BootCD, "UefiUsbCd"}} {
		for range 2 {
			got, err := b.SetBootOnce(t.Context(), c.target, true)
			require.NoError(t, err)
			require.Equal(t, providers.BootOverride{Target: c.target, Enabled: "Once", Mode: "UEFI", FromURI: sysURI}, got)
		}
		patches := s.requests("PATCH " + sysURI)
		require.Equal(t, map[string]any{"BootSourceOverrideTarget": c.sent, "BootSourceOverrideEnabled": "Once"}, sentBoot(t, patches[len(patches)-1]))
	}
	require.Len(t, s.requests("PATCH "+sysURI), 2, "what is set is not set again")
	_, err := b.SetBootOnce(t.Context(), providers.BootHDD, true)
	requireKind(t, err, providers.KindUnsupported)
	got, err := b.SetBootOnce(t.Context(), providers.BootPXE, false)
	require.NoError(t, err)
	require.Empty(t, got.Mode)

	s.set(sysURI, "Boot", boot("None", "Pxe", "UefiHttp"))
	_, err = s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
	require.NoError(t, err, "this firmware knows one way to boot from the network")
}

func TestIfMatchLadder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tag    string
		accept func(match string, set bool) bool
		sent   []string
	}{
		"strong":            {`"abc"`, func(m string, _ bool) bool { return m == `"abc"` }, []string{`"abc"`}},
		"weak tag, strong":  {`W/"abc"`, func(m string, _ bool) bool { return m == `"abc"` }, []string{`"abc"`}},
		"weak":              {`W/"abc"`, func(m string, _ bool) bool { return m == `W/"abc"` }, []string{`"abc"`, `W/"abc"`}},
		"none":              {`"abc"`, func(_ string, set bool) bool { return !set }, []string{`"abc"`, `W/"abc"`, ""}},
		"no tag, any":       {"", func(m string, _ bool) bool { return m == "*" }, []string{"", "*"}},
		"nothing satisfies": {`"abc"`, func(string, bool) bool { return false }, []string{`"abc"`, `W/"abc"`, ""}},
	} {
		s := newStub(t)
		if c.tag != "" {
			s.set(sysURI, "@odata.etag", c.tag)
		}
		status := http.StatusPreconditionFailed
		s.on("PATCH "+sysURI, func(w http.ResponseWriter, r *http.Request) {
			_, set := r.Header["If-Match"]
			if !c.accept(r.Header.Get("If-Match"), set) {
				refuse(status, "Base.1.8.PreconditionFailed", "")(w, r)
				status = http.StatusPreconditionRequired
				return
			}
			s.mergeBoot(sysURI, r)
			w.WriteHeader(http.StatusOK)
		})
		_, err := s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
		if name == "nothing satisfies" {
			requireKind(t, err, providers.KindStateConflict)
		} else {
			require.NoError(t, err, name)
		}
		var sent []string
		for _, r := range s.requests("PATCH " + sysURI) {
			sent = append(sent, r.Header.Get("If-Match"))
		}
		require.Equal(t, c.sent, sent, name)
	}
}

func TestIgnoredOverrideIsNoticed(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("PATCH "+sysURI, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	_, err := s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
	requireKind(t, err, providers.KindProtocol)
}

func TestBootChangeRefusedDuringPOSTIsBusy(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("PATCH "+sysURI, refuse(http.StatusBadRequest, "iLO.2.14.UnableToModifyDuringSystemPOST", ""))
	_, err := s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
	requireKind(t, err, providers.KindBusy)
	require.Len(t, s.requests("PATCH "+sysURI), 1)
}

func TestLostAnswerToABootChange(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("PATCH "+sysURI, func(w http.ResponseWriter, r *http.Request) { s.mergeBoot(sysURI, r); hijack(w) })
	got, err := s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
	require.NoError(t, err)
	require.Equal(t, providers.BootPXE, got.Target)

	s.on("PATCH "+sysURI, func(w http.ResponseWriter, _ *http.Request) { hijack(w) })
	_, err = s.open().SetBootOnce(t.Context(), providers.BootHDD, true)
	requireKind(t, err, providers.KindUncertain)
	require.Len(t, s.requests("PATCH "+sysURI), 2, "a lost change is not repeated by itself")
}

func TestVirtualCDByItsOtherName(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.set(sysURI, "Boot", obj{"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideMode": "UEFI",
		"BootSourceOverrideTarget@Redfish.AllowableValues": []any{"None", "Pxe", "UsbCd"}})
	b := s.open()
	for range 2 {
		got, err := b.SetBootOnce(t.Context(), providers.BootCD, true)
		require.NoError(t, err)
		require.Equal(t, providers.BootCD, got.Target)
	}
	patches := s.requests("PATCH " + sysURI)
	require.Len(t, patches, 1)
	require.Equal(t, "UsbCd", sentBoot(t, patches[0])["BootSourceOverrideTarget"])
}

func TestSystemWithoutOverride(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.set(sysURI, "Boot", nil)
	_, err := s.open().BootOverride(t.Context())
	requireKind(t, err, providers.KindUnsupported)
}
