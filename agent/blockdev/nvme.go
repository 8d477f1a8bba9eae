package blockdev

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	nvmeClass      = "sys/class/nvme"
	sessionClass   = "sys/class/iscsi_session"
	localTransport = "pcie"
)

var controllerName = regexp.MustCompile(`^nvme\d+$`)

// classifyNVMe classifies a namespace by the transports of all controllers of its subsystem: with
// multipath, the next command may take any of them.
func (s Sys) classifyNVMe(d *Device) {
	controllers := s.controllersOf(d.Name)
	if len(controllers) == 0 {
		d.Reason = "an NVMe namespace whose controllers sysfs does not show"
		return
	}
	var remote, local []string
	nqn := ""
	for _, c := range controllers {
		transport := s.text(nvmeClass, c, "transport")
		switch transport {
		case localTransport:
			local = append(local, c)
			continue
		case "":
			transport = "unknown"
		}
		nqn = s.text(nvmeClass, c, "subsysnqn")
		remote = append(remote, fmt.Sprintf("%s (transport %s)", c, transport))
	}
	if len(remote) == 0 {
		d.Controllers = local
		d.Class, d.Reason = Local, "an NVMe drive at the PCIe bus of this node ("+strings.Join(local, ", ")+")"
		return
	}
	d.Network, d.Reason = true, "an NVMe namespace with the path "+strings.Join(remote, ", ")
	if len(local) == 0 && nqn != "" {
		d.Connection = Connection{KindNVMe, nqn}
	}
}

// controllersOf returns all controllers of a namespace's subsystem. The parent of a namespace is
// its only controller, or its subsystem.
func (s Sys) controllersOf(namespace string) []string {
	parent := []string{blockClass, namespace, "device"}
	var out []string
	nqn := s.text(append(parent, "subsysnqn")...)
	for _, name := range s.names(parent...) {
		if controllerName.MatchString(name) {
			out = append(out, name)
		}
	}
	if where, err := s.resolve(parent...); err == nil {
		if name := where[strings.LastIndexByte(where, '/')+1:]; controllerName.MatchString(name) {
			out = append(out, name)
		}
	}
	for _, c := range s.names(nvmeClass) {
		if nqn != "" && s.text(nvmeClass, c, "subsysnqn") == nqn && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// Connections lists the NVMe subsystems that are reached over a fabric only, and the iSCSI
// sessions, also those that show no block device.
func (s Sys) Connections() ([]Connection, error) {
	local, remote := map[string]bool{}, map[string]bool{}
	controllers, err := s.list(nvmeClass)
	if err != nil {
		return nil, err
	}
	for _, c := range controllers {
		nqn := s.text(nvmeClass, c, "subsysnqn")
		if s.text(nvmeClass, c, "transport") == localTransport {
			local[nqn] = true
		} else {
			remote[nqn] = true
		}
	}
	var out []Connection
	for nqn := range remote {
		if nqn != "" && !local[nqn] {
			out = append(out, Connection{KindNVMe, nqn})
		}
	}
	sessions, err := s.list(sessionClass)
	if err != nil {
		return nil, err
	}
	for _, name := range sessions {
		if id, ok := strings.CutPrefix(name, "session"); ok {
			out = append(out, Connection{KindISCSI, id})
		}
	}
	slices.SortFunc(out, func(a, b Connection) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// list returns the entries of a class. A class that the kernel does not have is empty.
func (s Sys) list(class string) ([]string, error) {
	entries, err := os.ReadDir(s.path(class))
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("list %s: %w", class, err)
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}
