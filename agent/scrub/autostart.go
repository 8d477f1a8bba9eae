package scrub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

var errNotDir = syscall.ENOTDIR

// always are directories and files in which nothing of the system lies: all in
// them goes.
func always() []string {
	return []string{"/var/spool/cron/crontabs", "/var/spool/cron/atjobs", "/var/spool/cron/atspool", "/var/spool/at", "/etc/ld.so.preload", "/etc/rc.local"}
}

// shared are directories in which packages and tenants put things that start by
// themselves: what no package owns goes.
func shared() []string {
	return []string{"/etc/cron.d", "/etc/cron.hourly", "/etc/cron.daily", "/etc/cron.weekly", "/etc/cron.monthly", "/etc/sudoers.d",
		"/etc/systemd/system", "/etc/profile.d", "/etc/modules-load.d", "/etc/sysctl.d", "/etc/udev/rules.d"}
}

// packageWitness is a file that the package system owns on every machine that
// has it: if it does not say so, its word on other files is worth nothing.
const packageWitness = "/usr/bin/dpkg-query"

// ours are files of the platform that no package owns.
func ours(path string) bool {
	base := filepath.Base(path)
	return strings.HasPrefix(base, "slipway") || strings.HasPrefix(base, "snap-") || strings.HasPrefix(base, "snap.") || strings.HasPrefix(base, "maas")
}

// autostart removes what would start again by itself: crontabs, at jobs, units,
// sudo rules, preloaded libraries.
func (r *run) autostart(ctx context.Context) (string, error) {
	found, err := r.foreignFiles(ctx)
	if err != nil {
		return "", err
	}
	var errs []error
	units := false
	for _, path := range found {
		if err := r.storageGuard(path); err != nil {
			errs = append(errs, err)
			continue
		}
		if filepath.Dir(path) == "/etc/systemd/system" && filepath.Ext(path) != "" {
			units = true
			// A unit that is not active answers with an error; what counts is that its file is
			// gone.
			_, _ = r.run(ctx, time.Minute, "systemctl", "disable", "--now", filepath.Base(path))
		}
		if err := os.Remove(r.path(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove %s: %w", path, err))
		}
	}
	if units {
		if _, err := r.run(ctx, time.Minute, "systemctl", "daemon-reload"); err != nil {
			errs = append(errs, err)
		}
	}
	left, err := r.foreignFiles(ctx)
	if err != nil {
		errs = append(errs, err)
	}
	if len(left) > 0 {
		errs = append(errs, fmt.Errorf("still there: %s", list(left)))
	}
	if len(found) == 0 {
		return "nothing that starts by itself", errors.Join(errs...)
	}
	return "removed " + list(found), errors.Join(errs...)
}

// foreignFiles are the files that start things and belong to no package and not
// to the platform.
func (r *run) foreignFiles(ctx context.Context) ([]string, error) {
	var out, ask []string
	for _, p := range always() {
		files, err := r.filesBelow(p)
		if err != nil {
			return nil, err
		}
		out = append(out, files...)
	}
	for _, dir := range shared() {
		files, err := r.filesBelow(dir)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if !ours(f) && (!strings.HasPrefix(f, "/etc/sudoers.d/") || !r.sudoOfKept(f)) {
				ask = append(ask, f)
			}
		}
	}
	if len(ask) == 0 {
		return out, nil
	}
	owned, err := r.ownedByPackages(ctx, ask)
	if err != nil {
		return nil, err
	}
	return append(out, slices.DeleteFunc(ask, func(f string) bool { return owned[f] })...), nil
}

// filesBelow lists the files in a directory and in those below it, or the file
// itself. Links stay: in these directories they turn units on, and what they
// point to is checked at its own path.
func (r *run) filesBelow(path string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(r.path(path), func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		}
		rel, err := filepath.Rel(r.Root, p)
		if err != nil {
			return err
		}
		if node := filepath.Join("/", rel); !e.IsDir() && e.Type()&os.ModeSymlink == 0 && e.Name() != ".placeholder" && r.concerns("file", node) {
			out = append(out, node)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look into %s: %w", path, err)
	}
	return out, nil
}

// sudoOfKept is true for a sudo rule that names only accounts that stay.
func (r *run) sudoOfKept(path string) bool {
	raw, err := r.read(path)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' && !strings.HasPrefix(f[0], "#include") {
			continue
		}
		if !r.keep[f[0]] {
			return false
		}
	}
	return true
}

// ownedByPackages asks the package system. It is an error when its answer
// cannot be trusted.
func (r *run) ownedByPackages(ctx context.Context, files []string) (map[string]bool, error) {
	owned := map[string]bool{}
	// It fails when one of the files has no owner; what it says of the others counts.
	out, err := r.run(ctx, 2*time.Minute, "dpkg-query", append([]string{"-S", "--", packageWitness}, files...)...)
	for line := range strings.Lines(string(out)) {
		if _, path, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			owned[path] = true
		}
	}
	if owned[packageWitness] {
		return owned, nil
	}
	return nil, fmt.Errorf("which of %s belong to packages cannot be told: %w", list(files), errors.Join(err, errors.New("dpkg-query does not know itself")))
}
