package simhw

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fleet is all machines of a simulated site.
type Fleet struct {
	ctx   context.Context
	clock *Clock
	mu    sync.Mutex
	order []*Machine
	byID  map[string]*Machine
}

// NewFleet makes an empty fleet; ctx ends every timer of its machines.
func NewFleet(ctx context.Context, clock *Clock) *Fleet {
	return &Fleet{ctx: ctx, clock: clock, byID: map[string]*Machine{}}
}

// Clock is the clock of all machines.
func (f *Fleet) Clock() *Clock { return f.clock }

// Add builds a machine; an id may be used once.
func (f *Fleet) Add(s Spec) (*Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.ID == "" || f.byID[s.ID] != nil {
		return nil, fmt.Errorf("machine id %q is empty or taken", s.ID)
	}
	m := NewMachine(f.ctx, f.clock, s)
	f.byID[s.ID] = m
	f.order = append(f.order, m)
	return m, nil
}

// All lists the machines in the order they were added.
func (f *Fleet) All() []*Machine { f.mu.Lock(); defer f.mu.Unlock(); return slices.Clone(f.order) }

// ByID finds a machine by its handle; nil when there is none.
func (f *Fleet) ByID(id string) *Machine { f.mu.Lock(); defer f.mu.Unlock(); return f.byID[id] }

// ByMAC finds the machine that has a NIC with this address.
func (f *Fleet) ByMAC(mac string) *Machine {
	for _, m := range f.All() {
		for _, n := range m.Spec().NICs {
			if strings.EqualFold(n.MAC, mac) {
				return m
			}
		}
	}
	return nil
}

// ByBMC finds the machine whose BMC listens at this address (with or without a
// scheme).
func (f *Fleet) ByBMC(address string) *Machine {
	want := bareHost(address)
	for _, m := range f.All() {
		if got := bareHost(m.Spec().BMCAddress); got != "" && got == want {
			return m
		}
	}
	return nil
}

func bareHost(a string) string {
	if _, rest, ok := strings.Cut(a, "://"); ok {
		a = rest
	}
	a, _, _ = strings.Cut(a, "/")
	return strings.ToLower(a)
}

// Vendors are the personalities a fleet can be built of.
var Vendors = [...]string{"Dell", "Supermicro", "HPE", "Lenovo", "NVIDIA"}

var models = map[string][2]string{ // vendor -> model, boot disk model
	"Dell":       {"PowerEdge XE9680", "DELLBOSS VD"},
	"Supermicro": {"SYS-821GE-TNHR", "Micron_7450_MTFDKBA480TFR BOSS"},
	"HPE":        {"ProLiant DL380a Gen11", "HPE NS204i-u BOSS"},
	"Lenovo":     {"ThinkSystem SR675 V3", "ThinkSystem M.2 BOSS"},
	"NVIDIA":     {"DGX H100", "SAMSUNG MZ1L21T9HCLS BOSS"},
}

// GPUServer is a typical GPU server of a vendor: two 25G and two 400G ports, a
// mirrored boot device whose model holds BOSS (not the first disk that
// enumerates, as in the field), four NVMe data disks, eight GPUs. n makes its
// addresses and serials unique.
func GPUServer(vendor string, n int) Spec {
	md := models[vendor]
	s := Spec{
		ID: fmt.Sprintf("r%02du%02d", n/40+1, n%40+1), Vendor: vendor, Model: md[0],
		Serial: fmt.Sprintf("SIM%s%06d", strings.ToUpper(vendor[:2]), n),
		UUID:   fmt.Sprintf("53494d00-0000-4000-8000-%012x", n), Architecture: "amd64/generic",
		CPUs: 128, MemoryMiB: 1 << 20, GPUs: 8, GPUModel: "NVIDIA H100 80GB HBM3",
		BMCUser: "root", BMCPassword: fmt.Sprintf("sim-bmc-%06d-secret", n),
		PowerOnDelay: 3 * time.Second, PowerOffDelay: 2 * time.Second,
	}
	for i, name := range []string{"eno1", "eno2", "ens1f0", "ens1f1"} {
		nic := NIC{Name: name, MAC: fmt.Sprintf("52:54:00:%02x:%02x:%02x", byte(n>>8), byte(n), i+1), SpeedMbps: 25000, VLAN: 1, Boot: i == 0}
		if i > 1 {
			nic.SpeedMbps, nic.VLAN = 400000, 2
		}
		s.NICs = append(s.NICs, nic)
	}
	for i := range 4 {
		s.Disks = append(s.Disks, Disk{Name: fmt.Sprintf("nvme%dn1", i), Model: "SAMSUNG MZWLO3T8HCLS", Serial: fmt.Sprintf("S%06dN%d", n, i), Bytes: 3_840_755_982_336, NVMe: true})
	}
	s.Disks = append(s.Disks, Disk{Name: "sda", Model: md[1], Serial: fmt.Sprintf("B%06d", n), Bytes: 480_036_519_936})
	return s
}
