package simnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// RemoteVolume is the block device of the volume that AttachRemote connects.
const RemoteVolume = "nvme9n1"

const (
	remoteController = "/sys/devices/virtual/nvme-fabrics/ctl/nvme9"
	remoteBytes      = 64 << 20
)

// AttachRemote connects a volume of another machine over NVMe/TCP, with a tenant's data on it, and
// mounts it. Nothing of it outlives a boot but the data.
func (n *Node) AttachRemote() error {
	t, err := openTree(n.root)
	if err != nil {
		return err
	}
	defer t.close()
	if exists(filepath.Join(n.root, "sys/class/nvme/nvme9")) {
		return nil
	}
	if err := errors.Join(n.makeDisk(simhw.Disk{Name: RemoteVolume, Bytes: remoteBytes}), n.write(RemoteVolume, TenantMark, remoteBytes)); err != nil {
		return err
	}
	errs := []error{t.controller(RemoteVolume, remoteController, "tcp", "nqn.2024-01.example:volume-7"), n.linkDevice(RemoteVolume)}
	dir := "/sys/block/" + RemoteVolume
	for path, content := range map[string]string{dir + "/size": fmt.Sprintf("%d\n", remoteBytes/512), dir + "/ro": "0\n", dir + "/removable": "0\n",
		remoteController + "/serial": "REMOTE7\n", remoteController + "/model": "Remote Target\n"} {
		errs = append(errs, t.put(path, []byte(content), 0o644, false))
	}
	return errors.Join(append(errs, t.put("/proc/mounts", []byte("/dev/"+RemoteVolume+" /mnt/volume ext4 rw,relatime 0 0\n"), 0o644, true))...)
}

// linkDevice makes the device file of a disk.
func (n *Node) linkDevice(disk string) error {
	link := filepath.Join(n.root, "dev", disk)
	if err := os.Symlink(filepath.Join("..", "..", disksDir, disk), link); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make /dev/%s on the node: %w", disk, err)
	}
	return nil
}

// detachRemote takes away what AttachRemote connected.
func (t *tree) detachRemote() error {
	for _, p := range []string{"/sys/class/nvme/nvme9", "/sys/block/" + RemoteVolume, "/dev/" + RemoteVolume, remoteController} {
		if err := t.root.RemoveAll(strings.TrimPrefix(p, "/")); err != nil {
			return fmt.Errorf("disconnect the remote volume: %w", err)
		}
	}
	return nil
}
