package redfish

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

const chassisURI = "/redfish/v1/Chassis/1"

// machine gives the stub a chassis, drives and a manager.
func machine(t *testing.T) *stub {
	s := newStub(t)
	s.set("/redfish/v1", "Chassis", ref("/redfish/v1/Chassis"))
	s.set("/redfish/v1", "Managers", ref("/redfish/v1/Managers"))
	s.set("/redfish/v1", "AccountService", ref("/redfish/v1/AccountService"))
	s.set(sysURI, "Links", obj{"Chassis": []any{ref(chassisURI)}})
	s.put("/redfish/v1/Chassis", collection(chassisURI))
	s.put(chassisURI, obj{"Status": obj{"Health": "OK"}, "Model": "Chassis model", "SerialNumber": "CH9",
		"Thermal": ref(chassisURI + "/Thermal"), "PowerSubsystem": ref(chassisURI + "/PowerSubsystem"), "Sensors": ref(chassisURI + "/Sensors")})
	s.put(chassisURI+"/Thermal", obj{"Fans": []any{obj{"Name": "Fan 1", "Status": obj{"Health": "OK"}}, obj{"Name": "Fan 2", "Status": obj{"State": "Absent"}}}})
	s.put(chassisURI+"/PowerSubsystem", obj{"PowerSupplies": ref(chassisURI + "/PSU")})
	s.put(chassisURI+"/PSU", collection(chassisURI+"/PSU/0"))
	s.put(chassisURI+"/PSU/0", obj{"Status": obj{"Health": "OK"}})
	s.put(chassisURI+"/Sensors", collection(chassisURI+"/Sensors/a", chassisURI+"/Sensors/b"))
	s.set(sysURI, "Storage", ref(sysURI+"/Storage"))
	s.put(sysURI+"/Storage", collection(sysURI+"/Storage/0"))
	s.put(sysURI+"/Storage/0", obj{"Status": obj{"Health": "OK"}, "Drives": []any{ref(sysURI + "/Storage/0/Drives/0"), ref(sysURI + "/Storage/0/Drives/1")}})
	s.put(sysURI+"/Storage/0/Drives/0", obj{"Name": "Disk 0", "Location": []any{}, "CapacityBytes": 1e12, "Status": obj{"Health": "OK"}})
	s.put(sysURI+"/Storage/0/Drives/1", obj{"Name": "Disk 1", "CapacityBytes": "2000", "Status": obj{"Health": "OK"}})
	s.put("/redfish/v1/Managers", collection("/redfish/v1/Managers/1"))
	s.put("/redfish/v1/Managers/1", obj{"Status": obj{"Health": "OK"}, "VirtualMedia": ref("/redfish/v1/Managers/1/VirtualMedia")})
	s.put("/redfish/v1/Managers/1/VirtualMedia", collection("/redfish/v1/Managers/1/VirtualMedia/1", "/redfish/v1/Managers/1/VirtualMedia/2"))
	s.put("/redfish/v1/Managers/1/VirtualMedia/1", obj{"MediaTypes": []any{"CD"}, "Inserted": true,
		"Actions": obj{"#VirtualMedia.InsertMedia": obj{"target": "/x"}}})
	s.put("/redfish/v1/Managers/1/VirtualMedia/2", obj{"MediaTypes": []any{"CD", "DVD"}, "Image": nil})
	s.put("/redfish/v1/AccountService", obj{"Accounts": ref("/redfish/v1/AccountService/Accounts")})
	s.put("/redfish/v1/AccountService/Accounts", collection("/redfish/v1/AccountService/Accounts/1", "/redfish/v1/AccountService/Accounts/2"))
	s.put("/redfish/v1/AccountService/Accounts/1", obj{"UserName": "admin"})
	s.put("/redfish/v1/AccountService/Accounts/2", obj{"UserName": ""})
	return s
}

func TestIdentityFallsBackToTheChassis(t *testing.T) {
	t.Parallel()
	s := machine(t)
	got, err := s.open().Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, "SN1", got.Serial, "trimmed")
	require.Equal(t, "Chassis model", got.Model)
	require.Equal(t, "system 1", got.SerialSource)
	s.set(sysURI, "SerialNumber", "  ")
	got, err = s.open().Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, "CH9", got.Serial)
	require.Equal(t, "chassis 1", got.SerialSource)

	// A chassis that the system does not link is another part, whatever its number.
	s.put("/redfish/v1/Chassis", collection("/redfish/v1/Chassis/CBC_0", chassisURI))
	s.put("/redfish/v1/Chassis/CBC_0", obj{"SerialNumber": "1780924000006", "Model": "Cable cartridge"})
	s.set(chassisURI, "SerialNumber", nil)
	got, err = s.open().Identify(t.Context())
	require.NoError(t, err)
	require.Empty(t, got.Serial)
	require.Empty(t, got.SerialSource)
	require.Equal(t, "Chassis model", got.Model)
	s.set(sysURI, "Links", nil)
	got, err = s.open().Identify(t.Context())
	require.NoError(t, err)
	require.Empty(t, got.Model)
}

func TestMACsAreNeverEmptyBecauseOfAnError(t *testing.T) {
	t.Parallel()
	s := machine(t)
	nics := sysURI + "/EthernetInterfaces"
	s.set(sysURI, "EthernetInterfaces", ref(nics))
	s.put(nics, collection(nics+"/1", nics+"/2", nics+"/host"))
	s.put(nics+"/1", obj{"MACAddress": "B8:3F:D2:90:97:C4"})
	s.put(nics+"/2", obj{"MACAddress": "00:00:00:00:00:00", "PermanentMACAddress": "aa-bb-cc-00-11-22"})
	s.put(nics+"/host", obj{"MACAddress": "7e:8a:e1:d5:a2:77", "Links": obj{"HostInterface": ref("/redfish/v1/Managers/1/HostInterfaces/1")}})
	got, err := s.open().Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"aa:bb:cc:00:11:22", "b8:3f:d2:90:97:c4"}, got.MACs)

	garbage := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[") }
	s.on("GET "+nics+"/1", garbage)
	got, err = s.open().Identify(t.Context())
	require.NoError(t, err)
	require.Len(t, got.MACs, 1)
	s.on("GET "+nics+"/2", garbage)
	_, err = s.open().Identify(t.Context())
	requireKind(t, err, providers.KindProtocol)

	// Where the system lists no ports, the adapters of the chassis do.
	s.set(sysURI, "EthernetInterfaces", nil)
	s.set(chassisURI, "NetworkAdapters", ref(chassisURI+"/NA"))
	s.put(chassisURI+"/NA", collection(chassisURI+"/NA/1"))
	s.put(chassisURI+"/NA/1", obj{"NetworkPorts": ref(chassisURI + "/NA/1/P")})
	s.put(chassisURI+"/NA/1/P", collection(chassisURI+"/NA/1/P/1"))
	s.put(chassisURI+"/NA/1/P/1", obj{"AssociatedNetworkAddresses": []any{"0C:42:A1:00:00:01"}})
	got, err = s.open().Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"0c:42:a1:00:00:01"}, got.MACs)
}

func TestHealthIsRolledUpFromTheMembers(t *testing.T) {
	t.Parallel()
	s := machine(t)
	got, err := s.open().Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, providers.BMCHealth{Overall: "OK"}, got)

	s.set(sysURI, "Status", obj{"Health": "OK", "HealthRollup": "OK"}) // the BMC's own roll-up says all is well
	s.set(sysURI+"/Storage/0/Drives/1", "FailurePredicted", true)
	got, err = s.open().Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, "Warning", got.Overall)
	require.Equal(t, []string{sysURI + "/Storage/0/Drives/1: Warning"}, got.Problems)

	s.set(chassisURI+"/Thermal", "Fans", []any{obj{"Name": "Fan 1", "Status": obj{"Health": "Critical"}}})
	got, err = s.open().Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, "Critical", got.Overall)
	require.Len(t, got.Problems, 2)
}

func TestWhatCannotBeReadIsUnknownNotWell(t *testing.T) {
	t.Parallel()
	s := machine(t)
	s.on("GET "+chassisURI+"/PSU/0", refuse(http.StatusInternalServerError, "Base.1.8.InternalError", ""))
	got, err := s.open().Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, "Unknown", got.Overall)
	require.Equal(t, []string{chassisURI + "/PSU/0: unavailable (HTTP 500)"}, got.Unknown)

	s = machine(t)
	s.set(sysURI, "Status", obj{"State": "Enabled"})
	got, err = s.open().Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, "Unknown", got.Overall)

	s = machine(t)
	s.on("GET "+chassisURI, func(w http.ResponseWriter, _ *http.Request) { hijack(w) })
	_, err = s.open().Health(t.Context())
	requireKind(t, err, providers.KindUnreachable)
}

func TestInventoryIsPartialNeverEmpty(t *testing.T) {
	t.Parallel()
	s := machine(t)
	got, err := s.open().Inventory(t.Context())
	require.NoError(t, err)
	require.Empty(t, got.Partial)
	require.Len(t, got.Drives, 2)
	require.Equal(t, int64(2000), got.Drives[1].CapacityBytes)
	require.Equal(t, 2, got.Sensors)
	require.Equal(t, []string{"admin"}, got.Accounts)
	require.Nil(t, got.LockoutThreshold, "absent is not zero")
	require.Len(t, got.MediaSlots, 2)
	require.True(t, got.MediaSlots[0].HasInsert)
	require.True(t, got.MediaSlots[0].Inserted)
	require.False(t, got.MediaSlots[1].HasInsert, "this slot takes a PATCH")

	s.set(sysURI+"/Storage/0/Drives/0", "Status", obj{"State": "Absent"})
	got, err = s.open().Inventory(t.Context())
	require.NoError(t, err)
	require.Len(t, got.Drives, 1, "an empty bay is no drive")
	s.set(sysURI+"/Storage/0/Drives/0", "Status", obj{"Health": "OK"})

	s.set("/redfish/v1/AccountService", "AccountLockoutThreshold", 0)
	s.put(sysURI+"/Storage/0/Drives/1", nil)
	s.on("GET "+sysURI+"/Storage/0/Drives/1", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "null") })
	s.put("/redfish/v1/Managers/1/VirtualMedia", collection("https://evil.example/slot"))
	got, err = s.open().Inventory(t.Context())
	require.NoError(t, err)
	require.Len(t, got.Drives, 1)
	require.NotNil(t, got.LockoutThreshold)
	require.Zero(t, *got.LockoutThreshold)
	require.Equal(t, []string{sysURI + "/Storage/0/Drives/1: protocol (HTTP 200)", "https://evil.example/slot: foreign"}, got.Partial)
}
