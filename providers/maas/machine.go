package maas

import (
	"encoding/json"
	"errors"
	"sort"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// maxMessage bounds the texts that MAAS copies from elsewhere, in bytes.
const maxMessage = 2000

// machineWire is the part of a machine object that is read. gomaasclient's own
// type is not used: it lacks error_description, takes null for zero, guesses
// enable_hw_sync, and loses the whole machine to one unknown time format.
type machineWire struct {
	SystemID         string            `json:"system_id"`
	Hostname         string            `json:"hostname"`
	FQDN             string            `json:"fqdn"`
	Status           *int              `json:"status"`
	StatusMessage    string            `json:"status_message"`
	ErrorDescription string            `json:"error_description"`
	PowerState       string            `json:"power_state"`
	PowerType        string            `json:"power_type"`
	Owner            string            `json:"owner"`
	Locked           bool              `json:"locked"`
	OSystem          string            `json:"osystem"`
	DistroSeries     string            `json:"distro_series"`
	Zone             named             `json:"zone"`
	Pool             named             `json:"pool"`
	Architecture     string            `json:"architecture"`
	HardwareUUID     string            `json:"hardware_uuid"`
	HardwareInfo     map[string]any    `json:"hardware_info"`
	BootDisk         *numbered         `json:"boot_disk"`
	BootInterface    *nicWire          `json:"boot_interface"`
	InterfaceSet     []nicWire         `json:"interface_set"`
	IPAddresses      []string          `json:"ip_addresses"`
	EnableHWSync     bool              `json:"enable_hw_sync"`
	SyncInterval     int               `json:"sync_interval"` // seconds
	LastSync         string            `json:"last_sync"`
	NextSync         string            `json:"next_sync"`
	Annotations      map[string]string `json:"workload_annotations"`
	TestingStatus    int               `json:"testing_status"`
	CommissionStatus int               `json:"commissioning_status"`
	CommissioningID  *int              `json:"current_commissioning_result_id"`
}

type named struct {
	Name string `json:"name"`
}

type numbered struct {
	ID int `json:"id"`
}

type nicWire struct {
	ID         int       `json:"id"`
	MACAddress string    `json:"mac_address"`
	VLAN       *numbered `json:"vlan"`
}

// decodeMachine reads one machine object. An object without a system id or a
// status is none, whatever the HTTP status said.
func decodeMachine(data []byte) (providers.MAASMachine, error) {
	var w machineWire
	if err := json.Unmarshal(data, &w); err != nil {
		return providers.MAASMachine{}, err
	}
	if !systemIDForm.MatchString(w.SystemID) || w.Status == nil {
		return providers.MAASMachine{}, errors.New("the answer holds no machine")
	}
	serial, _ := w.HardwareInfo["system_serial"].(string)
	keys := spec.MachineKeys{Serial: serial, UUID: w.HardwareUUID}.Normal()
	m := providers.MAASMachine{
		SystemID: w.SystemID, Hostname: w.Hostname, FQDN: w.FQDN,
		Status: providers.MAASStatus(*w.Status), StatusMessage: bounded(plain(w.StatusMessage), maxMessage), ErrorDescription: bounded(plain(w.ErrorDescription), maxMessage),
		PowerState: w.PowerState, PowerType: w.PowerType, Owner: w.Owner, Locked: w.Locked,
		OSystem: w.OSystem, DistroSeries: w.DistroSeries, Zone: w.Zone.Name, Pool: w.Pool.Name,
		Architecture: w.Architecture, Serial: keys.Serial, UUID: keys.UUID,
		IPAddresses: present(w.IPAddresses), EnableHWSync: w.EnableHWSync,
		SyncInterval: time.Duration(w.SyncInterval) * time.Second,
		LastSync:     syncTime(w.LastSync), NextSync: syncTime(w.NextSync),
		Annotations: w.Annotations, TestingStatus: w.TestingStatus, CommissionStatus: w.CommissionStatus,
	}
	if w.CommissioningID != nil {
		m.CommissioningID = *w.CommissioningID
	}
	if w.BootDisk != nil {
		m.BootDiskID = w.BootDisk.ID
	}
	if b := w.BootInterface; b != nil {
		m.BootInterfaceID, m.BootInterfaceMAC = b.ID, strings.ToLower(b.MACAddress)
		if b.VLAN != nil {
			m.BootVLANID = b.VLAN.ID
		}
	}
	m.MACs = machineMACs(w.InterfaceSet)
	return m, nil
}

func machineMACs(nics []nicWire) []string {
	seen := map[string]bool{}
	var out []string
	for _, n := range nics {
		if mac := strings.ToLower(n.MACAddress); mac != "" && !seen[mac] {
			seen[mac] = true
			out = append(out, mac)
		}
	}
	sort.Strings(out)
	return out
}

// present drops the empty elements that a null address decodes to.
func present(in []string) []string {
	var out []string
	for _, s := range in {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

// syncTime reads last_sync and next_sync: ISO 8601 with Z, an offset or
// nothing (UTC). A form that nobody knows counts as never, which is unhealthy.
func syncTime(v string) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, v); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}
