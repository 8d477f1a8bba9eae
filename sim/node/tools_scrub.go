package simnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// ScrubFaults are what goes wrong when a node is scrubbed or validated: one for
// each step and more. They act in the recorded tools, so the real steps and
// parsers meet them.
type ScrubFaults struct {
	OtherMachine         bool // the firmware shows another serial number
	ContainerStays       bool
	ContainerdDown       bool // containerd does not answer
	ProcessStays         bool
	UserStays            bool
	KeysUnreadable       bool // root's authorized_keys is a directory
	PackagesUnknown      bool // the package system does not answer
	MountBusy            bool
	LayerStays           bool // a RAID lies over the disks, and nothing there can be stopped
	FormatSaysError      bool // nvme format does its work and ends with an error
	RemoteStays          bool // a volume of another machine is connected and cannot be disconnected
	TemporaryIsLink      bool // /var/tmp leads elsewhere
	GPUProcess           bool // a process has a GPU open
	GPUMIGUnknown        bool // MIG and row remaps read N/A
	GPUResetFails        bool
	GPUMemoryResidue     bool // something is left in the GPUs' memory
	MemoryRequestRefused bool // the firmware knows no memory overwrite request
	SanitizeFails        bool // NVMe drives say that sanitize failed
	SanitizeUnsupported  bool // NVMe drives can only format
	FrozenDrive          bool // SATA drives are frozen
	EraseKeepsData       bool // drives say that they erased, and did not
	FabricDown           bool // the fabric manager is not active
	XID                  int  // the kernel's log holds this error of a GPU
	// SanitizeLooks is for how many looks at its log a sanitize operation runs;
	// 0 is one.
	SanitizeLooks int
}

// files are the faults as the tools read them.
func (f ScrubFaults) files() map[string]string {
	out := map[string]string{}
	for name, on := range map[string]bool{"container_stays": f.ContainerStays, "containerd_down": f.ContainerdDown, "process_stays": f.ProcessStays, "user_stays": f.UserStays,
		"packages_unknown": f.PackagesUnknown, "mount_busy": f.MountBusy, "layer_stays": f.LayerStays, "format_says_error": f.FormatSaysError, "remote_stays": f.RemoteStays, "gpu_process": f.GPUProcess, "gpu_mig_unknown": f.GPUMIGUnknown,
		"gpu_reset_fails": f.GPUResetFails, "gpu_memory_residue": f.GPUMemoryResidue, "sanitize_fails": f.SanitizeFails,
		"sanitize_unsupported": f.SanitizeUnsupported, "frozen_drive": f.FrozenDrive, "erase_keeps_data": f.EraseKeepsData} {
		if on {
			out[name] = ""
		}
	}
	if f.XID > 0 {
		out["xid"] = strconv.Itoa(f.XID)
	}
	if f.SanitizeLooks > 0 {
		out["sanitize_looks"] = strconv.Itoa(f.SanitizeLooks)
	}
	return out
}

const (
	faultsState     = "faults"
	containerdState = "containerd"
	containersState = "containers"
	migState        = "gpu-mig"
	fabricUnit      = "nvidia-fabricmanager.service"
	// overwriteVariable is four bytes of attributes and the value.
	overwriteVariable = "/sys/firmware/efi/efivars/MemoryOverwriteRequestControl-e20939be-32d4-41be-a150-897f85d49829"
)

// layDevices makes the files that the scrub reads, again at each boot. No process outlives a boot,
// and the firmware forgets its requests.
func (n *Node) layDevices(s simhw.Spec) error {
	old, err := filepath.Glob(filepath.Join(n.root, "proc", "[0-9]*"))
	if err != nil {
		return fmt.Errorf("look for the processes of the last boot: %w", err)
	}
	for _, p := range old {
		if err := os.RemoveAll(p); err != nil {
			return fmt.Errorf("end the processes of the last boot: %w", err)
		}
	}
	if err := n.endTasks(); err != nil {
		return err
	}
	t, err := openTree(n.root)
	if err != nil {
		return err
	}
	defer t.close()
	if !exists(filepath.Join(n.root, "etc/passwd")) {
		if err := t.put("/etc/passwd", []byte("root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"), 0o644, false); err != nil {
			return err
		}
	}
	if err := t.detachRemote(); err != nil {
		return err
	}
	controllers := 0
	for _, d := range s.Disks {
		if err := n.layDisk(t, d, &controllers); err != nil {
			return err
		}
	}
	return errors.Join(n.restack(t, s.Disks), t.put(overwriteVariable, []byte{7, 0, 0, 0, 0}, 0o644, false))
}

// endTasks ends what ran in containerd; what it holds outlives a boot.
func (n *Node) endTasks() error {
	spaces, err := os.ReadDir(filepath.Join(n.state, containerdState))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("look for what ran in containerd: %w", err)
	}
	for _, s := range spaces {
		n.note(filepath.Join(containerdState, s.Name(), "tasks"), "")
	}
	return nil
}

func (n *Node) layDisk(t *tree, d simhw.Disk, controllers *int) error {
	if err := n.makeDisk(d); err != nil {
		return err
	}
	if err := t.dir("/dev"); err != nil {
		return err
	}
	if err := n.linkDevice(d.Name); err != nil {
		return err
	}
	if !d.NVMe {
		n.note(filepath.Join("hdparm", d.Name+".serial"), d.Serial)
		return t.put("/sys/block/"+d.Name+"/ro", []byte("0\n"), 0o644, false)
	}
	ctrl := d.Name[:strings.LastIndexByte(d.Name, 'n')]
	*controllers++
	id, err := json.Marshal(map[string]any{"vid": 5197, "sn": d.Serial + "  ", "mn": d.Model, "fr": "SIM1", "cntlid": *controllers, "oacs": 0x5e, "fna": 4, "sanicap": 3, "nn": 32})
	if err != nil {
		return fmt.Errorf("describe the controller %s: %w", ctrl, err)
	}
	n.note(filepath.Join("nvme", ctrl+".json"), string(id))
	return errors.Join(t.put("/sys/block/"+d.Name+"/ro", []byte("0\n"), 0o644, false),
		t.put("/sys/class/nvme/"+ctrl+"/serial", []byte(d.Serial+"\n"), 0o644, false))
}

// writeScrub puts the faults of the scrub where the tools find them.
func (n *Node) writeScrub(s simhw.Spec) error {
	f := n.Faults().Scrub
	dir := filepath.Join(n.state, faultsState)
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clear the node's faults: %w", err)
	}
	for name, content := range f.files() {
		if err := replaceAtomically(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("set a fault of the node: %w", err)
		}
	}
	n.runFabric(s.GPUs > 0 && !f.FabricDown)
	t, err := openTree(n.root)
	if err != nil {
		return err
	}
	defer t.close()
	serial := s.Serial
	if f.OtherMachine {
		serial = "ANOTHER"
	}
	if err := t.put("/sys/class/dmi/id/product_serial", []byte(serial+"\n"), 0o644, false); err != nil {
		return err
	}
	if f.LayerStays && len(s.Disks) > 1 {
		if err := n.Stack("", Layer{Name: "md0", Kind: LayerRAID, Over: []string{s.Disks[0].Name, s.Disks[1].Name}}); err != nil {
			return err
		}
	}
	if f.RemoteStays {
		if err := n.AttachRemote(); err != nil {
			return err
		}
	}
	return errors.Join(n.keysFault(t, f.KeysUnreadable), n.temporaryFault(t, f.TemporaryIsLink), n.overwriteFault(t, f.MemoryRequestRefused))
}

// runFabric turns the fabric manager on or off, now and at each boot.
func (n *Node) runFabric(on bool) {
	for _, how := range []string{".enabled", ".active"} {
		name := filepath.Join(unitsState, fabricUnit+how)
		if on {
			n.note(name, "")
		} else if err := os.Remove(filepath.Join(n.state, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			n.log.Error("the fabric manager of a simulated node could not be stopped", "error", err)
		}
	}
}

func (n *Node) keysFault(t *tree, on bool) error {
	const path = "/root/.ssh/authorized_keys"
	p := filepath.Join(n.root, path)
	st, err := os.Lstat(p)
	isDir := err == nil && st.IsDir()
	if on == isDir {
		return nil
	}
	if err := os.RemoveAll(p); err != nil {
		return fmt.Errorf("change root's keys: %w", err)
	}
	if on {
		return t.dir(path)
	}
	return nil
}

func (n *Node) temporaryFault(t *tree, on bool) error {
	const path = "/var/tmp"
	p := filepath.Join(n.root, path)
	st, err := os.Lstat(p)
	isLink := err == nil && st.Mode()&os.ModeSymlink != 0
	if on == isLink {
		return nil
	}
	if err := os.RemoveAll(p); err != nil {
		return fmt.Errorf("change the temporary directory: %w", err)
	}
	if !on {
		return t.dir(path)
	}
	if err := os.Symlink("../home", p); err != nil {
		return fmt.Errorf("change the temporary directory: %w", err)
	}
	return nil
}

func (n *Node) overwriteFault(t *tree, on bool) error {
	p := filepath.Join(n.root, overwriteVariable)
	if on {
		if err := os.RemoveAll(p); err != nil {
			return fmt.Errorf("take the memory overwrite request away: %w", err)
		}
		return nil
	}
	if exists(p) {
		return nil
	}
	return t.put(overwriteVariable, []byte{7, 0, 0, 0, 0}, 0o644, false)
}
