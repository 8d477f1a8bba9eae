package scrub

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/agent/blockdev"
	"github.com/slipway-cloud/slipway/agent/hostscan"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
)

// placeOf returns the place of the device that a mount lies on. It returns false for a mount of no
// block device. A device that is not known is foreign.
func (h Host) placeOf(m hostscan.Mount) (blockdev.Device, bool) {
	dev, ok := h.deviceOf(m)
	if !ok || network(m.FSType) || m.FSType == "devtmpfs" {
		return blockdev.Device{}, false
	}
	name := h.wholeDevice(dev)
	if name == "" {
		return blockdev.Device{Name: dev, Class: blockdev.Foreign, Reason: "nothing shows which device it is"}, true
	}
	return h.blocks().Classify(name), true
}

// storageGuard returns an error when one of these paths lies on storage that is not this node's, or
// has such storage mounted below it. It runs before anything there is removed or written. The
// system's own file systems are this node's, wherever they lie.
func (h Host) storageGuard(paths ...string) error {
	mounts, err := h.mountList()
	if err != nil {
		return err
	}
	known := map[hostscan.Mount]error{} // a million paths lie in few mounts
	check := func(m hostscan.Mount) error {
		err, ok := known[m]
		if !ok {
			err = h.otherStorage(m)
			known[m] = err
		}
		return err
	}
	for _, p := range paths {
		p = h.withoutLinks(p)
		under := hostscan.Mount{Target: "/"} // the mount that p lies in: the deepest, and of those the last
		for _, m := range mounts {
			above := m.Target == p || strings.HasPrefix(p, strings.TrimSuffix(m.Target, "/")+"/")
			if above && len(m.Target) >= len(under.Target) {
				under = m
			}
			if !above && strings.HasPrefix(m.Target, strings.TrimSuffix(p, "/")+"/") {
				if err := check(m); err != nil {
					return err
				}
			}
		}
		if err := check(under); err != nil {
			return err
		}
	}
	return nil
}

// StorageGuard is storageGuard for the other tasks that remove files of a tenant.
func (h Host) StorageGuard(paths ...string) error { return h.withDefaults().storageGuard(paths...) }

// withoutLinks resolves the links in the directory of a path. The last element stays: a link is
// removed as a link. A directory that is not there stays as it is.
func (h Host) withoutLinks(p string) string {
	p = filepath.Clean(p)
	root, err := filepath.EvalSymlinks(h.Root)
	if err != nil {
		return p
	}
	dir, err := filepath.EvalSymlinks(h.path(filepath.Dir(p)))
	if err != nil {
		return p
	}
	inside, err := filepath.Rel(root, dir)
	if err != nil || inside == ".." || strings.HasPrefix(inside, "../") {
		return p
	}
	return filepath.Join("/", inside, filepath.Base(p))
}

// permitStorage returns a context with which commands run that remove what lies at these paths,
// after storageGuard.
func (h Host) permitStorage(ctx context.Context, paths ...string) (context.Context, error) {
	if err := h.storageGuard(paths...); err != nil {
		return nil, err
	}
	return toolrunner.Permit(ctx, toolrunner.GuardStorage), nil
}

// otherStorage returns an error for a mount of storage that is not this node's.
func (h Host) otherStorage(m hostscan.Mount) error {
	if slices.Contains(systemMounts(), m.Target) {
		return nil
	}
	if network(m.FSType) || m.FSType == "autofs" { // whose file systems are mounted when somebody looks
		return fmt.Errorf("%s is mounted at %s, and what is there is not this node's", m.Source, m.Target)
	}
	if place, onDevice := h.placeOf(m); onDevice && place.Class == blockdev.Foreign {
		return fmt.Errorf("%s, mounted at %s, is not this node's: %s", m.Source, m.Target, place.Reason)
	}
	return nil
}
