package scrub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/hostscan"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func TestStepsAndStops(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := Scrub(t.Context(), b.host, spec.ScrubArgs{RunID: "job_1", Steps: []string{"disk"}}, nil)
	require.Equal(t, lifecycle.TaskCodeRefused, res.Code)
	require.Contains(t, res.Message, `no step "disk"`)

	ctx, cancel := context.WithCancel(t.Context())
	res = Scrub(ctx, b.host, spec.ScrubArgs{RunID: "job_1"}, func(s lifecycle.StepResult) { cancel() })
	require.False(t, res.OK)
	require.Len(t, res.Steps, 1)
	require.Contains(t, res.Message, "stopped before the step containers")
	require.Contains(t, b.image("nvme0n1"), "tenant's data")

	b.host.BootID = "boot-2"
	res = Scrub(t.Context(), b.host, spec.ScrubArgs{RunID: "job_1"}, nil)
	require.Equal(t, lifecycle.TaskCodeRefused, res.Code)
	require.Contains(t, res.Message, "the task is for boot boot-2")

	require.NoError(t, os.Remove(filepath.Join(b.host.Root, simulatedMark)))
	res = Scrub(t.Context(), b.host, spec.ScrubArgs{RunID: "job_1"}, nil)
	require.Contains(t, res.Message, "does not say that it is simulated")
	res = Validate(t.Context(), b.host, spec.ValidateArgs{RunID: "job_1"}, nil)
	require.Equal(t, lifecycle.TaskCodeRefused, res.Code)
}

func TestOnlyTheFabricManagerMayHoldAGPU(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.answer["systemctl"] = func([]string) (string, error) { return "", errors.New("inactive") }
	b.answer["nvidia-smi"] = func([]string) (string, error) {
		return `<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id="1"><uuid>GPU-1</uuid></gpu></nvidia_smi_log>`, nil
	}
	holder := func(pid, name, uid, file string) {
		b.put("/proc/"+pid+"/status", "Name:\t"+name+"\nState:\tS\nUid:\t"+uid+"\t"+uid+"\t"+uid+"\t"+uid+"\n")
		require.NoError(t, os.MkdirAll(filepath.Join(b.host.Root, "proc", pid, "fd"), 0o755))
		require.NoError(t, os.Symlink(file, filepath.Join(b.host.Root, "proc", pid, "fd/7")))
	}
	idle := func() lifecycle.StepResult {
		return Scrub(t.Context(), b.host, spec.ScrubArgs{RunID: "job_1", Steps: []string{StepGPUProcesses}}, nil).Steps[1]
	}
	holder("70", "nv-fabricmanage", "0", "/dev/nvidia-nvswitchctl")
	holder("71", "bash", "0", "/dev/null")
	require.True(t, idle().OK, idle().Detail)
	holder("72", "nv-fabricmanage", "1001", "/dev/nvidia0")
	holder("73", "Xorg", "0", "/dev/nvidia-caps/nvidia-cap1")
	require.False(t, idle().OK)
	require.Contains(t, idle().Detail, "72 (nv-fabricmanage), 73 (Xorg)")
}

func TestAListThatIsTooLongToReadIsUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("/etc/passwd", strings.Repeat("daemon:x:1:1::/:/bin/false\n", hostscan.MaxFile/27+1)+"tenant:x:1001:1001::/home/t:/bin/sh\n")
	res := Scrub(t.Context(), b.host, spec.ScrubArgs{RunID: "job_1", Steps: []string{StepUsers}}, nil)
	require.False(t, res.OK)
	require.Contains(t, res.Message, "/etc/passwd is over")
}

func TestTheMachineOfAnInstalledGPUIsNotWithoutGPUs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	gpus := func() lifecycle.StepResult {
		return Scrub(t.Context(), b.host, spec.ScrubArgs{RunID: "job_1", Steps: []string{StepGPUReset}}, nil).Steps[1]
	}
	require.Equal(t, "this machine has no GPU", gpus().Skipped)
	b.put("/sys/bus/pci/devices/0000:19:00.0/vendor", "0x10de\n")
	b.put("/sys/bus/pci/devices/0000:19:00.0/class", "0x030200\n")
	require.False(t, gpus().OK)
	require.Contains(t, gpus().Detail, "there is an NVIDIA GPU at 0000:19:00.0, and nvidia-smi is not installed")
}

func TestAMountThatIsHeldIsNotDetached(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\nnas:/a /mnt/a nfs4 rw 0 0\n")
	b.put("/etc/fstab", "/dev/sda1 / ext4 defaults 0 1\nnas:/a /mnt/a nfs4 defaults 0 0\n")
	b.put("/proc/77/status", "Name:\tbackup\nState:\tS\nUid:\t0\t0\t0\t0\n")
	require.NoError(t, os.MkdirAll(filepath.Join(b.host.Root, "proc/77/fd"), 0o755))
	require.NoError(t, os.Symlink("/mnt/a/x", filepath.Join(b.host.Root, "proc/77/fd/3")))
	b.answer["umount"] = func(args []string) (string, error) {
		if args[0] == "-l" {
			b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n")
			return "", nil
		}
		return "", errors.New("umount failed (exit status 32): target is busy")
	}
	mounts := func() lifecycle.TaskResult {
		return Scrub(t.Context(), b.host, spec.ScrubArgs{RunID: "job_1", Steps: []string{StepMounts}}, nil)
	}
	res := mounts()
	require.False(t, res.OK)
	require.Contains(t, res.Message, "/mnt/a is busy: process 77 (backup) holds it")
	require.False(t, b.ran("umount -l"))
	require.NoError(t, os.RemoveAll(filepath.Join(b.host.Root, "proc/77")))
	res = mounts()
	require.True(t, res.OK, res.Message)
	require.True(t, b.ran("umount -l -- /mnt/a"))
	raw, err := os.ReadFile(filepath.Join(b.host.Root, "etc/fstab"))
	require.NoError(t, err)
	require.Equal(t, "/dev/sda1 / ext4 defaults 0 1\n", string(raw))
}

func TestAProtectedDiskNeedNotBeBlank(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	look := func(protect ...string) lifecycle.TaskResult {
		return Validate(t.Context(), b.host, spec.ValidateArgs{RunID: "job_1", ProtectSerials: protect}, nil)
	}
	step := stepOf(look(), StepDiskBlank)
	require.False(t, step.OK)
	require.Contains(t, step.Detail, "sdb")
	res := look("s1")
	step = stepOf(res, StepDiskBlank)
	require.NotContains(t, step.Detail, "sdb", "it is told from the others by its serial")
	require.Contains(t, string(res.Output), `"protected":["S1"]`)
	for _, d := range res.Devices {
		if d.Name == "sdb" {
			require.False(t, d.Verified, "nothing is said of what is on it")
			require.Contains(t, d.Detail, "was not looked at")
		}
	}
}
