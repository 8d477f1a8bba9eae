package redfish

import (
	"encoding/json"
	"net/http"
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
