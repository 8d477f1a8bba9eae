package taskhandlers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const (
	sudoersDir    = "/etc/sudoers.d"
	tenantShell   = "/bin/bash"
	authorizedDir = ".ssh"
	authorized    = "authorized_keys"
)

// CreateUser is the handler of allocation.create_user: it makes the account of an allocation, which
// no password and no key opens, and lets it become root when the task says so. An account that is
// there keeps its keys, because a task may be delivered again after they were set.
func (h Host) CreateUser(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	args, ok := r.Args.(*spec.CreateUserArgs)
	if !ok {
		return task.Fail(task.CodeInternal, "the arguments are not those of an account to be made")
	}
	err := steps.Do(ctx, "holder", func(context.Context) (string, error) { return h.hold(args.AllocationID) })
	if err == nil {
		err = steps.Do(ctx, "account", func(ctx context.Context) (string, error) { return h.makeAccount(ctx, args) })
	}
	if err == nil {
		err = steps.Do(ctx, "sudo", func(context.Context) (string, error) { return h.allowSudo(args.User, args.Root) })
	}
	return steps.End(err)
}

func homeOf(user string) string { return "/home/" + user }

// makeAccount makes the account, unless it is there as this makes it. It refuses what somebody may
// have put in place for it before: a home, or keys that each new account would get.
func (h Host) makeAccount(ctx context.Context, args *spec.CreateUserArgs) (string, error) {
	home := homeOf(args.User)
	v, err := h.victim(args.User)
	if err != nil {
		return "", err
	}
	if v.exists {
		if filepath.Clean(v.Home) != home {
			return "", refused("account %q has the home %s, not %s: it was not made by Slipway", args.User, v.Home, home)
		}
		return fmt.Sprintf("it is there already, with uid %d", v.UID), h.checkTenantHome(v)
	}
	for path, why := range map[string]string{home: "and there is no account that it belongs to", "/etc/skel/.ssh": "and every new account would get its keys"} {
		if _, err := os.Lstat(h.path(path)); !errors.Is(err, fs.ErrNotExist) {
			return "", refused("%s exists, %s; look what it is and remove it", path, why)
		}
	}
	if st, err := os.Lstat(h.path("/home")); err == nil && !st.IsDir() {
		return "", refused("/home is a link or no directory; tenants' homes must lie on the node's own disk")
	}
	if err := v.guard(home); err != nil {
		return "", fmt.Errorf("the home %s would not lie on the node's own disk: %w", home, err)
	}
	// "*" is no password that could match, and unlike "!" no lock, for which sshd refuses keys too.
	_, runErr := h.Tool(ctx, "useradd", "--create-home", "--home-dir", home, "--shell", tenantShell, "--user-group", "--password", "*",
		"--comment", "allocation "+args.AllocationID, args.User)
	if v, err = h.victim(args.User); err != nil || !v.exists {
		return "", errors.Join(errors.New("the account was not made"), runErr, err)
	}
	if err := h.checkTenantHome(v); err != nil {
		return "", errors.Join(err, runErr)
	}
	return fmt.Sprintf("made with uid %d", v.UID), nil
}

func (h Host) checkTenantHome(v victim) error {
	home, err := h.openTenantHome(v)
	if err != nil {
		return err
	}
	return home.Close()
}

// openTenantHome opens the home of a tenant's account. It returns an error where the home is a
// link, belongs to another account, or lies on storage that is not the node's: a tenant with root
// may have put it there.
func (h Host) openTenantHome(v victim) (tenantDir, error) {
	if err := v.guard(v.Home); err != nil {
		return tenantDir{}, fmt.Errorf("the home %s is not used: %w", v.Home, err)
	}
	parent, err := os.OpenRoot(h.path(filepath.Dir(v.Home)))
	if err != nil {
		return tenantDir{}, fmt.Errorf("the home of account %q cannot be opened: %w", v.Name, err)
	}
	defer func() { _ = parent.Close() }()
	d, err := h.openOwned(parent, filepath.Base(v.Home), v)
	if err != nil {
		return d, fmt.Errorf("the home %s: %w", v.Home, err)
	}
	return d, nil
}

// tenantDir is an open directory of a tenant's account.
type tenantDir struct {
	*os.Root
	gid int
}

// openOwned opens a directory that must be one, no link, and belong to the account. The directory
// that is opened is compared with the one that was looked at, because a process of the tenant may
// exchange it in between.
func (h Host) openOwned(parent *os.Root, name string, v victim) (tenantDir, error) {
	looked, err := parent.Lstat(name)
	if err != nil {
		return tenantDir{}, err
	}
	if !looked.IsDir() {
		return tenantDir{}, refused("%s is a link or no directory; remove it, since nothing is written where it leads", name)
	}
	dir, err := parent.OpenRoot(name)
	if err != nil {
		return tenantDir{}, err
	}
	st, err := dir.Stat(".")
	if err == nil && !os.SameFile(looked, st) {
		err = refused("%s was exchanged while it was opened", name)
	}
	gid := -1
	if sys, ok := st.Sys().(*syscall.Stat_t); err == nil && ok {
		gid = int(sys.Gid)
		if h.real() && int(sys.Uid) != v.UID {
			err = refused("%s belongs to uid %d, not to account %q", name, sys.Uid, v.Name)
		}
	}
	if err != nil {
		return tenantDir{}, errors.Join(err, dir.Close())
	}
	return tenantDir{dir, gid}, nil
}

// allowSudo lets the account become root, or takes that away. A link in the place of the file is
// replaced, not followed.
func (h Host) allowSudo(user string, root bool) (string, error) {
	path := filepath.Join(sudoersDir, user)
	if !root {
		removed, err := h.remove(path)
		if err == nil && len(removed) == 0 {
			return "", task.Skip("the account is not to become root")
		}
		return "the account can no longer become root", err
	}
	if !h.HasTool("sudo") {
		return "", errors.New("sudo is not installed, so that the account could not become root; install it in the image")
	}
	if err := os.MkdirAll(h.path(sudoersDir), 0o750); err != nil {
		return "", err
	}
	err := atomicfile.Replace(h.path(path), []byte(user+" ALL=(ALL:ALL) NOPASSWD: ALL\n"), 0o440)
	return "the account may become root by sudo", err
}

// SetKeys is the handler of allocation.set_keys: exactly these keys log in to the account
// afterwards.
func (h Host) SetKeys(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	args, ok := r.Args.(*spec.SetKeysArgs)
	if !ok {
		return task.Fail(task.CodeInternal, "the arguments are not those of keys to be set")
	}
	v, err := h.victim(args.User)
	if err == nil && !v.exists && len(args.Keys) > 0 {
		err = refused("there is no account %q to put keys into; it has ended, or was not made", args.User)
	}
	if err != nil {
		return steps.End(err)
	}
	err = steps.Do(ctx, "other_key_files", func(context.Context) (string, error) { return h.removeSystemKeys(v) })
	if err == nil {
		err = steps.Do(ctx, "keys", func(context.Context) (string, error) { return h.writeKeys(v, args.Keys) })
	}
	return steps.End(err)
}

// removeSystemKeys removes the files outside of the home that an sshd may be set to read keys from.
func (h Host) removeSystemKeys(v victim) (string, error) {
	removed, err := h.remove(systemKeyFiles(v.Name)...)
	if err == nil && len(removed) == 0 {
		return "there was none", nil
	}
	return "removed " + strings.Join(removed, ", "), err
}

// systemKeyFiles are the files outside of the home in which keys of an account may stand.
func systemKeyFiles(user string) []string {
	return []string{"/etc/ssh/authorized_keys.d/" + user, "/etc/ssh/authorized_keys/" + user}
}

// writeKeys replaces authorized_keys of the account as a whole. When it fails, the file is as it
// was.
func (h Host) writeKeys(v victim, keys []string) (string, error) {
	if !v.exists {
		return "", task.Skip("there is no such account, so that no key opens it")
	}
	home, err := h.openTenantHome(v)
	if err != nil {
		return "", err
	}
	defer func() { _ = home.Close() }()
	uid, gid := v.UID, home.gid
	if !h.real() { // a simulation need not run as root
		uid = -1
	}
	if err := home.Mkdir(authorizedDir, 0o700); err == nil && uid >= 0 {
		err = home.Lchown(authorizedDir, uid, gid)
		if err != nil {
			return "", err
		}
	} else if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	dir, err := h.openOwned(home.Root, authorizedDir, v)
	if err != nil {
		return "", fmt.Errorf("in the home %s: %w", v.Home, err)
	}
	defer func() { _ = dir.Close() }()
	if err := dir.Chmod(".", 0o700); err != nil {
		return "", err
	}
	if err := dir.Remove(authorized + "2"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s2 could not be removed, and sshd may read it: %w", authorized, err)
	}
	var content strings.Builder
	for _, k := range keys {
		content.WriteString(k + "\n")
	}
	if err := atomicfile.ReplaceIn(dir.Root, authorized, []byte(content.String()), 0o600, uid, gid); err != nil {
		return "", fmt.Errorf("%s was not changed: %w", authorized, err)
	}
	return fmt.Sprintf("%d keys log in to the account", len(keys)), nil
}
