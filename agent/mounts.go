package agent

import (
	"slices"
	"syscall"

	"github.com/slipway-cloud/slipway/agent/hostscan"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const maxMounts = 512

// pseudo are file systems that hold no one's data.
var pseudo = []string{"autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs",
	"efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "overlay", "proc", "pstore", "ramfs", "rpc_pipefs",
	"securityfs", "squashfs", "sysfs", "tmpfs", "tracefs"}

// mounts lists the file systems that hold data, as process 1 has them; nil when
// they cannot be read.
func (n nodeReader) mounts() []spec.MountReport {
	all, err := hostscan.Root(n.root).Mounts()
	if err != nil {
		return nil
	}
	var out []spec.MountReport
	for _, one := range all {
		if slices.Contains(pseudo, one.FSType) {
			continue
		}
		m := spec.MountReport{Source: task.Clip(one.Source, 1024), Target: task.Clip(one.Target, 1024), FSType: task.Clip(one.FSType, 64)}
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
		if len(out) == maxMounts {
			break
		}
	}
	return out
}

// diskFree is what is free below the root, in MB, nil when unknown.
func (n nodeReader) diskFree() *int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(n.root, &st); err != nil {
		return nil
	}
	mb := int64(st.Bavail) * int64(st.Bsize) / 1_000_000 //nolint:gosec // free space is far below 2^63
	return &mb
}
