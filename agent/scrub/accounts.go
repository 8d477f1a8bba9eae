package scrub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/hostscan"
	"github.com/slipway-cloud/slipway/agent/task"
)

// accounts reads /etc/passwd. A line that cannot be read is an error: an account
// must not hide behind it.
func (h Host) accounts() ([]hostscan.Account, error) {
	all, unreadable, err := h.scan().Accounts()
	if err == nil && len(unreadable) > 0 {
		err = fmt.Errorf("the line %q of /etc/passwd is no account", task.Clip(unreadable[0], 60))
	}
	return all, err
}

// foreignAccounts are people's accounts that do not stay, and every further
// account with the rights of root.
func (r *run) foreignAccounts() ([]hostscan.Account, error) {
	all, err := r.accounts()
	if err != nil {
		return nil, err
	}
	var out []hostscan.Account
	for _, a := range all {
		if (hostscan.IsUserUID(a.UID) || a.UID == 0) && !r.keep[a.Name] && r.concerns("user", a.Name) {
			out = append(out, a)
		}
	}
	return out, nil
}

// users removes the accounts with their homes.
func (r *run) users(ctx context.Context) (string, error) {
	foreign, err := r.foreignAccounts()
	if err != nil {
		return "", err
	}
	var errs []error
	var gone []string
	for _, a := range foreign {
		args, permitted := []string{"-f"}, ctx // also when logind still knows a session
		if homeOf(a) {
			var err error
			if permitted, err = r.permitStorage(ctx, a.Home, "/var/mail"); err != nil {
				errs = append(errs, fmt.Errorf("account %s stays, since its home would go with it: %w", a.Name, err))
				continue
			}
			args = append(args, "-r")
		}
		if hostscan.IsUserUID(a.UID) {
			if err := r.notes.removing(a.UID); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		// userdel fails for a missing mail spool too; what counts is what is there after.
		_, runErr := r.run(permitted, 5*time.Minute, "userdel", append(args, "--", a.Name)...)
		if err := r.isGone(a); err != nil {
			errs = append(errs, errors.Join(fmt.Errorf("account %s: %w", a.Name, err), runErr))
			continue
		}
		_ = os.Remove(r.path("/var/lib/systemd/linger", a.Name))
		gone = append(gone, a.Name)
	}
	if len(gone) == 0 {
		return "no account of a tenant", errors.Join(errs...)
	}
	return "removed " + list(gone), errors.Join(errs...)
}

func (r *run) isGone(a hostscan.Account) error {
	all, err := r.accounts()
	if err != nil {
		return err
	}
	for _, b := range all {
		if b.Name == a.Name {
			return errors.New("it is still there")
		}
	}
	if homeOf(a) {
		if err := os.RemoveAll(r.path(a.Home)); err != nil {
			return fmt.Errorf("its home is still there: %w", err)
		}
	}
	return nil
}

// homeOf says whether the account's home is one that may be removed with it: a
// tenant with root may have set it to / or /etc.
func homeOf(a hostscan.Account) bool {
	home := filepath.Clean(a.Home)
	dir := filepath.Dir(home)
	return (dir == "/home" || strings.HasPrefix(dir, "/home/")) && home == a.Home
}

// keyFiles are where sshd looks for keys.
func keyFiles() []string { return []string{".ssh/authorized_keys", ".ssh/authorized_keys2"} }

// keys leaves in the accounts that stay only the keys that may.
func (r *run) keys(context.Context) (string, error) {
	found, err := r.foreignKeys()
	if err != nil {
		return "", err
	}
	var errs []error
	removed := 0
	for path, lines := range found {
		if err := r.storageGuard(path); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := r.replace(path, []byte(strings.Join(lines.stay, ""))); err != nil {
			errs = append(errs, err)
			continue
		}
		removed += len(lines.leave)
	}
	if left, err := r.foreignKeys(); err != nil || len(left) > 0 {
		errs = append(errs, fmt.Errorf("keys are still there: %w", errors.Join(err, fmt.Errorf("%d files", len(left)))))
	}
	return fmt.Sprintf("%d keys removed", removed), errors.Join(errs...)
}

type keyLines struct{ stay, leave []string }

// foreignKeys finds, by file, the lines that may stay and those that may not.
func (r *run) foreignKeys() (map[string]keyLines, error) {
	all, err := r.accounts()
	if err != nil {
		return nil, err
	}
	out := map[string]keyLines{}
	for _, a := range all {
		if !r.concerns("user", a.Name) || a.Home == "" {
			continue
		}
		for _, f := range keyFiles() {
			path := filepath.Join("/", a.Home, f)
			raw, err := r.read(path)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, errNotDir) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("read the keys of %s: %w", a.Name, err)
			}
			if lines := r.sortKeys(string(raw)); len(lines.leave) > 0 {
				out[path] = lines
			}
		}
	}
	return out, nil
}

func (r *run) sortKeys(raw string) keyLines {
	var l keyLines
	for line := range strings.Lines(raw) {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || trimmed[0] == '#' || r.mayStay(trimmed) {
			l.stay = append(l.stay, line)
		} else {
			l.leave = append(l.leave, line)
		}
	}
	return l
}

// mayStay compares type and key; a line with options never stays, since options
// run commands.
func (r *run) mayStay(line string) bool {
	f := strings.Fields(line)
	for _, k := range r.keyring {
		want := strings.Fields(k)
		if len(f) >= 2 && len(want) >= 2 && f[0] == want[0] && f[1] == want[1] {
			return true
		}
	}
	return false
}
