// Package blockdev tells the drives of a node from storage that is reached over a network. It reads
// sysfs below a root directory and changes nothing.
//
// It fails closed: a device is local only when its path in sysfs proves it. docs/scrub.md lists the
// decision for each kind.
package blockdev

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Class says whose storage a block device is.
type Class string

// The classes.
const (
	// Local is a drive of this node.
	Local Class = "local"
	// Foreign is storage of another machine, or storage that is not proven to be local.
	Foreign Class = "foreign"
	// Layer has no medium of its own: a loop device, a RAM disk, or RAID or device mapper over
	// local drives.
	Layer Class = "layer"
)

// Device is a whole block device.
type Device struct {
	Name  string
	Class Class
	// Reason says in words why the device has its class.
	Reason string
	// Network reports whether the device is known to be reached over a network or a fabric. It is
	// false for a foreign device of unknown kind.
	Network bool
	// Controllers are those of a local NVMe namespace.
	Controllers []string
	// Exception says why a foreign device can hold nothing of a tenant, in the words of
	// docs/scrub.md. It is "" for every other device.
	Exception string
	// Connection names the connection that has to end for the device to go away. It is zero when
	// the scrub cannot end it.
	Connection Connection
}

// Connection is an NVMe subsystem that is reached over a fabric, or an iSCSI session.
type Connection struct {
	Kind string // KindNVMe or KindISCSI
	ID   string // the NQN, or the number of the session
}

// The kinds of connections.
const (
	KindNVMe  = "nvme"
	KindISCSI = "iscsi"
)

func (c Connection) String() string {
	if c.Kind == KindISCSI {
		return "iSCSI session " + c.ID
	}
	return "NVMe subsystem " + c.ID
}

// Sys is a sysfs tree by the directory that holds "sys".
type Sys string

const blockClass = "sys/block"

// Devices lists the block devices that have a medium, in the order of their names. It leaves out
// optical drives, hidden paths of a multipath drive and devices without a medium.
func (s Sys) Devices() ([]Device, error) {
	entries, err := os.ReadDir(s.path(blockClass))
	if err != nil {
		return nil, fmt.Errorf("list the block devices: %w", err)
	}
	var out []Device
	for _, e := range entries {
		if name := e.Name(); !s.ignored(name) {
			out = append(out, s.Classify(name))
		}
	}
	return out, nil
}

// ignored reports whether a block device holds nothing that a scrub could meet.
func (s Sys) ignored(name string) bool {
	if strings.HasPrefix(name, "sr") || s.text(blockClass, name, "hidden") == "1" {
		return true
	}
	return s.sectors(name) == 0 && (s.text(blockClass, name, "removable") == "1" || s.virtual(name))
}

// Classify returns the class of a block device by the name of the whole device.
func (s Sys) Classify(name string) Device { return s.classify(name, maxDepth) }

// maxDepth is how many layers may lie on each other.
const maxDepth = 8

func (s Sys) classify(name string, depth int) Device {
	d := Device{Name: name, Class: Foreign}
	where, err := s.resolve(blockClass, name)
	switch {
	case err != nil:
		d.Reason = "its place in sysfs cannot be read"
	case strings.HasPrefix(name, "nvme"):
		s.classifyNVMe(&d)
	case s.virtual(name):
		s.classifyVirtual(&d, depth)
	default:
		s.classifyBus(&d, where)
		d.Exception = s.exception(name, where)
	}
	return d
}

var (
	usbBus       = regexp.MustCompile(`/usb\d+/`)
	iscsiSession = regexp.MustCompile(`/session(\d+)/`)
	remotePort   = regexp.MustCompile(`/[rv]port-\d`)
	scsiHost     = regexp.MustCompile(`/(host\d+)/`)
	ataPort      = regexp.MustCompile(`/ata\d+/host\d+/`)
	sasDevice    = regexp.MustCompile(`/host\d+/port-\d.*/end_device-\d`)
	virtioDevice = regexp.MustCompile(`/virtio\d+/`)
)

// classifyBus classifies a device with a parent by the path of its parents. The signs of a foreign
// device count before those of a local one.
func (s Sys) classifyBus(d *Device, where string) {
	host := ""
	if m := scsiHost.FindStringSubmatch(where); m != nil {
		host = m[1]
	}
	session := iscsiSession.FindStringSubmatch(where)
	switch {
	case session != nil:
		d.Reason, d.Network, d.Connection = "a LUN of iSCSI session "+session[1], true, Connection{KindISCSI, session[1]}
	case host != "" && s.exists("sys/class/iscsi_host", host):
		d.Reason, d.Network = "behind the iSCSI host "+host, true
	case remotePort.MatchString(where):
		d.Reason, d.Network = "a LUN behind a remote port of a fabric (Fibre Channel)", true
	case host != "" && (s.exists("sys/class/fc_host", host) || s.exists("sys/class/srp_host", host)):
		d.Reason, d.Network = "behind the Fibre Channel or SRP host "+host, true
	case strings.HasPrefix(d.Name, "rbd"):
		d.Reason, d.Network = "a Ceph RBD image", true
	case strings.HasPrefix(d.Name, "etherd"):
		d.Reason, d.Network = "an ATA over Ethernet device", true
	case usbBus.MatchString(where):
		d.Reason = "behind USB"
	case ataPort.MatchString(where):
		d.Class, d.Reason = Local, "a drive at an ATA port of this node"
	case sasDevice.MatchString(where):
		d.Class, d.Reason = Local, "a SAS end device of a controller of this node"
	case virtioDevice.MatchString(where) && s.text("sys/class/dmi/id/sys_vendor") == "QEMU":
		d.Class, d.Reason = Local, "a virtio disk of a QEMU machine"
	case virtioDevice.MatchString(where):
		d.Reason = "a virtio disk, which on a machine other than QEMU is emulated by a device whose storage may be elsewhere"
	case host != "":
		d.Reason = fmt.Sprintf("behind the SCSI host %s (%s), which does not show that its storage is local: a RAID volume or an unknown transport",
			host, cmp.Or(s.text("sys/class/scsi_host", host, "proc_name"), "unknown driver"))
	default:
		d.Reason = "a device of unknown kind (" + where + ")"
	}
}

// networkNames are beginnings of names of virtual block devices that hold what other machines hold.
var networkNames = map[string]string{"nbd": "a network block device", "drbd": "a DRBD device", "rbd": "a Ceph RBD image"}

// classifyVirtual classifies a device without a parent: by its name, or by the devices below it.
func (s Sys) classifyVirtual(d *Device, depth int) {
	kind := strings.TrimRight(d.Name, "0123456789")
	if reason, ok := networkNames[kind]; ok {
		d.Reason, d.Network = reason, true
		return
	}
	switch kind {
	case "loop":
		d.Class, d.Reason = Layer, "a loop device, whose data lies in a file"
		return
	case "ram", "zram":
		d.Class, d.Reason = Layer, "a disk in memory"
		return
	}
	below := s.names(blockClass, d.Name, "slaves")
	if len(below) == 0 || depth == 0 {
		d.Reason = "a virtual device, of which nothing shows where its data lies"
		return
	}
	for _, b := range below {
		if under := s.classify(s.Whole(b), depth-1); under.Class == Foreign {
			d.Reason, d.Network = fmt.Sprintf("over %s: %s", b, under.Reason), under.Network
			return
		}
	}
	d.Class, d.Reason = Layer, "over "+strings.Join(below, ", ")+", which are of this node"
}

// Whole returns the whole device of a partition, and a whole device as it is.
func (s Sys) Whole(name string) string {
	if s.exists(blockClass, name) {
		return name
	}
	if where, err := s.resolve("sys/class/block", name); err == nil && s.exists("sys/class/block", name, "partition") {
		return filepath.Base(filepath.Dir(where))
	}
	for _, d := range s.names(blockClass) {
		if s.exists(blockClass, d, name) {
			return d
		}
	}
	return name
}

var deviceNumber = regexp.MustCompile(`^\d+:\d+$`)

// ByNumber returns the name that the kernel gives the block device with a number, such as "8:1". It
// returns "" when there is none.
func (s Sys) ByNumber(number string) string {
	if !deviceNumber.MatchString(number) {
		return ""
	}
	if where, err := s.resolve("sys/dev/block", number); err == nil {
		return filepath.Base(where)
	}
	if s.exists("sys/dev/block") {
		return ""
	}
	for _, d := range s.names(blockClass) {
		if s.text(blockClass, d, "dev") == number {
			return d
		}
		for _, p := range s.names(blockClass, d) {
			if s.exists(blockClass, d, p, "partition") && s.text(blockClass, d, p, "dev") == number {
				return p
			}
		}
	}
	return ""
}

// sectors returns the size of a device in sectors of 512 bytes, and the largest number when it is
// not known.
func (s Sys) sectors(name string) int64 {
	n, err := strconv.ParseInt(s.text(blockClass, name, "size"), 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return n
}

// virtual reports whether a device has no parent: the kernel makes it, and no bus has it.
func (s Sys) virtual(name string) bool {
	where, err := s.resolve(blockClass, name)
	return err == nil && strings.HasPrefix(where, "/sys/devices/virtual/block/")
}

// resolve returns the path of sysfs that a path leads to, without the root.
func (s Sys) resolve(elem ...string) (string, error) {
	root, err := filepath.EvalSymlinks(filepath.Join(string(s), "sys"))
	if err != nil {
		return "", err
	}
	target, err := filepath.EvalSymlinks(s.path(elem...))
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(root, target)
	if err != nil || strings.HasPrefix(rel, "..") {
		return "", fmt.Errorf("%s leads out of sysfs", filepath.Join(elem...))
	}
	return "/sys/" + rel, nil
}

func (s Sys) path(elem ...string) string {
	return filepath.Join(append([]string{string(s)}, elem...)...)
}

func (s Sys) text(elem ...string) string {
	raw, err := os.ReadFile(s.path(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func (s Sys) exists(elem ...string) bool {
	_, err := os.Stat(s.path(elem...))
	return err == nil
}

func (s Sys) names(elem ...string) []string {
	entries, err := os.ReadDir(s.path(elem...))
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out
}
