package agent

import (
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/slipway-cloud/slipway/lifecycle"
)

const maxMounts = 512

// pseudo are file systems that hold no one's data.
var pseudo = []string{"autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs",
	"efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "overlay", "proc", "pstore", "ramfs", "rpc_pipefs",
	"securityfs", "squashfs", "sysfs", "tmpfs", "tracefs"}

// mounts lists the file systems that hold data. It asks for the mounts of
// process 1 first, since the agent's own are changed by its sandbox.
func (c Config) mounts() []lifecycle.MountReport {
	raw, err := c.read("/proc/1/mounts")
	if err != nil {
		if raw, err = c.read("/proc/mounts"); err != nil {
			return nil
		}
	}
	var out []lifecycle.MountReport
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 3 || slices.Contains(pseudo, f[2]) {
			continue
		}
		m := lifecycle.MountReport{Source: clip(unescape(f[0]), 1024), Target: clip(unescape(f[1]), 1024), FSType: clip(f[2], 64)}
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
		if len(out) == maxMounts {
			break
		}
	}
	return out
}

// unescape undoes the kernel's octal form of blanks and backslashes in names.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// diskFree is what is free below the root, in MB, nil when unknown.
func (c Config) diskFree() *int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(c.Root, &st); err != nil {
		return nil
	}
	mb := int64(st.Bavail) * int64(st.Bsize) / 1_000_000 //nolint:gosec // free space is far below 2^63
	return &mb
}
