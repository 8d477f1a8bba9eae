package taskhandlers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/agent/hostscan"
	"github.com/slipway-cloud/slipway/agent/scrub"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// revokeGrace is how long a revoked user's processes have after TERM.
const revokeGrace = 5 * time.Second

// RevokeUser is the handler of allocation.revoke_user: it ends the sessions and
// processes of exactly one account and removes the account with its keys, cron
// and at jobs, sudo rights, metadata and, when asked, its home. An account that is gone
// already leaves the rest to be looked for.
func (h Host) RevokeUser(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	args, ok := r.Args.(*spec.RevokeUserArgs)
	if !ok {
		return task.Fail(task.CodeInternal, "the arguments are not those of a revocation")
	}
	v, err := h.victim(args.User)
	if err != nil {
		return steps.End(err)
	}
	return steps.End(v.revoke(ctx, steps, args.RemoveHome))
}

// lastAccountUID is the last uid that useradd gives to people.
const lastAccountUID = 59999

// victim is the account to revoke.
type victim struct {
	Host
	hostscan.Account
	exists bool
}

func refused(format string, args ...any) error {
	return &task.Refusal{Code: task.CodeRefused, Reason: fmt.Sprintf(format, args...)}
}

// victim finds an account and refuses those that are no tenant's.
func (h Host) victim(name string) (victim, error) {
	v := victim{Host: h, Account: hostscan.Account{Name: name, UID: -1, Home: "/home/" + name}}
	if name == AgentUser || name == "root" || name == "nobody" || slices.Contains(h.KeepUsers, name) {
		return v, refused("account %q belongs to the system or the platform and is not revoked", name)
	}
	all, err := h.accounts()
	if err != nil {
		return v, err
	}
	kept, err := h.kept()
	if err != nil {
		return v, err
	}
	i := slices.IndexFunc(all, func(a hostscan.Account) bool { return a.Name == name })
	if i < 0 {
		if o := slices.IndexFunc(all, func(a hostscan.Account) bool { return filepath.Clean(a.Home) == v.Home }); o >= 0 {
			return v, refused("there is no account %q, and %s is the home of %q", name, v.Home, all[o].Name)
		}
		return v, nil
	}
	v.Account, v.exists = all[i], true
	if !h.tenant(v.UID, kept) || v.UID > lastAccountUID {
		return v, refused("account %q has uid %d, which is not that of a tenant", name, v.UID)
	}
	for _, other := range all {
		if other.UID == v.UID && other.Name != name {
			return v, refused("accounts %q and %q share uid %d; an operator must separate them first", name, other.Name, v.UID)
		}
	}
	return v, nil
}

// revoke locks the account, ends its processes and sessions, and then removes it. In this order the
// tenant cannot log in again in between.
func (v victim) revoke(ctx context.Context, steps *task.Recorder, removeHome bool) error {
	// Nothing below counts on this one.
	metadataErr := steps.Do(ctx, "metadata", func(ctx context.Context) (string, error) { return v.endMetadata(ctx, v.Name) })
	for _, s := range []struct {
		name string
		do   func(context.Context) (string, error)
	}{
		{"lock_account", v.lock},
		{"keys", v.keys},
		{"sudo", v.sudo},
		{"scheduled_jobs", v.jobs},
		{"sessions", v.sessions},
		{"processes", func(ctx context.Context) (string, error) {
			if !v.exists {
				return "", task.Skip("the account is gone, and was removed after its processes")
			}
			return v.end(ctx, steps, revokeGrace, func(uid int) bool { return uid == v.UID })
		}},
		{"account", v.removeAccount},
		{"home", func(context.Context) (string, error) { return v.removeHome(removeHome) }},
		{"holder", func(context.Context) (string, error) { return v.letGo(v.Name) }},
	} {
		if err := steps.Do(ctx, s.name, s.do); err != nil {
			return errors.Join(err, metadataErr) // the next step counts on this one
		}
	}
	return metadataErr
}

func (v victim) lock(ctx context.Context) (string, error) {
	if !v.exists {
		return "", task.Skip("there is no such account")
	}
	if !v.HasTool("usermod") {
		return "", task.Skip("usermod is not installed; the account is removed below")
	}
	_, err := v.Tool(ctx, "usermod", "--lock", "--expiredate", "1", v.Name)
	return "no password and no key opens it", err
}

func (v victim) keys(context.Context) (string, error) {
	removed, err := v.remove(systemKeyFiles(v.Name)...)
	foreign := v.guard(filepath.Join(v.Home, ".ssh"))
	if foreign == nil && v.Home != "" && v.Home != "/" {
		ok, e := v.inHome(func(home *os.Root) error {
			for _, name := range []string{".ssh/authorized_keys", ".ssh/authorized_keys2", ".ssh/rc"} {
				switch e := home.Remove(name); {
				case e == nil:
					removed = append(removed, filepath.Join(v.Home, name))
				case !errors.Is(e, fs.ErrNotExist):
					return e
				}
			}
			return nil
		})
		if ok {
			err = errors.Join(err, e)
		}
	}
	switch {
	case err == nil && foreign != nil:
		return "", task.Skip("the keys in the home stay, and open nothing once the account is gone: " + foreign.Error())
	case err == nil && len(removed) == 0:
		return "no key was there", nil
	}
	return "removed " + strings.Join(removed, ", "), err
}

// guard returns an error when a path lies on storage that is not this node's, or has such storage
// mounted below it.
func (v victim) guard(path string) error { return scrub.Host{Root: v.Root}.StorageGuard(path) }

// inHome opens the account's home; os.Root follows no link of the tenant's out
// of it. false means that there is none.
func (v victim) inHome(do func(*os.Root) error) (bool, error) {
	st, err := os.Lstat(v.path(v.Home))
	if err != nil || !st.IsDir() {
		return false, nil
	}
	home, err := os.OpenRoot(v.path(v.Home))
	if err != nil {
		return false, nil
	}
	defer func() { _ = home.Close() }()
	return true, do(home)
}

// sudo removes the account's file below sudoers.d and its lines elsewhere.
func (v victim) sudo(context.Context) (string, error) {
	removed, err := v.remove("/etc/sudoers.d/"+v.Name, "/etc/sudoers.d/90-"+v.Name)
	if err != nil {
		return "", err
	}
	files := []string{"/etc/sudoers"}
	entries, err := os.ReadDir(v.path("/etc/sudoers.d"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			files = append(files, "/etc/sudoers.d/"+e.Name())
		}
	}
	lines := 0
	for _, f := range files {
		n, err := v.dropLines(f, func(line string) bool {
			fields := strings.Fields(line)
			return len(fields) > 0 && (fields[0] == v.Name || (v.exists && fields[0] == "#"+strconv.Itoa(v.UID)))
		})
		if err != nil {
			return "", err
		}
		lines += n
	}
	if len(removed) == 0 && lines == 0 {
		return "it had no entry of its own", nil
	}
	return fmt.Sprintf("%d files and %d lines removed", len(removed), lines), nil
}

// jobs removes crontabs, at jobs and the mark that lets user units run without
// a session.
func (v victim) jobs(context.Context) (string, error) {
	paths := []string{"/var/spool/cron/crontabs/" + v.Name, "/var/spool/cron/" + v.Name, "/var/lib/systemd/linger/" + v.Name}
	for _, dir := range []string{"/var/spool/cron/atjobs", "/var/spool/at"} {
		entries, err := os.ReadDir(v.path(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || !v.exists || !e.Type().IsRegular() {
				continue
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == v.UID {
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	removed, err := v.remove(paths...)
	if err == nil && len(removed) == 0 {
		return "it had none", nil
	}
	return "removed " + strings.Join(removed, ", "), err
}

func (v victim) sessions(ctx context.Context) (string, error) {
	if !v.exists {
		return "", task.Skip("there is no such account")
	}
	if !v.HasTool("loginctl") {
		return "", task.Skip("loginctl is not installed; sessions end with their processes")
	}
	if _, err := v.Tool(ctx, "loginctl", "terminate-user", v.Name); err != nil {
		return "", task.Skip("it had no session that logind knows: " + err.Error())
	}
	return "its sessions are ended", nil
}

func (v victim) removeAccount(ctx context.Context) (string, error) {
	if !v.exists {
		return "", task.Skip("there is no such account")
	}
	left, err := v.processes(func(uid int) bool { return uid == v.UID })
	if err != nil {
		return "", err
	}
	if len(left) > 0 {
		return "", fmt.Errorf("%d of its processes came back, such as %d (%s)", len(left), left[0].PID, left[0].Name)
	}
	switch {
	case v.HasTool("userdel"):
		_, err = v.Tool(ctx, "userdel", v.Name)
	case v.real():
		return "", errors.New("userdel is not installed; install the package passwd or shadow-utils")
	default:
		err = v.editAccounts()
	}
	all, lookErr := v.accounts()
	if slices.ContainsFunc(all, func(a hostscan.Account) bool { return a.Name == v.Name }) {
		return "", errors.Join(errors.New("the account is still in passwd"), err, lookErr)
	}
	return fmt.Sprintf("uid %d is gone", v.UID), lookErr // userdel also complains of what does not matter, such as a missing mail spool
}

// editAccounts is what userdel does, for simulated nodes without one.
func (v victim) editAccounts() error {
	starts := func(line string) bool { return strings.HasPrefix(line, v.Name+":") }
	var err error
	for _, f := range []string{"/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/subuid", "/etc/subgid"} {
		_, e := v.dropLines(f, starts)
		err = errors.Join(err, e)
	}
	return err
}

// removeHome removes what lies at the account's home below /home. It never follows a link out of
// the home. It leaves a home that is a mount of its own, and one on storage that is not this
// node's.
func (v victim) removeHome(asked bool) (string, error) {
	if !asked {
		return "", task.Skip("the home is to stay")
	}
	home := filepath.Clean(v.Home)
	if !strings.HasPrefix(home, "/home/") {
		return "", fmt.Errorf("the home %s is not below /home and is not removed", v.Home)
	}
	st, err := os.Lstat(v.path(home))
	if errors.Is(err, fs.ErrNotExist) {
		return "there was none", nil
	}
	if err != nil {
		return "", err
	}
	if err := v.guard(home); err != nil {
		return "", fmt.Errorf("the home %s is not removed: %w; unmount it, then ask again, or remove it where it is", home, err)
	}
	mounts, err := v.scan().Mounts()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if m.Target == home || strings.HasPrefix(m.Target, home+"/") {
			return "", fmt.Errorf("%s is mounted inside the home; unmount it first, so that nothing elsewhere is erased", m.Target)
		}
	}
	if !st.IsDir() { // a link is removed as a link
		return "the home was no directory", os.Remove(v.path(home))
	}
	return "removed " + home, os.RemoveAll(v.path(home))
}
