// Package hostscan lists the accounts, processes and mounts of a node. It changes nothing. The
// handlers that end a tenant's work and the validation that proves its end both use it, so that
// they agree on what belongs to a tenant.
package hostscan

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Root is the directory that holds the node's files: "/", except on a simulated node.
type Root string

// MaxFile is the largest file that Read accepts, in bytes.
const MaxFile = 16 << 20

// Read reads a file of the node. It returns an error for a file over MaxFile, because the rest
// would go unchecked. It does not block on a FIFO that a tenant made.
func (r Root) Read(elem ...string) ([]byte, error) {
	f, err := os.OpenFile(filepath.Join(append([]string{string(r)}, elem...)...), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err == nil && len(raw) > MaxFile {
		return nil, fmt.Errorf("%s is over %d bytes", filepath.Join(elem...), MaxFile)
	}
	return raw, err
}

// real reports whether the node is this machine.
func (r Root) real() bool { return filepath.Clean(string(r)) == "/" }

const (
	firstUser = 1000
	nobody    = 65534
	// systemd assigns these to services while they run.
	firstDynamic = 61184
	lastDynamic  = 65519
)

// IsUserUID reports whether a uid is one of users: operators, tenants and the rootless containers
// of both. It returns false for accounts of the system.
func IsUserUID(uid int) bool {
	return uid >= firstUser && uid != nobody && (uid < firstDynamic || uid > lastDynamic)
}

// Account is a line of /etc/passwd.
type Account struct {
	Name, Home, Shell string
	UID               int
}

// Accounts reads /etc/passwd. It returns the lines that it cannot parse as unreadable, because one
// of them may hide an account.
func (r Root) Accounts() (all []Account, unreadable []string, err error) {
	raw, err := r.Read("/etc/passwd")
	if err != nil {
		return nil, nil, fmt.Errorf("read the accounts: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, ":")
		uid := -1
		if len(f) == 7 {
			if n, err := strconv.Atoi(f[2]); err == nil {
				uid = n
			}
		}
		if uid < 0 {
			unreadable = append(unreadable, line)
			continue
		}
		all = append(all, Account{Name: f[0], Home: f[5], Shell: f[6], UID: uid})
	}
	return all, unreadable, nil
}

// Mount is a line of /proc/1/mountinfo, or of /proc/mounts.
type Mount struct {
	Source, Target, FSType string
	// Dev is the number of the file system's device, "8:1". It is "" where /proc/mounts is all that
	// can be read, and no number of a block device where the kernel makes one up, as for btrfs.
	Dev string
}

// Mounts lists the mounts of process 1. It lists those of this process only when the former cannot
// be read, because a sandbox changes them.
func (r Root) Mounts() ([]Mount, error) {
	raw, err := r.Read("/proc/1/mountinfo")
	if err == nil {
		return parseMountInfo(string(raw))
	}
	if raw, err = r.Read("/proc/1/mounts"); err != nil {
		if raw, err = r.Read("/proc/mounts"); err != nil {
			return nil, fmt.Errorf("read the mounts: %w", err)
		}
	}
	var out []Mount
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) >= 3 {
			out = append(out, Mount{Source: Unescape(f[0]), Target: Unescape(f[1]), FSType: f[2]})
		}
	}
	return out, nil
}

// parseMountInfo reads lines as in "36 35 8:1 / /mnt rw,noatime shared:1 - ext4 /dev/sda1 rw". It
// returns an error for another line, because that may hide a mount.
func parseMountInfo(raw string) ([]Mount, error) {
	var out []Mount
	for line := range strings.Lines(raw) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 1 {
			return nil, fmt.Errorf("a line of /proc/1/mountinfo cannot be read: %.200q", line)
		}
		m := Mount{Target: Unescape(f[4]), FSType: g[0], Dev: f[2]}
		if len(g) > 2 { // an empty source leaves one field less
			m.Source = Unescape(g[1])
		}
		out = append(out, m)
	}
	return out, nil
}

// Unescape decodes the octal escapes that the kernel and fstab use for blanks and backslashes.
func Unescape(s string) string {
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
