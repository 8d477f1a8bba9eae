package maassim

import (
	"strings"
	"time"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// machine is one record of the region's database. It is guarded by Server.mu.
type machine struct {
	id          string // system_id
	hostname    string
	domain      string
	description string
	arch        string
	zone, pool  string
	owner       string // "" = null
	agentName   string
	ownerData   map[string]string
	locked      bool

	status     Status
	gen        int  // rises at each status change
	expiry     int  // rises at each heartbeat; older expiry timers are void
	stuck      bool // a fault holds it in this status
	errorText  string
	message    string // latest INFO event
	action     string // latest status event of the machine itself
	created    time.Time
	updated    time.Time
	token      string // the machine's own metadata token
	secret     string
	powerType  string
	power      map[string]string // secrets inside: never log
	powerState string
	netboot    bool

	osystem, series, hweKernel, minHWE string
	userData                           []byte
	swapSize                           *int64

	hwSync       bool
	syncInterval int // seconds, 0 = null
	lastSync     time.Time
	syncAgent    bool // units are installed on the node
	syncShipped  bool // vendor-data's units survived the merge with user-data
	syncDead     bool // a fault keeps this deployment's agent from reporting
	syncHealthy  bool
	syncGen      int
	syncLeft     int // syncs before the agent stops; -1 = no limit

	commissioned   bool // a commissioning run ended well once
	skipNetworking bool
	skipStorage    bool
	skipBMCConfig  bool
	noTesting      bool
	hw             *simhw.Machine // what commissioning saw; nil before
	uuid           string
	cpus           int
	memoryMiB      int64
	info           map[string]string
	disks          []*disk
	bootDisk       int // 0 = null
	groups         []volumeGroup
	nics           []*nic
	bootNIC        int // 0 = lowest id
	gateway4       int // link id, 0 = none
	sets           []*scriptSet
	current        [3]int // set id by result type, 0 = null
}

type disk struct {
	id                  int
	name, model, serial string
	idPath, uuid        string
	size                int64
	virtual             bool
	firmware            string
	tags                []string
	table               string // GPT or ""
	parts               []*partition
	fs                  *filesystem
	usedFor             string
	on                  int // virtual devices: id of the physical disk below
}

type partition struct {
	id, number int
	size       int64
	uuid       string
	bootable   bool
	usedFor    string
	tags       []string
	fs         *filesystem
}

type filesystem struct{ kind, label, uuid, mount string }

type volumeGroup struct {
	id   int
	name string
}

type nic struct {
	id         int
	name, mac  string
	kind       string // physical
	vlan       int    // MAAS vlan id, 0 = null
	enabled    bool
	tags       []string
	links      []*link
	mtu        int // 0 = of the VLAN
	speed      int
	connected  bool
	vendor     string
	product    string
	discovered bool
}

type link struct {
	id     int
	mode   string // auto, dhcp, static, link_up
	subnet int    // 0 = none
	ip     string
}

// result types, as MAAS numbers them.
const (
	typeCommissioning = 0
	typeInstallation  = 1
	typeTesting       = 2
)

type scriptSet struct {
	id      int
	kind    int
	results []*script
	started time.Time
	ended   time.Time
}

type script struct {
	id      int
	name    string
	status  int
	exit    *int
	output  string
	started time.Time
	ended   time.Time
	updated time.Time
}

// script statuses.
const (
	scriptPending = 0
	scriptRunning = 1
	scriptPassed  = 2
	scriptFailed  = 3
	scriptTimeout = 4
	scriptAborted = 5
)

var scriptNames = [...]string{"Pending", "Running", "Passed", "Failed", "Timed out", "Aborted", "Degraded",
	"Installing", "Failed installing", "Skipped", "Applying custom network configuration", "Failed to apply custom network configuration"}

func scriptName(status int) string {
	if status < 0 || status >= len(scriptNames) {
		return "Unknown"
	}
	return scriptNames[status]
}

func (m *machine) diskByID(id int) *disk {
	for _, d := range m.disks {
		if d.id == id {
			return d
		}
	}
	return nil
}

func (m *machine) nicByID(id int) *nic {
	for _, n := range m.nics {
		if n.id == id {
			return n
		}
	}
	return nil
}

func (m *machine) nicByMAC(mac string) *nic {
	for _, n := range m.nics {
		if n.kind == "physical" && strings.EqualFold(n.mac, mac) {
			return n
		}
	}
	return nil
}

// bootInterface falls back to the lowest id, as MAAS does.
func (m *machine) bootInterface() *nic {
	if n := m.nicByID(m.bootNIC); n != nil {
		return n
	}
	var low *nic
	for _, n := range m.nics {
		if n.kind == "physical" && (low == nil || n.id < low.id) {
			low = n
		}
	}
	return low
}

// effectiveBootDisk is the one set, else the physical disk of at least 512 MiB
// with the lowest id: enumeration order.
func (m *machine) effectiveBootDisk() *disk {
	if d := m.diskByID(m.bootDisk); d != nil {
		return d
	}
	var low *disk
	for _, d := range m.disks {
		if !d.virtual && d.size >= 512<<20 && (low == nil || d.id < low.id) {
			low = d
		}
	}
	return low
}

func (m *machine) fqdn() string {
	if m.domain == "" {
		return m.hostname
	}
	return m.hostname + "." + m.domain
}

// matches reports whether sel names this machine: system_id, hostname, FQDN or
// MAC address.
func (m *machine) matches(sel string) bool {
	return sel == m.id || strings.EqualFold(sel, m.hostname) || strings.EqualFold(sel, m.fqdn()) || m.nicByMAC(sel) != nil
}
