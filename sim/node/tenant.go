package simnode

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// TenantMark begins the mark in everything that Occupy leaves on disks. The name of the tenant
// follows in brackets where SetTenant has set one.
const TenantMark = "SIMULATED-TENANT-DATA"

// TenantKey is the public key that Occupy leaves in the files of accounts.
const TenantKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFRlbmFudFRlbmFudFRlbmFudFRlbmFudFRlbmFudFQh tenant"

// SetTenant names the tenant whose data Occupy, Fill and Plant leave from now on.
func (n *Node) SetTenant(name string) { n.mu.Lock(); defer n.mu.Unlock(); n.tenant = name }

func (n *Node) tenantMark() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tenant == "" {
		return TenantMark
	}
	return TenantMark + "[" + n.tenant + "]"
}

var markOfTenant = regexp.MustCompile(TenantMark + `(?:\[([^\]\n]*)\])?`)

// Trace is a place on a node that holds a tenant's data: the path of a file, a disk as /dev/NAME,
// or an entry of the boot menu. Tenant is the name that SetTenant set, or "" for none.
type Trace struct{ At, Tenant string }

func (t Trace) String() string {
	if t.Tenant == "" {
		return t.At
	}
	return t.At + " (of " + t.Tenant + ")"
}

// Occupy leaves on the node what a tenant leaves: an account with a key, a key of root, a process,
// containers of Docker and of containerd, things that start by themselves, a mount, files in the
// temporary directories, MIG on, and data on every disk but the system's. It also leaves what only
// root can, and what no scrub of an installed system finds: see Plant. The system must be up.
func (n *Node) Occupy() error {
	t, err := openTree(n.root)
	if err != nil {
		return err
	}
	defer t.close()
	errs := []error{n.occupy(t)}
	for _, place := range Places() {
		errs = append(errs, n.plant(t, place))
	}
	return errors.Join(errs...)
}

// OccupyWithoutPlants leaves what Occupy leaves, but nothing of what Plant hides: a scrub of the
// installed system takes all of it away.
func (n *Node) OccupyWithoutPlants() error {
	t, err := openTree(n.root)
	if err != nil {
		return err
	}
	defer t.close()
	return n.occupy(t)
}

func (n *Node) occupy(t *tree) error {
	const key = TenantKey + "\n"
	mark := n.tenantMark()
	var errs []error
	for _, f := range []struct {
		path, content string
		add           bool
	}{
		{"/etc/passwd", "tenant1:x:1001:1001::/home/tenant1:/bin/bash\n", true},
		{"/home/tenant1/.ssh/authorized_keys", key, false},
		{"/home/tenant1/data", mark + "\n", false},
		{"/proc/4242/status", "Name:\tminer\nState:\tS (sleeping)\nPid:\t4242\nUid:\t1001\t1001\t1001\t1001\n", false},
		{"/proc/mounts", "nas:/tenants /mnt/tenants/a nfs4 rw,relatime 0 0\n", true},
		{"/var/spool/cron/crontabs/tenant1", "* * * * * /home/tenant1/miner\n", false},
		{"/etc/systemd/system/miner.service", "[Service]\nExecStart=/home/tenant1/miner\n", false},
		{"/etc/sudoers.d/tenant1", "tenant1 ALL=(ALL) NOPASSWD:ALL\n", false},
		{"/etc/ld.so.preload", "/usr/local/lib/miner.so\n", false},
		{"/tmp/.miner/data", mark + "\n", false},
		{"/dev/shm/miner", mark + "\n", false},
	} {
		errs = append(errs, t.put(f.path, []byte(f.content), 0o644, f.add))
	}
	if !n.Faults().Scrub.KeysUnreadable {
		errs = append(errs, t.put("/root/.ssh/authorized_keys", []byte(key), 0o600, false))
	}
	if !n.Faults().Scrub.TemporaryIsLink {
		errs = append(errs, t.put("/var/tmp/miner.tar", []byte(mark+"\n"), 0o644, false))
	}
	n.note(containersState, "c0ffee\n")
	errs = append(errs, n.occupyContainerd(t))
	if n.opt.Machine.Spec().GPUs > 0 {
		n.note(migState, "")
	}
	return errors.Join(append(errs, n.Fill())...)
}

// BootEntry is the entry that Plant adds to the firmware's boot menu.
const BootEntry = "Boot0042"

const efiVariables = "/sys/firmware/efi/efivars/"

// efiVariable is where the kernel shows an entry of the boot menu.
func efiVariable(entry string) string {
	return efiVariables + entry + "-8be4df61-93ca-11d2-aa0d-00e098032b8c"
}

// hidden is a file that a tenant with root leaves for the next one.
type hidden struct{ path, content string }

// plants are what a tenant with root hides on the disk, by where.
func plants(mark string) map[string][]hidden {
	return map[string][]hidden{
		"package files": {{"/usr/bin/ls", "#!/bin/sh\n# " + mark + "\n"}, {"/var/lib/dpkg/info/coreutils.list", "/usr/bin/ls\n"}},
		"sshd":          {{"/usr/sbin/sshd", "#!/bin/sh\n# " + mark + "\n"}, {"/etc/ssh/sshd_config.d/50-tenant.conf", "# " + mark + "\nAuthorizedKeysFile /root/.hidden\n"}},
		"initramfs":     {{"/boot/initrd.img-" + kernelRelease, mark + "\n"}},
		"unit":          {{"/usr/lib/systemd/system/systemd-timesync-helper.service", "[Service]\n# " + mark + "\nExecStart=/usr/bin/ls\n"}},
		"root's home":   {{"/root/.hidden", mark + "\n"}, {"/root/.bashrc", "# " + mark + "\n"}},
		"journal":       {{"/var/log/journal/0123456789abcdef0123456789abcdef/system.journal", mark + "\n"}},
	}
}

// The places of plants that are no files of their own.
const (
	PlantInAgent = "agent"
	PlantInEFI   = "EFI entry"
)

// Places lists where Plant hides something.
func Places() []string {
	return append(slices.Sorted(maps.Keys(plants(TenantMark))), PlantInAgent, PlantInEFI)
}

// Plant hides what a tenant with root leaves for the next one, in one of Places. Only another
// installation takes it away, and for an entry of the firmware's boot menu an operator who looks
// from outside. The agent still runs.
func (n *Node) Plant(place string) error {
	t, err := openTree(n.root)
	if err != nil {
		return err
	}
	defer t.close()
	return n.plant(t, place)
}

func (n *Node) plant(t *tree, place string) error {
	switch place {
	case PlantInEFI:
		return n.addBootEntry(t, BootEntry)
	case PlantInAgent:
		agent := cloudinitAgent
		if exists(filepath.Join(n.root, installedAgent)) {
			agent = "/" + installedAgent
		}
		return t.put(agent, []byte("\n# "+n.tenantMark()+"\n"), 0o755, true)
	}
	files, known := plants(n.tenantMark())[place]
	if !known {
		return fmt.Errorf("a tenant hides nothing in %q", place)
	}
	var errs []error
	for _, f := range files {
		errs = append(errs, t.put(f.path, []byte(f.content), 0o755, false))
	}
	return errors.Join(errs...)
}

func (n *Node) addBootEntry(t *tree, entry string) error {
	if all := n.opt.Machine.BootEntries(); !slices.Contains(all, entry) {
		n.opt.Machine.SetBootEntries(append(all, entry)...)
	}
	return t.put(efiVariable(entry), []byte(n.tenantMark()+"\n"), 0o644, false)
}

// TenantTraces lists where the mark of a tenant's data is on the node, as Traces does, without
// names.
func (n *Node) TenantTraces() ([]string, error) {
	traces, err := n.Traces()
	var out []string
	for _, t := range traces {
		out = append(out, t.At)
	}
	return out, err
}

// Traces lists where the mark of a tenant's data is on the node. A restored node has none. A file
// that a running system takes away meanwhile holds nothing more.
func (n *Node) Traces() ([]Trace, error) {
	var out []Trace
	err := filepath.WalkDir(n.root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != n.root {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		there := strings.TrimPrefix(path, n.root)
		if strings.HasPrefix(there, efiVariables) && !slices.ContainsFunc(n.opt.Machine.BootEntries(), func(e string) bool { return efiVariable(e) == there }) {
			return nil // the kernel shows there what the firmware has, and this is as of the last boot
		}
		raw, err := os.ReadFile(path)
		if found := markOfTenant.FindSubmatch(raw); err == nil && found != nil {
			out = append(out, Trace{there, string(found[1])})
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	for _, d := range n.opt.Machine.Spec().Disks {
		found, derr := n.diskTrace(d.Name)
		if found != nil {
			out = append(out, *found)
		}
		err = errors.Join(err, derr)
	}
	slices.SortFunc(out, func(a, b Trace) int { return strings.Compare(a.At, b.At) })
	for _, entry := range n.opt.Machine.BootEntries() {
		out = append(out, Trace{At: entry})
	}
	return out, err
}

// occupyContainerd leaves a container in each of two namespaces, made by hand
// with ctr or for Kubernetes. One snapshot is made of the other.
func (n *Node) occupyContainerd(t *tree) error {
	for space, name := range map[string]string{"default": "miner", "k8s.io": "pod"} {
		for kind, lines := range map[string]string{"tasks": name, "containers": name, "images": "docker.io/tenant/" + name + ":latest",
			"snapshots": "sha256:" + name + " - Committed\n" + name + " sha256:" + name + " Active"} {
			n.note(filepath.Join(containerdState, space, kind), lines+"\n")
		}
	}
	return t.put("/run/containerd/containerd.sock", nil, 0o600, false)
}

// OpenNetwork has the node's network let connections pass to these addresses, host:port, and to no
// others, until the system is installed again. Without it nothing passes that the agent probes.
func (n *Node) OpenNetwork(addresses ...string) error {
	t, err := openTree(n.root)
	if err != nil {
		return err
	}
	defer t.close()
	return t.put("/etc/slipway-simulated-network", []byte(strings.Join(addresses, "\n")+"\n"), 0o644, false)
}

// stuckPID is the process that HoldProcess leaves.
const stuckPID = "4344"

// HoldProcess leaves a process of an account that waits for a device and that no signal ends, until
// the system goes down.
func (n *Node) HoldProcess(user string) error {
	a, found := n.accountOf(user)
	if !found {
		return fmt.Errorf("the node has no account %q", user)
	}
	t, err := openTree(n.root)
	if err != nil {
		return err
	}
	defer t.close()
	status := fmt.Sprintf("Name:\tcp\nState:\tD (disk sleep)\nPid:\t%[1]s\nUid:\t%[2]d\t%[2]d\t%[2]d\t%[2]d\n", stuckPID, a.uid)
	return t.put("/proc/"+stuckPID+"/status", []byte(status), 0o644, false)
}

// Fill leaves a tenant's data on every disk but the system's, and nothing else.
func (n *Node) Fill() error {
	var errs []error
	spec := n.opt.Machine.Spec()
	for i, d := range spec.Disks {
		if i == len(spec.Disks)-1 {
			break // the system's, as simhw installs by default
		}
		errs = append(errs, n.write(d.Name, n.tenantMark(), d.Bytes))
	}
	return errors.Join(errs...)
}

// write writes a text at the beginning, in the middle and near the end.
func (n *Node) write(disk, text string, size int64) error {
	f, err := os.OpenFile(n.image(disk), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("use the disk %s: %w", disk, err)
	}
	for _, at := range writtenAt(size) {
		_, werr := f.WriteAt([]byte(text), at)
		err = errors.Join(err, werr)
	}
	return errors.Join(err, f.Close())
}

// Erasures is how often each disk was erased by a tool on the node, by the disk's
// name: what a test of the scrub counts.
func (n *Node) Erasures() (map[string]int, error) {
	out := map[string]int{}
	raw, err := os.ReadFile(n.image(".erased"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read what was erased: %w", err)
	}
	for disk := range strings.FieldsSeq(string(raw)) {
		out[disk]++
	}
	return out, nil
}

// writtenAt is where write writes on a disk of a size.
func writtenAt(size int64) []int64 { return []int64{0, 4096, size / 2, size - 8192} }

// DiskHolds says whether a disk's image holds this text at one of the places
// where Occupy and WriteSystem write.
func (n *Node) DiskHolds(disk, text string) (bool, error) {
	read, err := n.readDisk(disk, len(text))
	return slices.ContainsFunc(read, func(b []byte) bool { return string(b) == text }), err
}

// diskTrace returns the trace of a tenant on a disk, or nil for none.
func (n *Node) diskTrace(disk string) (*Trace, error) {
	const longest = 256 // of a mark with its name
	read, err := n.readDisk(disk, longest)
	for _, b := range read {
		if found := markOfTenant.FindSubmatchIndex(b); found != nil && found[0] == 0 {
			name := ""
			if found[2] >= 0 {
				name = string(b[found[2]:found[3]])
			}
			return &Trace{"/dev/" + disk, name}, nil
		}
	}
	return nil, err
}

// readDisk reads a length at each of the places where write writes.
func (n *Node) readDisk(disk string, length int) ([][]byte, error) {
	f, err := os.Open(filepath.Clean(n.image(disk)))
	if err != nil {
		return nil, fmt.Errorf("look at the disk %s: %w", disk, err)
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at the disk %s: %w", disk, err)
	}
	var out [][]byte
	for _, at := range writtenAt(st.Size()) {
		buf := make([]byte, length)
		if _, err := f.ReadAt(buf, at); err == nil {
			out = append(out, buf)
		}
	}
	return out, nil
}
