package simnode

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// The answers of a simulated node's programs are made here from the machine and its installed
// system, so that they agree with each other, and with the files of the kernel in system.

const kernelRelease = "6.8.0-45-generic"

// release is what os-release says of a series.
type release struct{ id, name, version, codename string }

var releases = map[string]release{
	"focal":    {"ubuntu", "Ubuntu", "20.04", "Focal Fossa"},
	"jammy":    {"ubuntu", "Ubuntu", "22.04", "Jammy Jellyfish"},
	"noble":    {"ubuntu", "Ubuntu", "24.04", "Noble Numbat"},
	"bookworm": {"debian", "Debian GNU/Linux", "12", "bookworm"},
	"trixie":   {"debian", "Debian GNU/Linux", "13", "trixie"},
}

func osRelease(os simhw.OS) string {
	r, ok := releases[os.Series]
	if !ok {
		r = release{cmp.Or(os.System, "linux"), cmp.Or(os.System, "Linux"), cmp.Or(os.Series, "1"), cmp.Or(os.Series, "simulated")}
	}
	return fmt.Sprintf("PRETTY_NAME=\"%[1]s %[2]s (%[3]s)\"\nNAME=\"%[1]s\"\nVERSION_ID=\"%[2]s\"\nVERSION=\"%[2]s (%[3]s)\"\nVERSION_CODENAME=%[4]s\nID=%[5]s\nVARIANT=\"simulated\"\n",
		r.name, r.version, r.codename, cmp.Or(os.Series, "simulated"), r.id)
}

const cpuModel = "Simulated CPU @ 2.00GHz"

func cpus(s simhw.Spec) int { return max(s.CPUs, 1) }

func lscpu(s simhw.Spec) string {
	var b strings.Builder
	for _, l := range [][2]string{{"Architecture:", "x86_64"}, {"CPU op-mode(s):", "32-bit, 64-bit"}, {"Byte Order:", "Little Endian"}, {"CPU(s):", fmt.Sprint(cpus(s))},
		{"On-line CPU(s) list:", fmt.Sprintf("0-%d", cpus(s)-1)}, {"Vendor ID:", "Simulated"}, {"Model name:", cpuModel}, {"Thread(s) per core:", "1"},
		{"Core(s) per socket:", fmt.Sprint(cpus(s))}, {"Socket(s):", "1"}} {
		fmt.Fprintf(&b, "%-33s%s\n", l[0], l[1])
	}
	return b.String()
}

func cpuinfo(s simhw.Spec) string {
	var b strings.Builder
	for i := range cpus(s) {
		fmt.Fprintf(&b, "processor\t: %d\nmodel name\t: %s\n\n", i, cpuModel)
	}
	return b.String()
}

// pciDevice is a line of lspci, with the numbers that -nn adds.
type pciDevice struct{ address, class, classID, name, id string }

func pciDevices(s simhw.Spec) []pciDevice {
	var out []pciDevice
	sata := false
	for i, d := range s.Disks {
		if d.NVMe {
			out = append(out, pciDevice{fmt.Sprintf("%02x:00.0", i+1), "Non-Volatile memory controller", "0108", "Samsung Electronics Co Ltd " + d.Model, "144d:a824"})
		} else if !sata {
			sata = true
			out = append(out, pciDevice{"00:17.0", "SATA controller", "0106", "Intel Corporation SATA Controller [AHCI mode]", "8086:1bf2"})
		}
	}
	for i := range s.NICs {
		out = append(out, pciDevice{fmt.Sprintf("a%x:00.0", i%16), "Ethernet controller", "0200", "Mellanox Technologies MT2910 Family [ConnectX-7]", "15b3:1021"})
	}
	return out
}

func gpuDevices(s simhw.Spec, f Faults) []pciDevice {
	var out []pciDevice
	for i := range gpuCount(s, f) {
		out = append(out, pciDevice{strings.ToLower(strings.TrimPrefix(gpuBus(i), "00000000:")), "3D controller", "0302",
			"NVIDIA Corporation " + strings.TrimPrefix(s.GPUModel, "NVIDIA "), "10de:2330"})
	}
	return out
}

// lspci writes both forms of each line, separated by a tab.
func lspci(all []pciDevice) string {
	var b strings.Builder
	for _, d := range all {
		fmt.Fprintf(&b, "%[1]s %[2]s: %[4]s (rev a1)\t%[1]s %[2]s [%[3]s]: %[4]s [%[5]s] (rev a1)\n", d.address, d.class, d.classID, d.name, d.id)
	}
	return b.String()
}

func kernelLog(s simhw.Spec, ev simhw.Event) string {
	lines := []string{
		"Linux version " + kernelRelease + " (simulated)",
		"Command line: BOOT_IMAGE=/boot/vmlinuz-" + kernelRelease + " root=/dev/" + partition(ev.OS.Disk) + " ro",
		fmt.Sprintf("DMI: %s %s, serial %s", s.Vendor, s.Model, s.Serial),
		fmt.Sprintf("Memory: %dK/%dK available", s.MemoryMiB*900, s.MemoryMiB*1024),
		fmt.Sprintf("smp: Brought up 1 node, %d CPUs", cpus(s)),
	}
	for _, d := range s.Disks {
		lines = append(lines, fmt.Sprintf("%s: %s, %d 512-byte logical blocks", d.Name, d.Model, d.Bytes/512))
	}
	for _, n := range s.NICs {
		lines = append(lines, fmt.Sprintf("mlx5_core %s: address %s", n.Name, n.MAC))
	}
	if s.GPUs > 0 {
		lines = append(lines, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  "+driverVersion+"  Release Build  (simulated)")
	}
	lines = append(lines, "random: boot "+ev.BootID)
	var b strings.Builder
	for i, l := range lines {
		fmt.Fprintf(&b, "[%12.6f] %s\n", float64(i)*0.25, l)
	}
	return b.String()
}

// describe lays out what the node's programs say of it in this boot.
func (n *Node) describe(t *tree, s simhw.Spec, ev simhw.Event) error {
	for name, content := range map[string]string{"kernel-log": kernelLog(s, ev), "lscpu": lscpu(s), "kernel": kernelRelease + "\n",
		"lspci": lspci(pciDevices(s)), "booted": fmt.Sprintf("%d\n", ev.At.Unix())} {
		if err := replaceAtomically(filepath.Join(n.state, name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("describe the node: %w", err)
		}
	}
	n.noteClock()
	for _, entry := range n.opt.Machine.BootEntries() { // the firmware keeps them
		if err := n.addBootEntry(t, entry); err != nil {
			return err
		}
	}
	release := []byte(osRelease(*ev.OS))
	return errors.Join(t.put("/etc/os-release", release, 0o644, false), t.put("/usr/lib/os-release", release, 0o644, false), t.put("/proc/cpuinfo", []byte(cpuinfo(s)), 0o644, false),
		t.put("/proc/version", []byte("Linux version "+kernelRelease+" (simulated)\n"), 0o644, false))
}

// noteClock tells the node's programs the time, and for how long the system has been up, by the
// machine's clock, which may run faster than that of the machine that simulates it.
func (n *Node) noteClock() {
	n.mu.Lock()
	booted := n.bootedAt
	n.mu.Unlock()
	now := n.opt.Machine.Clock().Now()
	up := max(now.Sub(booted), 0)
	n.note(clockState, fmt.Sprintf("%d %d\n", now.Unix(), int64(up/time.Second)))
	t, err := openTree(n.root)
	if err == nil {
		err = t.put("/proc/uptime", fmt.Appendf(nil, "%.2f %.2f\n", up.Seconds(), up.Seconds()*float64(cpus(n.opt.Machine.Spec()))), 0o644, false)
		t.close()
	}
	if err != nil {
		n.log.Error("the uptime of a simulated node could not be written", "error", err)
	}
}
