// Package realhost decides whether the tests of the scrub may act on the machine that runs them,
// and checks that they can. They make accounts, mounts and loop disks and remove them; a mistake in
// what they test could do more. So they run where the machine may be lost: in a container or in CI.
package realhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// Var is set to 1 to run the tests on any machine, and to 0 to keep them away, also where
	// RequireVar is 1: an operator has decided.
	Var = "SLIPWAY_TEST_REAL_HOST"
	// RequireVar is set to 1 where nothing that a test needs may be missing, as in CI.
	RequireVar = "SLIPWAY_REQUIRE_PEERS"
)

// programs are what the tests run.
var programs = [...]string{"useradd", "userdel", "losetup", "blkdiscard", "mkfs.ext4", "mount", "umount", "dpkg-query", "chattr"}

const probeLimit = 20 * time.Second

// Decide returns whether the tests run on this machine, with a sentence for the operator. It
// returns an error where they must run and cannot: when SLIPWAY_REQUIRE_PEERS is 1 and something is
// missing, unless SLIPWAY_TEST_REAL_HOST is 0. A caller that gets true sets
// SLIPWAY_TEST_REAL_HOST=1 for the tests.
func Decide(getenv func(string) string) (run bool, line string, err error) {
	return decide(getenv, inContainer, Check)
}

func decide(getenv func(string) string, container func() bool, check func() []string) (run bool, line string, err error) {
	required := getenv(RequireVar) == "1"
	wanted, reason := Wanted(getenv, container)
	if wanted {
		missing := check()
		if len(missing) == 0 {
			return true, "real host: the scrub is tested on accounts, mounts and loop disks that its tests make on this machine and remove", nil
		}
		reason = "this machine lacks " + strings.Join(missing, ", ")
	}
	line = "real host: the scrub is not tested on this machine's own kernel: " + reason
	if required && getenv(Var) == "0" {
		return false, line + ", although " + RequireVar + "=1", nil
	}
	if required {
		return false, line, fmt.Errorf("%s; %s=1 requires it", line, RequireVar)
	}
	return false, line, nil
}

// Wanted returns whether the environment asks for the tests, and the reason when it does not.
func Wanted(getenv func(string) string, container func() bool) (wanted bool, reason string) {
	switch choice := getenv(Var); {
	case choice == "1":
		return true, ""
	case choice != "":
		return false, Var + "=" + choice
	case getenv("CI") == "true", getenv(RequireVar) == "1", container():
		return true, ""
	default:
		return false, "it is no container; as root, " + Var + "=1 runs the tests here"
	}
}

func inContainer() bool {
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(mark); err == nil {
			return true
		}
	}
	return run("systemd-detect-virt", "--quiet", "--container") == nil
}

// Check returns what this machine lacks for the tests: root, programs, loop disks, mounts.
func Check() (missing []string) {
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		return missing // nothing can be tried without them
	}
	dir, err := os.MkdirTemp("", "slipway-real-host-")
	if err != nil {
		return []string{"a folder for temporary files"}
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is empty
	if err := tryLoopDisk(filepath.Join(dir, "disk")); err != nil {
		missing = append(missing, fmt.Sprintf("loop disks (%v)", err))
	}
	if err := tryMount(filepath.Join(dir, "mount")); err != nil {
		missing = append(missing, fmt.Sprintf("mounts (%v)", err))
	}
	return missing
}

func tryLoopDisk(file string) error {
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	disk, err := exec.CommandContext(ctx, "losetup", "-f", "--show", file).Output()
	if err != nil {
		return describe(err)
	}
	return run("losetup", "-d", strings.TrimSpace(string(disk)))
}

func tryMount(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := run("mount", "-t", "tmpfs", "-o", "size=64k", "none", dir); err != nil {
		return err
	}
	return run("umount", dir)
}

func run(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	_, err := exec.CommandContext(ctx, name, args...).Output()
	return describe(err)
}

// describe adds the last line that a program wrote before it failed.
func describe(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(exit.Stderr)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return fmt.Errorf("%w: %s", err, last)
	}
	return err
}
