package toolrunner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Guard names a check that must have succeeded before a command runs that destroys data.
type Guard string

// The guards. docs/scrub.md says what each checks.
const (
	GuardDrive   Guard = "drive"   // package scrub looks at the drive right before the command
	GuardStorage Guard = "storage" // the files lie on storage of this node
	GuardLayer   Guard = "layer"   // all that lies below the layer are drives that the task erases
	GuardIdle    Guard = "idle"    // nothing uses the device of the connection
	GuardMachine Guard = "machine" // this is the machine and the boot of the signed task
)

// Command is a command that the agent may run. A command line matches when its program is Program
// and Words are among its arguments, in this order.
type Command struct {
	Program string
	Words   []string
	// Destroys says what the command destroys; "" is nothing.
	Destroys string
	// Guard is the check that a command that destroys data needs.
	Guard Guard
}

func (c Command) String() string { return strings.Join(append([]string{c.Program}, c.Words...), " ") }

var (
	errUnlisted  = errors.New("is not a command that the agent may run")
	errUnguarded = errors.New("destroys data and was not checked")
)

func harmless(program string, words ...string) Command {
	return Command{Program: program, Words: words}
}

func destroys(guard Guard, what, program string, words ...string) Command {
	return Command{Program: program, Words: words, Destroys: what, Guard: guard}
}

// Commands lists every command that the agent may run. docs/scrub.md has those that destroy data,
// with the guard in front of each; a test compares the two.
func Commands() []Command {
	const (
		drive      = "all data of the drive"
		containers = "containers, images and volumes"
		layer      = "a layer over drives, with what it has not written to them"
		gpuMemory  = "the memory of the GPUs"
	)
	out := []Command{
		destroys(GuardDrive, drive, "nvme", "sanitize"),
		destroys(GuardDrive, "all data of the namespace, and of others of its drive", "nvme", "format"),
		destroys(GuardDrive, "access to the drive, until its erasure ends", "hdparm", "--security-set-pass"),
		destroys(GuardDrive, drive, "hdparm", "--security-erase"),
		destroys(GuardDrive, drive, "hdparm", "--security-erase-enhanced"),
		destroys(GuardDrive, "the password that keeps others from the drive", "hdparm", "--security-unlock"),
		destroys(GuardDrive, "the password that keeps others from the drive", "hdparm", "--security-disable"),
		destroys(GuardDrive, drive, "blkdiscard", "-f"),
		destroys(GuardDrive, drive, "blkdiscard", "-f", "--zeroout"),
		destroys(GuardLayer, layer, "dmsetup", "remove"),
		destroys(GuardLayer, layer, "mdadm", "--stop"),
		destroys(GuardLayer, layer, "zpool", "export", "-f"),
		destroys(GuardIdle, "what was not yet written to a volume of another machine", "nvme", "disconnect", "-n"),
		destroys(GuardIdle, "what was not yet written to a volume of another machine", "iscsiadm", "-m", "session", "-r", "-u"),
		destroys(GuardStorage, containers, "docker", "rm", "-f", "-v"),
		destroys(GuardStorage, containers, "docker", "system", "prune"),
		destroys(GuardStorage, containers, "podman", "rm", "-f", "-v"),
		destroys(GuardStorage, containers, "podman", "system", "prune"),
		destroys(GuardStorage, containers, "crictl", "rmp", "-f"),
		destroys(GuardStorage, containers, "crictl", "rmi", "--prune"),
		destroys(GuardStorage, containers, "ctr", "tasks", "delete"),
		destroys(GuardStorage, containers, "ctr", "containers", "delete"),
		destroys(GuardStorage, containers, "ctr", "images", "remove"),
		destroys(GuardStorage, containers, "ctr", "snapshots", "delete"),
		destroys(GuardStorage, "an account with its home and mail", "userdel", "-f", "-r"),
		destroys(GuardMachine, gpuMemory, "nvidia-smi", "--gpu-reset"),
		destroys(GuardMachine, gpuMemory, "slipway-gpu-pattern", "--json"),

		harmless("nvme", "version"), harmless("nvme", "id-ctrl"), harmless("nvme", "id-ns"), harmless("nvme", "sanitize-log"),
		harmless("hdparm", "-V"), harmless("hdparm", "-I"),
		harmless("blkdiscard", "--version"),
		harmless("crictl", "pods"),
		harmless("ctr", "namespaces", "list"), harmless("ctr", "plugins", "list"), harmless("ctr", "tasks", "list"), harmless("ctr", "tasks", "kill"),
		harmless("ctr", "containers", "list"), harmless("ctr", "images", "list"), harmless("ctr", "snapshots", "list"),
		harmless("useradd", "--create-home", "--password", "*"), harmless("ip", "address", "replace"), harmless("ip", "address", "delete"),
		harmless("userdel"), harmless("usermod", "--lock"), harmless("loginctl"), harmless("kill"), harmless("umount"), harmless("swapoff"),
		harmless("dmsetup", "message", "fail_if_no_path"), harmless("zpool", "list"), harmless("kernel"), // kernel: of a simulated node only
		harmless("dpkg-query", "-S"),
		harmless("dmesg"), harmless("nv-fabricmanager", "--version"),
		harmless("systemctl", "is-active"), harmless("systemctl", "stop"), harmless("systemctl", "start"), harmless("systemctl", "disable"),
		harmless("systemctl", "daemon-reload"),
		harmless("nvidia-smi", "-q", "-x"), harmless("nvidia-smi", "mig", "-dci"), harmless("nvidia-smi", "mig", "-dgi"), harmless("nvidia-smi", "-mig", "0"),
		harmless("nvidia-smi", "-rgc"), harmless("nvidia-smi", "-rmc"), harmless("nvidia-smi", "-c", "0"),
	}
	for _, engine := range []string{"docker", "podman"} {
		out = append(out, harmless(engine, "ps"), harmless(engine, "update"), harmless(engine, "kill"))
	}
	return out
}

type permitKey struct{}

type permit struct {
	guard   Guard
	targets []string
}

// Permit returns a context with which commands of this guard run. Only the code of the guard calls
// it, after its check. A command of GuardDrive must have one of the targets among its arguments.
func Permit(ctx context.Context, g Guard, targets ...string) context.Context {
	return context.WithValue(ctx, permitKey{}, permit{g, targets})
}

// Check returns an error for a command that is not listed, and for one that destroys data and whose
// guard has not given ctx its permit.
func Check(ctx context.Context, name string, args ...string) error {
	return check(ctx, Commands(), name, args)
}

func check(ctx context.Context, all []Command, name string, args []string) error {
	var best *Command
	for i, c := range all {
		if c.matches(name, args) && (best == nil || len(c.Words) > len(best.Words) || len(c.Words) == len(best.Words) && best.Destroys == "") {
			best = &all[i]
		}
	}
	if best == nil {
		return fmt.Errorf("%s %w", strings.Join(append([]string{name}, args[:min(len(args), 4)]...), " "), errUnlisted)
	}
	if best.Guard == "" {
		return nil
	}
	p, _ := ctx.Value(permitKey{}).(permit)
	onTarget := slices.ContainsFunc(p.targets, func(t string) bool { return slices.Contains(args, t) })
	if p.guard != best.Guard || best.Guard == GuardDrive && !onTarget {
		return fmt.Errorf("%s %w (guard %s)", strings.Join(append([]string{name}, args...), " "), errUnguarded, best.Guard)
	}
	return nil
}

func (c Command) matches(name string, args []string) bool {
	if c.Program != name {
		return false
	}
	for _, w := range c.Words {
		i := slices.Index(args, w)
		if i < 0 {
			return false
		}
		args = args[i+1:]
	}
	return true
}
