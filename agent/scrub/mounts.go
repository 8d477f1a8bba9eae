package scrub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/blockdev"
	"github.com/slipway-cloud/slipway/agent/hostscan"
)

// mountList is never empty: a node without any mount is one that cannot be seen.
func (h Host) mountList() ([]hostscan.Mount, error) {
	out, err := h.scan().Mounts()
	if err == nil && len(out) == 0 {
		err = errors.New("the list of mounts is empty")
	}
	return out, err
}

// tenantRoots are where tenants' file systems are mounted, of whatever kind.
func tenantRoots() []string {
	return []string{"/mnt", "/media", "/home", "/srv", "/data", "/scratch", "/opt/tenants"}
}

// network are file systems of other machines.
func network(fsType string) bool {
	return slices.Contains([]string{"nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "beegfs", "gpfs", "glusterfs", "9p", "wekafs", "davfs", "afs", "smbfs", "orangefs", "virtiofs"}, fsType) ||
		strings.HasPrefix(fsType, "fuse.") || fsType == "fuse"
}

// foreignMounts are those of tenants: other machines' file systems, whatever is
// below the tenants' roots, and file systems on disks other than the system's.
// The deepest and latest come first.
func (r *run) foreignMounts() ([]hostscan.Mount, error) {
	all, err := r.mountList()
	if err != nil {
		return nil, err
	}
	system, err := r.systemDisks(all)
	if err != nil {
		return nil, err
	}
	var out []hostscan.Mount
	for _, m := range all {
		if !r.concerns("mount", m.Target) || m.Target == "/" {
			continue
		}
		foreign := network(m.FSType)
		for _, root := range tenantRoots() {
			foreign = foreign || m.Target == root || strings.HasPrefix(m.Target, root+"/")
		}
		for _, dir := range temporary() {
			foreign = foreign || strings.HasPrefix(m.Target, dir+"/")
		}
		if dev, ok := r.deviceOf(m); ok && !foreign && m.FSType != "squashfs" && m.FSType != "devtmpfs" {
			drives := r.drivesOf(dev)
			foreign = len(drives) == 0 || slices.ContainsFunc(drives, func(d string) bool { return !system[d] })
		}
		if foreign {
			out = append(out, m)
		}
	}
	slices.Reverse(out)
	sort.SliceStable(out, func(i, j int) bool { return strings.Count(out[i].Target, "/") > strings.Count(out[j].Target, "/") })
	return out, nil
}

// unmount ends the tenants' mounts. A mount that is busy is reported with the
// processes that hold it. It is detached lazily only when nobody is left who
// holds it, and never when it lies on a block device, which would then be
// erased or disconnected in use. A file system on a device that is not this
// node's stays mounted, unless the next step disconnects that device: then
// unmounting is what leaves it whole.
func (r *run) unmount(ctx context.Context) (string, error) {
	found, err := r.foreignMounts()
	if err != nil {
		return "", err
	}
	errs := []error{r.swapFilesOff(ctx, found)}
	for _, m := range found {
		if err := r.unmountOne(ctx, m); err != nil {
			errs = append(errs, err)
		}
	}
	left, err := r.foreignMounts()
	if err != nil {
		errs = append(errs, err)
	}
	if len(left) > 0 && errors.Join(errs...) == nil {
		errs = append(errs, fmt.Errorf("%d mounts are still there, the first is %s", len(left), left[0].Target))
	}
	if len(found) == 0 {
		return "no mount of a tenant", errors.Join(errs...)
	}
	gone := slices.DeleteFunc(slices.Clone(found), func(m hostscan.Mount) bool { return slices.Contains(left, m) })
	if err := r.forget(gone); err != nil {
		errs = append(errs, err)
	}
	return fmt.Sprintf("%d unmounted", len(found)-len(left)), errors.Join(errs...)
}

func (r *run) unmountOne(ctx context.Context, m hostscan.Mount) error {
	if place, onDevice := r.placeOf(m); onDevice && place.Class == blockdev.Foreign && place.Connection == (blockdev.Connection{}) {
		return fmt.Errorf("%s stays mounted: %s is not this node's: %s", m.Target, m.Source, place.Reason)
	}
	_, err := r.run(ctx, time.Minute, "umount", "--", m.Target)
	if err == nil {
		return nil
	}
	if now, listErr := r.mountList(); listErr == nil && !slices.Contains(now, m) {
		return nil // it went with another
	}
	who, whoErr := r.holders(func(p string) bool { return p == m.Target || strings.HasPrefix(p, m.Target+"/") })
	if whoErr != nil {
		return fmt.Errorf("%s is busy and who holds it is unknown: %w", m.Target, whoErr)
	}
	if len(who) > 0 {
		return fmt.Errorf("%s is busy: process %s holds it", m.Target, list(names(who)))
	}
	if strings.HasPrefix(m.Source, "/dev/") {
		return fmt.Errorf("%s is on a disk of this machine and cannot be unmounted: %w", m.Target, err)
	}
	if _, err := r.run(ctx, time.Minute, "umount", "-l", "--", m.Target); err != nil {
		return fmt.Errorf("%s cannot be unmounted, nor detached: %w", m.Target, err)
	}
	return nil
}

// forget takes the mounts out of /etc/fstab: with their disks erased the next
// boot would stop at them.
func (r *run) forget(gone []hostscan.Mount) error {
	raw, err := r.read("/etc/fstab")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read /etc/fstab: %w", err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) >= 2 && f[0][0] != '#' && slices.ContainsFunc(gone, func(m hostscan.Mount) bool { return m.Target == hostscan.Unescape(f[1]) }) {
			continue
		}
		b.WriteString(line)
	}
	if b.String() == string(raw) {
		return nil
	}
	return r.replace("/etc/fstab", []byte(b.String()))
}
