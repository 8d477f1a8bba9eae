package taskhandlers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/hostscan"
	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const passwd = `root:x:0:0:root:/root:/bin/bash
daemon:x:1:1::/usr/sbin:/usr/sbin/nologin
ubuntu:x:1000:1000::/home/ubuntu:/bin/bash
slipway-agent:x:998:998::/nonexistent:/usr/sbin/nologin
tenant1:x:2001:2001::/home/tenant1:/bin/bash
tenant2:x:2002:2002::/home/tenant2:/bin/bash
sameuid:x:2003:2003::/home/sameuid:/bin/bash
sameuid2:x:2003:2003::/home/sameuid2:/bin/bash
elsewhere:x:2004:2004::/srv/elsewhere:/bin/bash
nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin
`

// bench is a made-up node: files below a root, and programs that are functions.
type bench struct {
	Host
	t     *testing.T
	mu    sync.Mutex
	calls []string
	tools map[string]func(args []string) (string, error)
	deaf  map[int]bool // processes that do not hear TERM
	hung  map[int]bool // nor KILL
	sigs  []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, tools: map[string]func([]string) (string, error){}, deaf: map[int]bool{}, hung: map[int]bool{}}
	b.Host = Host{Root: t.TempDir(), KeepUsers: []string{"ubuntu"}, StateDir: "/var/lib/slipway-agent", Poll: 2 * time.Millisecond,
		HasTool: func(name string) bool { return b.tools[name] != nil },
		Tool: func(_ context.Context, name string, args ...string) ([]byte, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.calls = append(b.calls, name+" "+strings.Join(args, " "))
			if b.tools[name] == nil {
				return nil, fmt.Errorf("%s was not found", name)
			}
			out, err := b.tools[name](args)
			return []byte(out), err
		},
		Signal: func(p hostscan.Process, s syscall.Signal) error {
			b.sigs = append(b.sigs, fmt.Sprintf("%d %s", p.PID, s))
			if (s == syscall.SIGTERM && b.deaf[p.PID]) || b.hung[p.PID] {
				return nil
			}
			return os.RemoveAll(b.path("/proc/" + strconv.Itoa(p.PID)))
		}}
	b.put("/etc/passwd", passwd)
	b.put("/proc/1/mounts", rootMount)
	b.put("/proc/1/status", "Name:\tinit\nState:\tS\nUid:\t0\t0\t0\t0\n")
	return b
}

func (b *bench) put(p, content string) {
	b.t.Helper()
	require.NoError(b.t, os.MkdirAll(filepath.Dir(b.path(p)), 0o755))
	require.NoError(b.t, os.WriteFile(b.path(p), []byte(content), 0o600))
}

func (b *bench) get(p string) string {
	b.t.Helper()
	raw, err := os.ReadFile(b.path(p))
	require.NoError(b.t, err)
	return string(raw)
}

func (b *bench) proc(pid, uid int) {
	b.put(fmt.Sprintf("/proc/%d/status", pid), fmt.Sprintf("Name:\tp%d\nState:\tS (sleeping)\nUid:\t%d\t%d\t%d\t%d\n", pid, uid, uid, uid, uid))
}

func (b *bench) alive(pid int) bool {
	_, err := os.Stat(b.path(fmt.Sprintf("/proc/%d/status", pid)))
	return err == nil
}

// do runs a handler and gives its result with the steps by name.
func (b *bench) do(h task.Handler, args any) (lifecycle.TaskResult, map[string]lifecycle.StepResult) {
	b.t.Helper()
	rec := task.NewRecorder(nil, nil, nil)
	res := h.Run(b.t.Context(), task.Request{Task: protocol.Task{ID: "task-1"}, Args: args}, rec)
	steps := map[string]lifecycle.StepResult{}
	for _, s := range rec.Steps() {
		steps[s.Name] = s
		require.False(b.t, s.StartedAt.IsZero() || s.EndedAt.Before(s.StartedAt))
	}
	return res, steps
}

// engine is a container engine with some that run; a deaf one ignores TERM.
func (b *bench) engine(tool string, running, platform []string, deaf ...string) *[]string {
	left := append([]string{}, running...)
	b.tools[tool] = func(args []string) (string, error) {
		switch args[0] {
		case "ps":
			if strings.Contains(strings.Join(args, " "), "label="+KeepLabel) {
				return strings.Join(platform, "\n"), nil
			}
			return strings.Join(append(append([]string{}, left...), platform...), "\n"), nil
		case "kill":
			id := args[len(args)-1]
			if args[2] == "SIGTERM" && slices.Contains(deaf, id) {
				return "", nil
			}
			keep := left[:0]
			for _, l := range left {
				if l != id {
					keep = append(keep, l)
				}
			}
			left = keep
		}
		return "", nil
	}
	return &left
}

func TestADrainEndsWhatTenantsRunAndNothingElse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	left := b.engine("docker", []string{"aaa", "bbb"}, []string{"agent"}, "bbb")
	ctr := []string{"c1"}
	b.tools["ctr"] = func(args []string) (string, error) {
		switch line := strings.Join(args, " "); {
		case strings.HasPrefix(line, "namespaces"):
			return "moby\nk8s.io\n", nil
		case strings.Contains(line, "tasks list"):
			return strings.Join(ctr, "\n"), nil
		default:
			ctr = nil
			return "", nil
		}
	}
	b.tools["loginctl"] = func(args []string) (string, error) {
		return map[bool]string{true: " 1000 ubuntu yes active\n 2001 tenant1 no active\n    0 root no active\n"}[args[0] == "list-users"], nil
	}
	for pid, uid := range map[int]int{100: 0, 101: 1000, 102: 2001, 103: 2002, 104: 65534, 105: 100007, 106: 998, 107: 61184} {
		b.proc(pid, uid)
	}
	b.put("/proc/108/status", "Name:\tgone\nState:\tZ (zombie)\nUid:\t2001\t2001\t2001\t2001\n")
	b.put("/proc/109/status", "Name:\tsu\nState:\tS\nUid:\t0\t2001\t0\t0\n") // a set-uid program of a tenant
	b.deaf[103] = true
	res, steps := b.do(task.Func(b.Drain), &spec.DrainArgs{GraceSeconds: 0, Reason: "retire"})
	require.True(t, res.OK, res.Message)
	require.Empty(t, *left)
	require.Contains(t, b.calls, "docker update --restart=no aaa")
	require.NotContains(t, strings.Join(b.calls, "\n"), "SIGTERM agent")
	require.NotContains(t, strings.Join(b.calls, "\n"), "--namespace moby")
	require.Contains(t, b.calls, "loginctl terminate-user 2001")
	require.NotContains(t, b.calls, "loginctl terminate-user 1000")
	for pid, want := range map[int]bool{100: true, 101: true, 102: false, 103: false, 104: true, 105: false, 106: true, 107: true, 109: false} {
		require.Equal(t, want, b.alive(pid), "process %d", pid)
	}
	require.Contains(t, b.sigs, "103 killed")
	require.NotContains(t, b.sigs, "108 terminated")
	require.Contains(t, steps["containers_podman"].Skipped, "not installed")
	require.Contains(t, steps["containers_docker"].Detail, "1 of them by SIGKILL")
	require.Contains(t, b.get("/var/lib/slipway-agent/"+DrainMarker), `"reason":"retire"`)

	before := b.get("/var/lib/slipway-agent/" + DrainMarker)
	res, steps = b.do(task.Func(b.Drain), &spec.DrainArgs{})
	require.True(t, res.OK)
	require.Equal(t, before, b.get("/var/lib/slipway-agent/"+DrainMarker), "done again it changes nothing")
	require.Equal(t, "no process was there", steps["user_processes"].Detail)

	mark, err := b.Unmark("task_other")
	require.NoError(t, err)
	require.Contains(t, before, `"task_id":"`+mark+`"`)
	require.Equal(t, before, b.get("/var/lib/slipway-agent/"+DrainMarker), "the mark of another drain stays")
	for range 2 {
		left, err := b.Unmark(mark)
		require.NoError(t, err)
		require.Empty(t, left)
		require.NoFileExists(t, b.path("/var/lib/slipway-agent/"+DrainMarker))
	}
}

func TestADrainThatCannotEndSomethingSaysWhat(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tools["docker"] = func([]string) (string, error) { return "", fmt.Errorf("Cannot connect to the Docker daemon") }
	b.proc(102, 2001)
	b.hung[102] = true
	// The task ends when the process was killed and stays.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	signal := b.Signal
	b.Signal = func(p hostscan.Process, s syscall.Signal) error {
		if s == syscall.SIGKILL {
			cancel()
		}
		return signal(p, s)
	}
	rec := task.NewRecorder(nil, nil, nil)
	res := b.Drain(ctx, task.Request{Args: &spec.DrainArgs{}}, rec)
	require.False(t, res.OK)
	steps := rec.Steps()
	require.Equal(t, []any{"containers_docker", false}, []any{steps[1].Name, steps[1].OK})
	require.Contains(t, steps[1].Detail, "Cannot connect")
	require.Equal(t, []any{"user_processes", false}, []any{steps[5].Name, steps[5].OK}, "the others are tried all the same")
	require.True(t, b.alive(102))
}

func (b *bench) tenant() {
	b.put("/etc/shadow", "root:*:1::::::\ntenant1:$6$x:1::::::\ntenant2:$6$y:1::::::\n")
	b.put("/etc/group", "sudo:x:27:ubuntu\ntenant1:x:2001:\n")
	b.put("/home/tenant1/.ssh/authorized_keys", "ssh-ed25519 AAAA t")
	b.put("/home/tenant1/.bashrc", "x")
	b.put("/home/tenant2/.ssh/authorized_keys", "ssh-ed25519 BBBB t")
	b.put("/etc/ssh/authorized_keys.d/tenant1", "ssh-ed25519 AAAA t")
	b.put("/var/spool/cron/crontabs/tenant1", "* * * * * x")
	b.put("/var/spool/cron/crontabs/tenant2", "* * * * * x")
	b.put("/var/lib/systemd/linger/tenant1", "")
	b.put("/etc/sudoers", "root ALL=(ALL) ALL\ntenant1 ALL=(ALL) NOPASSWD: ALL\n")
	b.put("/etc/sudoers.d/tenant1", "tenant1 ALL=(ALL) ALL\n")
	b.put("/etc/sudoers.d/site", "# tenant1 is a comment\ntenant2 ALL=(ALL) ALL\n#2001 ALL=(ALL) ALL\ntenant1x ALL=(ALL) ALL\n")
	b.proc(102, 2001)
	b.proc(103, 2002)
}

func TestRevokingRemovesOneUserWhole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tenant()
	args := &spec.RevokeUserArgs{User: "tenant1", RemoveHome: true}
	for range 2 { // and again, when nothing is left
		res, _ := b.do(task.Func(b.RevokeUser), args)
		require.True(t, res.OK, res.Message)
		require.NotContains(t, b.get("/etc/passwd"), "tenant1:")
		require.NotContains(t, b.get("/etc/shadow"), "tenant1:")
		for _, gone := range []string{"/home/tenant1", "/etc/ssh/authorized_keys.d/tenant1", "/var/spool/cron/crontabs/tenant1", "/var/lib/systemd/linger/tenant1", "/etc/sudoers.d/tenant1"} {
			require.NoFileExists(t, b.path(gone))
			require.NoDirExists(t, b.path(gone))
		}
		require.Equal(t, "root ALL=(ALL) ALL\n", b.get("/etc/sudoers"))
		require.Equal(t, "# tenant1 is a comment\ntenant2 ALL=(ALL) ALL\ntenant1x ALL=(ALL) ALL\n", b.get("/etc/sudoers.d/site"))
		require.False(t, b.alive(102))
		require.True(t, b.alive(103))
		require.FileExists(t, b.path("/home/tenant2/.ssh/authorized_keys"))
		require.FileExists(t, b.path("/var/spool/cron/crontabs/tenant2"))
		require.Contains(t, b.get("/etc/passwd"), "tenant2:")
	}
}

func TestRevokingIsForTenantsOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for user, says := range map[string]string{"daemon": "uid 1", "ubuntu": "platform", "slipway-agent": "platform", "nobody": "system",
		"root": "system", "sameuid": "share uid 2003"} {
		b.calls, b.sigs = nil, nil
		b.proc(200, 1)
		res, _ := b.do(task.Func(b.RevokeUser), &spec.RevokeUserArgs{User: user, RemoveHome: true})
		require.Equal(t, lifecycle.TaskCodeRefused, res.Code, user)
		require.Contains(t, res.Message, says)
		require.Empty(t, b.sigs)
		require.Equal(t, passwd, b.get("/etc/passwd"))
	}
}

func TestAHomeIsRemovedWithCare(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tenant()
	b.put("/precious/data", "x")
	b.put("/precious/authorized_keys", "x")
	// A link out of the home is not followed, neither for keys nor for the home.
	require.NoError(t, os.RemoveAll(b.path("/home/tenant1/.ssh")))
	require.NoError(t, os.Symlink(b.path("/precious"), b.path("/home/tenant1/.ssh")))
	b.put("/proc/1/mounts", "nas:/x /home/tenant1/data nfs rw 0 0\n")
	res, steps := b.do(task.Func(b.RevokeUser), &spec.RevokeUserArgs{User: "tenant1", RemoveHome: true})
	require.False(t, res.OK)
	require.False(t, steps["keys"].OK, "a link out of the home is an error, and not followed: "+steps["keys"].Detail)
	require.FileExists(t, b.path("/precious/authorized_keys"))
	require.NoError(t, os.Remove(b.path("/home/tenant1/.ssh")))
	res, steps = b.do(task.Func(b.RevokeUser), &spec.RevokeUserArgs{User: "tenant1", RemoveHome: true})
	require.Equal(t, lifecycle.TaskCodeStepFailed, res.Code)
	require.Contains(t, steps["home"].Detail, "nas:/x is mounted at /home/tenant1/data")
	require.DirExists(t, b.path("/home/tenant1"))
	b.put("/proc/1/mounts", rootMount+"tmpfs /home/tenant1/bound tmpfs rw 0 0\n")
	_, steps = b.do(task.Func(b.RevokeUser), &spec.RevokeUserArgs{User: "tenant1", RemoveHome: true})
	require.Contains(t, steps["home"].Detail, "is mounted inside the home")
	b.put("/proc/1/mounts", rootMount)
	res, _ = b.do(task.Func(b.RevokeUser), &spec.RevokeUserArgs{User: "tenant1", RemoveHome: true})
	require.True(t, res.OK, res.Message)
	require.NoDirExists(t, b.path("/home/tenant1"))

	res, steps = b.do(task.Func(b.RevokeUser), &spec.RevokeUserArgs{User: "tenant2"})
	require.True(t, res.OK)
	require.NotEmpty(t, steps["home"].Skipped)
	require.DirExists(t, b.path("/home/tenant2"))
	require.NoFileExists(t, b.path("/home/tenant2/.ssh/authorized_keys"), "the keys go all the same")
	res, steps = b.do(task.Func(b.RevokeUser), &spec.RevokeUserArgs{User: "elsewhere", RemoveHome: true})
	require.False(t, res.OK)
	require.Contains(t, steps["home"].Detail, "not below /home")
}

// rootMount is the system's own file system.
const rootMount = "/dev/sda1 / ext4 rw 0 0\n"

// A home that lies on storage of another machine is left, with its keys; the account goes all the
// same.
func TestRevokeUser_ForeignHome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mounts string
		change func(*bench)
	}{
		"NFS above":     {mounts: "nas:/home /home nfs4 rw 0 0\n"},
		"automounter":   {mounts: "auto.home /home autofs rw 0 0\n"},
		"foreign block": {mounts: "/dev/rbd0 /home ext4 rw 0 0\n"},
		"through a link": {mounts: "nas:/x /mnt/nas nfs rw 0 0\n", change: func(b *bench) {
			require.NoError(b.t, os.MkdirAll(b.path("/mnt/nas"), 0o750))
			require.NoError(b.t, os.Rename(b.path("/home"), b.path("/mnt/nas/home")))
			require.NoError(b.t, os.Symlink("mnt/nas/home", b.path("/home")))
		}},
		"unknown mounts": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.tenant()
			if c.change != nil {
				c.change(b)
			}
			b.put("/proc/1/mounts", "")
			if c.mounts != "" {
				b.put("/proc/1/mounts", rootMount+c.mounts)
			}
			res, steps := b.do(task.Func(b.RevokeUser), &spec.RevokeUserArgs{User: "tenant1", RemoveHome: true})
			require.False(t, res.OK)
			require.Contains(t, steps["home"].Detail, "the home /home/tenant1 is not removed")
			require.NotEmpty(t, steps["keys"].Skipped)
			require.FileExists(t, b.path("/home/tenant1/.bashrc"))
			require.FileExists(t, b.path("/home/tenant1/.ssh/authorized_keys"))
			require.NotContains(t, b.get("/etc/passwd"), "tenant1:")
		})
	}
}

func TestAnAccountThatUserdelLeavesIsAFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tenant()
	b.tools["userdel"] = func([]string) (string, error) { return "", fmt.Errorf("userdel: cannot lock /etc/passwd") }
	res, steps := b.do(task.Func(b.RevokeUser), &spec.RevokeUserArgs{User: "tenant1"})
	require.Equal(t, lifecycle.TaskCodeStepFailed, res.Code)
	require.Contains(t, steps["account"].Detail, "cannot lock")
}

func uninstallOf(b *bench) Uninstall {
	return Uninstall{Host: b.Host, Secrets: []string{"/var/lib/slipway-agent/identity.json", "/etc/slipway/token"}, State: []string{"/var/lib/slipway-agent"},
		Programs: []string{"/opt/slipway-agent", "/etc/slipway"}, Journal: "/var/lib/slipway-agent/tasks", KeepIn: "/var/log/slipway-agent"}
}

func TestAnUninstallRemovesItselfAfterItsReport(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tools["systemctl"] = func([]string) (string, error) { return "", nil }
	for _, p := range []string{"/var/lib/slipway-agent/identity.json", "/var/lib/slipway-agent/" + DrainMarker, "/var/lib/slipway-agent/tasks/journal", "/etc/slipway/agent.yaml",
		"/opt/slipway-agent/a/slipway-agent", "/etc/systemd/system/slipway-agent.service", "/etc/systemd/system/other.service"} {
		b.put(p, "x")
	}
	u := uninstallOf(b)
	res, steps := b.do(u, &spec.UninstallArgs{})
	require.True(t, res.OK)
	require.Contains(t, steps["check"].Detail, "/var/lib/slipway-agent/identity.json")
	require.FileExists(t, b.path("/var/lib/slipway-agent/identity.json"), "the result comes first")

	req := task.Request{Args: &spec.UninstallArgs{KeepReports: true}}
	require.NoError(t, u.Finish(t.Context(), req, lifecycle.TaskResult{}), "a failed one removes nothing")
	require.FileExists(t, b.path("/etc/slipway/agent.yaml"))
	for range 2 {
		require.ErrorIs(t, u.Finish(t.Context(), req, lifecycle.TaskResult{OK: true}), task.ErrUninstalled)
		for _, gone := range u.all() {
			require.NoFileExists(t, b.path(gone))
			require.NoDirExists(t, b.path(gone))
		}
		require.FileExists(t, b.path("/etc/systemd/system/other.service"))
		require.Equal(t, "x", b.get("/var/log/slipway-agent/journal"))
	}
	require.Contains(t, b.calls, "systemctl disable slipway-agent-helper.socket")
	require.NotContains(t, strings.Join(b.calls, "\n"), "stop")

	late := task.NewRecorder(nil, nil, nil)
	require.Equal(t, lifecycle.TaskCodeExpired, u.Resume(t.Context(), task.Request{Expired: true}, late).Code)
}

func TestAnUninstallThatCannotGoOnKeepsItsJournal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("/var/lib/slipway-agent/tasks/journal", "x")
	u := uninstallOf(b)
	u.KeepIn = "/var/lib/slipway-agent/tasks/journal/not-a-directory"
	err := u.Finish(t.Context(), task.Request{Args: &spec.UninstallArgs{KeepReports: true}}, lifecycle.TaskResult{OK: true})
	require.ErrorContains(t, err, "not off the node yet")
	require.FileExists(t, b.path("/var/lib/slipway-agent/tasks/journal"))
	u.Programs = []string{"/"}
	res, _ := b.do(u, &spec.UninstallArgs{})
	require.Equal(t, lifecycle.TaskCodeStepFailed, res.Code)
}

// On a made-up node no process of this machine is ever signalled, whatever its
// /proc says.
func TestASimulatedNodeSignalsNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Signal = nil
	sleep := exec.CommandContext(t.Context(), "sleep", "60")
	require.NoError(t, sleep.Start())
	t.Cleanup(func() { _ = sleep.Process.Kill(); _ = sleep.Wait() })
	b.proc(sleep.Process.Pid, 2001)
	res, _ := b.do(task.Func(b.Drain), &spec.DrainArgs{})
	require.True(t, res.OK)
	require.False(t, b.alive(sleep.Process.Pid))
	require.NoError(t, sleep.Process.Signal(syscall.Signal(0)), "the real process lives")
}
