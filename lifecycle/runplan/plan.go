package runplan

import (
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Plan is a recipe. It never changes: another recipe is another plan.
type Plan struct {
	ID          string `json:"plan_id"`
	DisplayName string `json:"display_name"`
	Steps       []Step `json:"steps"`
	// StartableBy says who may start it: StartableByOperator or StartableByCustomer; "" is
	// operator.
	StartableBy string `json:"startable_by,omitempty"`
}

// The users who may start a plan.
const (
	StartableByOperator = "operator"
	StartableByCustomer = "customer"
)

// Step is one step of a plan. Exactly one of the kinds is set.
type Step struct {
	Name string `json:"name"`
	// TimeoutSeconds bounds one attempt; nil takes the default of the kind.
	TimeoutSeconds *int `json:"timeout_seconds,omitempty"`
	// MaxRetries is how often a failed attempt is repeated, 0 is never; nil takes the default of
	// the kind.
	MaxRetries *int `json:"max_retries,omitempty"`

	SSH     *SSHCommand      `json:"ssh,omitempty"`
	Reboot  *Reboot          `json:"reboot,omitempty"`
	Netboot *SetNetboot      `json:"netboot,omitempty"`
	Repave  *RepaveImage     `json:"repave,omitempty"`
	Join    *KubeadmJoin     `json:"join,omitempty"`
	Verify  *VerifyInCluster `json:"verify,omitempty"`
	Net     *NetReconfig     `json:"net,omitempty"`
	RMA     *RMAAction       `json:"rma,omitempty"`
}

// SSHCommand runs a shell script on the machine.
type SSHCommand struct {
	// Command is given to sh on its standard input. No field of the machine is put into it.
	Command string `json:"command"`
	// Idempotent says that it may run again after an attempt whose outcome is unknown.
	Idempotent bool `json:"idempotent,omitempty"`
}

// Reboot restarts the machine and waits until it answers with a new boot id.
type Reboot struct {
	Mode string `json:"mode"` // RebootBMC or RebootInBand
}

// The modes of a reboot.
const (
	RebootBMC    = "bmc"
	RebootInBand = "in-band"
)

// SetNetboot sets the device of the next boot, once.
type SetNetboot struct {
	Mode string `json:"mode"` // NetbootPXE, NetbootUEFIHTTP or NetbootDisk
}

// The modes of SetNetboot.
const (
	NetbootPXE      = "PXE"
	NetbootUEFIHTTP = "UEFI_HTTP"
	NetbootDisk     = "DISK"
)

// RepaveImage erases the machine and installs an operating system.
type RepaveImage struct {
	Image string `json:"image"`
}

// ubuntuSeries has the names that MAAS gives to releases of Ubuntu.
func ubuntuSeries() map[string]string {
	return map[string]string{"ubuntu-20.04": "focal", "ubuntu-22.04": "jammy", "ubuntu-24.04": "noble"}
}

// SeriesOf returns the name that MAAS has for an image. Any other image than a release of Ubuntu is
// named as MAAS names it, such as custom/rocky9.
func SeriesOf(image string) string {
	if series, ok := ubuntuSeries()[image]; ok {
		return series
	}
	return image
}

// KubeadmJoin joins the machine to a cluster; "" is the cluster that the machine is for.
type KubeadmJoin struct {
	ClusterRef string `json:"cluster_ref,omitempty"`
}

// VerifyInCluster waits until the machine is a ready node of a cluster; "" is the cluster that the
// machine is for.
type VerifyInCluster struct {
	ClusterRef     string `json:"cluster_ref,omitempty"`
	KubeletVersion string `json:"kubelet_version,omitempty"` // "" for any
}

// NetReconfig applies a network configuration, and undoes it when nobody confirms it in time.
type NetReconfig struct {
	Netplan        string `json:"netplan,omitempty"`         // "" is the one that is kept for the machine
	ConfirmSeconds int    `json:"confirm_seconds,omitempty"` // 0 is 180
	// SSHEndpoint is where the machine answers after the change, host:port; "" is where it answers
	// before.
	SSHEndpoint string `json:"ssh_endpoint,omitempty"`
}

// Confirm returns how long the machine waits for the confirmation of a change.
func (n NetReconfig) Confirm() time.Duration {
	if n.ConfirmSeconds == 0 {
		return defaultConfirm
	}
	return time.Duration(n.ConfirmSeconds) * time.Second
}

// RMAAction takes the machine out of service, for return to its vendor.
type RMAAction struct {
	Ticket string `json:"ticket,omitempty"` // the vendor's number of the return
}

// Kind names a kind of step.
type Kind string

// The kinds of steps, as the fields of Step are named.
const (
	KindSSH     Kind = "ssh"
	KindReboot  Kind = "reboot"
	KindNetboot Kind = "netboot"
	KindRepave  Kind = "repave"
	KindJoin    Kind = "join"
	KindVerify  Kind = "verify"
	KindNet     Kind = "net"
	KindRMA     Kind = "rma"
)

// Kinds lists all kinds, in the order of the documentation.
func Kinds() []Kind {
	return []Kind{KindSSH, KindReboot, KindNetboot, KindRepave, KindJoin, KindVerify, KindNet, KindRMA}
}

// kinds lists the kinds that a step has.
func (s Step) kinds() []Kind {
	var out []Kind
	for i, set := range []bool{s.SSH != nil, s.Reboot != nil, s.Netboot != nil, s.Repave != nil, s.Join != nil, s.Verify != nil, s.Net != nil, s.RMA != nil} {
		if set {
			out = append(out, Kinds()[i])
		}
	}
	return out
}

// Kind returns the kind of a checked step, "" of a step that has none or several.
func (s Step) Kind() Kind {
	if k := s.kinds(); len(k) == 1 {
		return k[0]
	}
	return ""
}

// Timeout returns how long one attempt of the step may take.
func (s Step) Timeout() time.Duration {
	if s.TimeoutSeconds != nil {
		return time.Duration(*s.TimeoutSeconds) * time.Second
	}
	return s.traits().timeout
}

// Retries returns how often a failed attempt of the step is repeated.
func (s Step) Retries() int {
	if s.MaxRetries != nil {
		return *s.MaxRetries
	}
	return s.traits().retries
}

// Disruptive reports whether the step interrupts what runs on the machine.
func (s Step) Disruptive() bool { return s.traits().disruptive }

// Needs returns the capability that the machine's adapter must have for the step.
func (s Step) Needs() Capability {
	if s.Reboot != nil && s.Reboot.Mode == RebootInBand {
		return CapRemoteExec
	}
	return s.traits().needs
}

// Verifies reports whether a plan proves at its end that the machine is in its cluster.
func (p Plan) Verifies() bool {
	return len(p.Steps) > 0 && p.Steps[len(p.Steps)-1].Verify != nil
}

// Disruptive reports whether a step of the plan interrupts what runs on the machine.
func (p Plan) Disruptive() bool {
	for _, s := range p.Steps {
		if s.Disruptive() {
			return true
		}
	}
	return false
}

// Parse reads a plan in JSON and checks it. A field that is not known is refused: a step of a kind
// that this version does not have must not be passed over.
func Parse(raw []byte) (Plan, error) {
	var p Plan
	if len(raw) > maxPlanBytes {
		return Plan{}, errors.New("the plan is larger than 1 MiB")
	}
	if err := spec.DecodeStrict(raw, &p); err != nil {
		return Plan{}, err
	}
	return p, p.Check()
}
