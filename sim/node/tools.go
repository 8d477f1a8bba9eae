package simnode

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

//go:embed tools
var toolScripts embed.FS

// refusing are programs that would change the machine on which the simulation
// runs; on a simulated node they only say so.
var refusing = [...]string{"apt", "apt-get", "chpasswd", "dd", "dpkg", "fdisk", "init", "ip", "ipmitool",
	"iptables", "kexec", "mkfs", "mkfs.ext4", "mkfs.xfs", "mlnx_qos", "modprobe", "mount", "netplan", "nft", "parted",
	"passwd", "rmmod", "sgdisk", "snap", "sysctl", "telinit", "wipefs"}

// The names of the state that tools and simulation share, below the state
// directory.
const (
	unitsState = "units"
	powerState = "power"
	gpuState   = "nvidia-smi.xml"

	gpuQueryState = "nvidia-smi.tsv"
	gpuTableState = "nvidia-smi.txt"
	clockState    = "clock"
	bootState     = "cloud-init"
	appliedMark   = "applied" // user-data has been applied to this installation
	rootPointer   = "root"
)

// installTools fills the directory that stands first in the node's PATH.
func (n *Node) installTools(s simhw.Spec, hostname string) error {
	scripts, err := toolScripts.ReadDir("tools")
	if err != nil {
		return fmt.Errorf("read the simulated tools: %w", err)
	}
	for _, e := range scripts {
		body, err := toolScripts.ReadFile("tools/" + e.Name())
		if err != nil {
			return fmt.Errorf("read the simulated tools: %w", err)
		}
		names := []string{e.Name()}
		switch e.Name() {
		case "power":
			names = []string{"reboot", "poweroff", "shutdown", "halt"}
		case "refuse":
			names = refusing[:]
		case "layers":
			names = []string{"mdadm", "dmsetup", "swapoff", "zpool", "kernel"}
		case "id":
			names = []string{"id", "whoami"}
		case "nvidia-smi", "nv-fabricmanager", "slipway-gpu-pattern":
			if s.GPUs == 0 {
				continue
			}
		}
		for _, name := range names {
			if err := replaceAtomically(filepath.Join(n.tools, name), body, 0o755); err != nil {
				return fmt.Errorf("install the simulated %s: %w", name, err)
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(n.state, unitsState), 0o700); err != nil {
		return fmt.Errorf("make the node's state: %w", err)
	}
	for name, content := range map[string]string{rootPointer: n.root, "hostname": hostname + "\n"} {
		if err := replaceAtomically(filepath.Join(n.state, name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("write the node's state: %w", err)
		}
	}
	return errors.Join(n.layDevices(s), n.writeGPUs(s), n.writeScrub(s))
}

func (n *Node) writeGPUs(s simhw.Spec) error {
	if err := replaceAtomically(filepath.Join(n.state, gpuState), nvidiaXML(s, n.Faults()), 0o600); err != nil {
		return fmt.Errorf("write the node's GPUs: %w", err)
	}
	for name, content := range map[string]string{gpuQueryState: nvidiaQuery(s, n.Faults()), gpuTableState: nvidiaTable(s, n.Faults()),
		"lspci-gpus": lspci(gpuDevices(s, n.Faults()))} {
		if err := replaceAtomically(filepath.Join(n.state, name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("write the node's GPUs: %w", err)
		}
	}
	return nil
}
