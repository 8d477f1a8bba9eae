package maassim

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// Options configure a simulated region. Only Fleet and APIKey are required.
type Options struct {
	Fleet *simhw.Fleet
	// APIKey is consumer:token:secret. It must not be a real key.
	APIKey string
	// User owns the key; "admin" by default.
	User string
	// Unprivileged takes the administrator's rights from User.
	Unprivileged bool
	// Profile is "3.7" (default) or "3.5": BMC errors during deploy that are
	// synchronous, and a deploy timer of 30 minutes.
	Profile string
	// Seed makes system ids and hostnames repeatable.
	Seed uint64
	// Durations in virtual time; a zero field takes the default.
	Durations Durations
	// Images are os/series; nil means ubuntu/jammy and ubuntu/noble, an empty
	// slice means no image is present.
	Images []string
	// SSHKeys of User; nil means one made-up key, an empty slice means none.
	SSHKeys []string
	// Networks of the site; nil means VLAN 1 for provisioning with a gateway
	// and VLAN 2 for the fast fabric without one.
	Networks []Network
	// Zones and Pools beside "default".
	Zones, Pools []string
	// Config overrides values of op=get_config.
	Config map[string]any
}

// Network is one untagged VLAN with its subnet. VLAN is the number that
// simhw.NIC.VLAN names; the subnet's id is the same number.
type Network struct {
	VLAN    int
	Name    string
	CIDR    string
	Gateway string // empty: none
	MTU     int
	DHCP    bool
}

// Durations are virtual. Those of the environments are demo choices; timers are
// MAAS's defaults.
type Durations struct {
	NetBoot       time.Duration // network boot to running ephemeral environment, 1 min
	LocalBoot     time.Duration // network answers "boot from disk", 5 s
	Commission    time.Duration // 5 min
	Test          time.Duration // 2 min
	Install       time.Duration // 8 min
	FirstBoot     time.Duration // disk boot to the request for user-data, 30 s
	Erase         time.Duration // 10 min
	Enlist        time.Duration // 2 min
	PowerPoll     time.Duration // until MAAS sees power moved by others, 5 min
	ReleasePoll   time.Duration // until MAAS sees its own power-off, 5 s
	NodeTimeout   time.Duration // no heartbeat, 30 min
	DeployTimeout time.Duration // 60 min, 30 min in profile 3.5
	ReleaseExpiry time.Duration // 5 min
	Sweep         time.Duration // status monitor, 60 s
	SyncInterval  time.Duration // hardware sync, 15 min
}

func (d *Durations) fill(profile string) {
	def := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&d.NetBoot, time.Minute)
	def(&d.LocalBoot, 5*time.Second)
	def(&d.Commission, 5*time.Minute)
	def(&d.Test, 2*time.Minute)
	def(&d.Install, 8*time.Minute)
	def(&d.FirstBoot, 30*time.Second)
	def(&d.Erase, 10*time.Minute)
	def(&d.Enlist, 2*time.Minute)
	def(&d.PowerPoll, 5*time.Minute)
	def(&d.ReleasePoll, 5*time.Second)
	def(&d.NodeTimeout, 30*time.Minute)
	if profile == "3.5" {
		def(&d.DeployTimeout, d.NodeTimeout)
	}
	def(&d.DeployTimeout, 2*d.NodeTimeout)
	def(&d.ReleaseExpiry, 5*time.Minute)
	def(&d.Sweep, time.Minute)
	def(&d.SyncInterval, 15*time.Minute)
}

func (o *Options) fill() error {
	if o.Fleet == nil {
		return errors.New("maassim needs a fleet of simulated machines: set Options.Fleet")
	}
	if p := strings.Split(o.APIKey, ":"); len(p) != 3 || p[0] == "" || p[1] == "" || p[2] == "" {
		return errors.New("maassim needs an API key of the form consumer:token:secret")
	}
	if o.User == "" {
		o.User = "admin"
	}
	switch o.Profile {
	case "":
		o.Profile = "3.7"
	case "3.5", "3.7":
	default:
		return fmt.Errorf("profile %q is unknown: use 3.5 or 3.7", o.Profile)
	}
	o.Durations.fill(o.Profile)
	if o.Images == nil {
		o.Images = []string{"ubuntu/jammy", "ubuntu/noble"}
	}
	if o.SSHKeys == nil {
		o.SSHKeys = []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHNpbXVsYXRlZCBrZXksIG5vdCBmb3IgcmVhbCB1c2Uh simulated@maas"}
	}
	if o.Networks == nil {
		o.Networks = []Network{
			{VLAN: 1, Name: "provisioning", CIDR: "10.10.0.0/16", Gateway: "10.10.0.1", MTU: 1500, DHCP: true},
			{VLAN: 2, Name: "fast", CIDR: "10.20.0.0/16", MTU: 9000},
		}
	}
	for i := range o.Networks {
		n := &o.Networks[i]
		if _, err := netip.ParsePrefix(n.CIDR); err != nil || n.VLAN < 1 {
			return fmt.Errorf("network %q needs a VLAN above 0 and a CIDR", n.Name)
		}
		if n.MTU == 0 {
			n.MTU = 1500
		}
	}
	return nil
}
