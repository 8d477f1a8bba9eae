package redfish

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// recordedTree finds a recorded tree of a real machine: under
// SLIPWAY_FIXTURES, or under shared/fixtures beside the repository. It is
// third-party data and never part of the repository.
func recordedTree(t *testing.T, name string) string {
	t.Helper()
	rel := filepath.Join("redfish", name+".tar.gz")
	if dir := os.Getenv("SLIPWAY_FIXTURES"); dir != "" {
		if file := filepath.Join(dir, rel); exists(file) {
			return file
		}
	} else {
		dir, err := os.Getwd()
		require.NoError(t, err)
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if file := filepath.Join(dir, "shared", "fixtures", rel); exists(file) {
				return file
			}
		}
	}
	if os.Getenv("SLIPWAY_REQUIRE_PEERS") == "1" {
		t.Fatalf("the recorded tree %s is required and was not found; set SLIPWAY_FIXTURES to the folder that holds redfish/", name)
	}
	t.Skipf("the recorded tree %s is not here; set SLIPWAY_FIXTURES to the folder that holds redfish/", name)
	return ""
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// serveTree serves a tree read-only: index.json of each folder, 404 for the
// rest, as the machine answered. It has no login; the stub's session does.
func serveTree(t *testing.T, name string, plant ...func(tree map[string][]byte)) *BMC {
	t.Helper()
	file, err := os.Open(recordedTree(t, name))
	require.NoError(t, err)
	defer file.Close()
	zipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	tree := map[string][]byte{}
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if at := strings.Index("/"+h.Name, "/redfish/v1"); at >= 0 && path.Base(h.Name) == "index.json" {
			body, err := io.ReadAll(io.LimitReader(r, 16<<20))
			require.NoError(t, err)
			tree[path.Dir(("/" + h.Name)[at:])] = body
		}
	}
	require.NotEmpty(t, tree)
	for _, f := range plant {
		f(tree)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := path.Clean(r.URL.Path)
		switch body, ok := tree[p]; {
		case r.Method == http.MethodPost && p == sessionsURI:
			w.Header().Set("X-Auth-Token", testToken)
			w.Header().Set("Location", sessionsURI+"/1")
			w.WriteHeader(http.StatusCreated)
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case r.Method != http.MethodGet:
			t.Errorf("a recorded tree was asked to change: %s %s", r.Method, p)
			w.WriteHeader(http.StatusMethodNotAllowed)
		case ok:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.Copy(w, bytes.NewReader(body))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(srv.Close)
	return openTarget(t, providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: srv.URL, User: testUser, Password: providers.NewSecret(testPassword)},
		Options{RequestTimeout: 20 * time.Second})
}

func TestRecordedDellR750(t *testing.T) {
	t.Parallel()
	b := serveTree(t, "dell_poweredge_r750")
	ctx := t.Context()

	ident, err := b.Probe(ctx)
	require.NoError(t, err)
	require.Equal(t, providers.BMCIdent{Vendor: "Dell", Product: "Integrated Dell Remote Access Controller", RedfishVersion: "1.13.1"}, ident)

	sys, err := b.Identify(ctx)
	require.NoError(t, err)
	require.Equal(t, providers.BMCSystem{
		ID: "System.Embedded.1", URI: "/redfish/v1/Systems/System.Embedded.1", Manufacturer: "Dell Inc.", Model: "PowerEdge R750",
		Serial: "CNIVC0014M0388", SerialSource: "system System.Embedded.1", UUID: "4c4c4544-0035-3410-8050-c6c04f314733", MACs: sys.MACs,
		Power: providers.PowerOn, Health: "OK", MemoryGiB: 512, ProcessorCount: 2,
	}, sys)
	require.Len(t, sys.MACs, 5)
	require.Contains(t, sys.MACs, "b8:3f:d2:90:97:c4")

	boot, err := b.BootOverride(ctx)
	require.NoError(t, err)
	require.Equal(t, providers.BootOverride{Target: providers.BootNone, Enabled: "Disabled", Mode: "UEFI", FromURI: sys.URI}, boot)
	_, err = b.SetBootOnce(ctx, providers.BootNone, true) // already so: nothing is sent
	require.NoError(t, err)
	_, err = b.SetPower(ctx, providers.IntentOn)
	require.NoError(t, err)

	inv, err := b.Inventory(ctx)
	require.NoError(t, err)
	require.Empty(t, inv.Partial)
	require.Len(t, inv.Drives, 3, "typed decoding loses all three")
	for _, d := range inv.Drives {
		require.Equal(t, int64(1920383410176), d.CapacityBytes)
		require.NotEmpty(t, d.Serial)
	}
	require.Len(t, inv.MediaSlots, 4)
	for _, m := range inv.MediaSlots {
		require.True(t, m.HasInsert, m.URI)
	}
	require.Equal(t, 33, inv.Sensors)
	require.Len(t, inv.LogServices, 3)
	require.NotEmpty(t, inv.Accounts)
	require.NotNil(t, inv.LockoutThreshold)
	require.Zero(t, *inv.LockoutThreshold)

	health, err := b.Health(ctx)
	require.NoError(t, err)
	require.Equal(t, providers.BMCHealth{Overall: "OK", Unknown: []string{
		"/redfish/v1/Systems/System.Embedded.1/Storage/AHCI.Embedded.1-1",
		"/redfish/v1/Systems/System.Embedded.1/Storage/AHCI.Embedded.2-1",
		"/redfish/v1/Chassis/System.Embedded.1/NetworkAdapters/NIC.Slot.5",
	}}, health)
}

func TestRecordedLenovoSR670(t *testing.T) {
	t.Parallel()
	b := serveTree(t, "lenovo_thinksystem_sr670")
	ctx := t.Context()

	ident, err := b.Probe(ctx)
	require.NoError(t, err)
	require.Equal(t, providers.BMCIdent{Vendor: "Lenovo", RedfishVersion: "1.10.0", UUID: "bc20d65a-1a53-11ec-8c43-7e8ae1d5a277"}, ident)

	sys, err := b.Identify(ctx)
	require.NoError(t, err)
	require.Equal(t, "J101RZ43", sys.Serial)
	require.Equal(t, "ThinkSystem SR670 V2", sys.Model)
	require.Equal(t, providers.PowerOn, sys.Power)
	require.InDelta(t, 512, sys.MemoryGiB, 0)
	require.NotContains(t, sys.MACs, "7e:8a:e1:d5:a2:77", "the interface between host and BMC is no network port")
	require.Empty(t, sys.MACs, "this machine tells no address of its add-in cards anywhere in its tree")

	boot, err := b.BootOverride(ctx)
	require.NoError(t, err)
	require.Equal(t, providers.BootOverride{Target: providers.BootNone, Enabled: "Disabled", Mode: "UEFI", FromURI: sys.URI}, boot,
		"the settings object of this make holds the boot order only")
	sources, err := b.bootSources(ctx, newOperation("test", 9))
	require.NoError(t, err)
	require.Equal(t, "/redfish/v1/Systems/1/Pending", sources[1].uri)
	_, err = b.SetBootOnce(ctx, providers.BootUEFIHTTP, true)
	requireKind(t, err, providers.KindUnsupported)

	inv, err := b.Inventory(ctx)
	require.NoError(t, err)
	require.Empty(t, inv.Partial)
	require.Len(t, inv.Drives, 2)
	require.Len(t, inv.MediaSlots, 10)
	for _, m := range inv.MediaSlots {
		require.False(t, m.HasInsert, "every slot of this make takes a PATCH")
		require.False(t, m.Inserted)
	}
	require.Equal(t, 230, inv.Sensors)
	require.Len(t, inv.LogServices, 5)
	require.NotEmpty(t, inv.Accounts)
	require.NotNil(t, inv.LockoutThreshold)
	require.Equal(t, 5, *inv.LockoutThreshold)
	require.Equal(t, time.Hour, inv.LockoutDuration)

	health, err := b.Health(ctx)
	require.NoError(t, err)
	require.Equal(t, "OK", health.Overall)
	require.Empty(t, health.Problems)
	require.Contains(t, health.Unknown, "/redfish/v1/Systems/1/Processors/GPU1", "a part that does not tell is said to be unknown")
	require.Contains(t, health.Unknown, "/redfish/v1/Managers/1")
}

// TestRecordedNVIDIAGH200 is a machine of two systems, 24 chassis and two managers.
func TestRecordedNVIDIAGH200(t *testing.T) {
	t.Parallel()
	b := serveTree(t, "nvidia_gh200")
	ctx := t.Context()

	ident, err := b.Probe(ctx)
	require.NoError(t, err)
	require.Equal(t, providers.BMCIdent{Vendor: "NVIDIA", Product: "P3809", RedfishVersion: "1.9.0", UUID: "21ec4218-bd70-4a73-a476-990523953642"}, ident)

	sys, err := b.Identify(ctx)
	require.NoError(t, err)
	require.Equal(t, providers.BMCSystem{
		ID: "System_0", URI: "/redfish/v1/Systems/System_0", Manufacturer: "NVIDIA", Model: "P3809",
		Serial: "1580624650610", SerialSource: "chassis BMC_0", UUID: "1e90aa6e-6d05-9589-2253-ce7672d02d26", MACs: []string{},
		Power: providers.PowerOn, Health: "OK", MemoryGiB: 960, ProcessorCount: 2,
	}, sys, "the host has no serial number of its own, and no other chassis lends it one")

	boot, err := b.BootOverride(ctx)
	require.NoError(t, err)
	require.Equal(t, providers.BootOverride{Target: providers.BootHDD, Enabled: "Continuous", FromURI: "/redfish/v1/Systems/System_0/Settings"}, boot)
	_, err = b.SetBootOnce(ctx, providers.BootUEFIHTTP, true)
	requireKind(t, err, providers.KindUnsupported)
	_, err = b.SetPower(ctx, providers.IntentOn) // already so: nothing is sent
	require.NoError(t, err)

	inv, err := b.Inventory(ctx)
	require.NoError(t, err)
	require.Empty(t, inv.Partial)
	require.Empty(t, inv.Drives)
	require.Equal(t, 247, inv.Sensors)
	require.Len(t, inv.MediaSlots, 2)
	require.Equal(t, []string{"coJhloVjcKVlTeiz", "G1ZgR8ufrlnPjwJg", "fwupd", "root"}, inv.Accounts)
	require.Equal(t, 10*time.Minute, inv.LockoutDuration)
	require.Contains(t, inv.LogServices, "/redfish/v1/Systems/System_0/LogServices/SEL")
	require.Contains(t, inv.LogServices, "/redfish/v1/Systems/HGX_Baseboard_0/LogServices/EventLog")
	require.Contains(t, inv.LogServices, "/redfish/v1/Chassis/HGX_GPU_1/LogServices/XID")

	health, err := b.Health(ctx)
	require.NoError(t, err)
	require.Equal(t, "OK", health.Overall, "%v", health)
	require.Empty(t, health.Problems)

	const gpu = "/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_1"
	b = serveTree(t, "nvidia_gh200", func(tree map[string][]byte) {
		whole := string(tree[gpu])
		tree[gpu] = []byte(strings.ReplaceAll(whole, `"Health": "OK"`, `"Health": "Critical"`))
		require.NotEqual(t, whole, string(tree[gpu]))
	})
	health, err = b.Health(ctx)
	require.NoError(t, err)
	require.Equal(t, "Critical", health.Overall)
	require.Equal(t, []string{gpu + ": Critical"}, health.Problems)
}
