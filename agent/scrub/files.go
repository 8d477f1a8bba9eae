package scrub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
	"github.com/slipway-cloud/slipway/agent/hostscan"
	"github.com/slipway-cloud/slipway/agent/metadata"
)

// temporary are the directories in which every account may write and that
// nothing needs for longer than a boot: all in them goes.
func temporary() []string { return []string{"/tmp", "/var/tmp", "/dev/shm"} }

// roomy are where accounts are given room besides their homes: what belongs to
// the accounts that a scrub removes goes with them.
func roomy() []string {
	return []string{"/home", "/srv", "/opt", "/usr/local", "/data", "/scratch", "/mnt", "/media", "/var/mail", "/var/spool", "/var/crash", "/var/www",
		"/var/lib/systemd/coredump", "/run/user", "/run/lock"}
}

// mostFiles is how many files of removed accounts one run takes away.
const mostFiles = 1_000_000

// files empties the temporary directories and takes away what removed accounts
// left elsewhere.
func (r *run) files(ctx context.Context) (string, error) {
	t, err := r.openTree()
	if err != nil {
		return "", err
	}
	defer t.close()
	var errs []error
	emptied := 0
	for _, dir := range temporary() {
		n, err := t.empty(ctx, dir)
		emptied += n
		errs = append(errs, err)
	}
	taken, err := t.take(ctx)
	errs = append(errs, err, r.removeTenancy())
	return fmt.Sprintf("%d entries of %s removed, %d files of removed accounts elsewhere", emptied, strings.Join(temporary(), ", "), taken), errors.Join(errs...)
}

// removeTenancy removes which allocation the node is held for, and its metadata, once no account of
// a tenant is there. No other task may follow that would: the tenant's account may never be revoked
// on a node whose agent was silent when he left.
func (r *run) removeTenancy() error {
	left, err := r.foreignAccounts()
	if err != nil || len(left) > 0 {
		return err
	}
	for _, name := range []string{metadata.Path, metadata.HolderPath} {
		if !r.concerns("file", name) || !r.exists(filepath.Dir(name)) {
			continue
		}
		if err := os.Remove(r.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := atomicfile.SyncDir(filepath.Dir(r.path(name))); err != nil {
			return err
		}
	}
	return nil
}

// noFiles finds what belongs to tenants in the temporary directories, and to the
// accounts that the scrub of this run removed elsewhere. Files of the system's
// own accounts, which every boot creates again, do not count.
func (v validation) noFiles(ctx context.Context) (string, error) {
	t, err := v.openTree()
	if err != nil {
		return "", err
	}
	defer t.close()
	kept, err := v.keptUIDs()
	if err != nil {
		return "", err
	}
	var found []string
	for _, dir := range temporary() {
		err := t.walk(ctx, dir, func(p string, st fs.FileInfo) error {
			if t.private(p, st) {
				return fs.SkipDir
			}
			if top(dir, p) != "" && v.concerns("file", top(dir, p)) && hostscan.IsUserUID(v.uidOf(p, st)) && !kept[v.uidOf(p, st)] {
				found = append(found, p)
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	more, err := t.ofRemoved(ctx)
	if found = append(found, more...); err == nil && len(found) > 0 {
		err = fmt.Errorf("%d files of accounts that are not the platform's: %s", len(found), list(found))
	}
	return "no file of a tenant in " + strings.Join(temporary(), ", "), err
}

// keptUIDs are those of the accounts that stay.
func (r *run) keptUIDs() (map[int]bool, error) {
	all, err := r.accounts()
	if err != nil {
		return nil, err
	}
	out := map[int]bool{}
	for _, a := range all {
		if r.keep[a.Name] {
			out[a.UID] = true
		}
	}
	return out, nil
}

// uidOf is whose a file is. On a simulated node, whoever runs the simulation
// stands for root.
func (h Host) uidOf(p string, st fs.FileInfo) int {
	if h.owner != nil {
		if uid, ok := h.owner(p); ok {
			return uid
		}
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || h.Root != "/" && h.simulated() && int(sys.Uid) == os.Geteuid() {
		return 0
	}
	return int(sys.Uid)
}

// tree is the node's files for as long as a step goes through them. It leads
// nowhere out of the node: links are not followed, and nothing is taken from
// below a mount.
type tree struct {
	*run
	root   *os.Root
	mounts []hostscan.Mount
}

func (r *run) openTree() (*tree, error) {
	mounts, err := r.mountList()
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(r.Root)
	if err != nil {
		return nil, fmt.Errorf("open the node's files: %w", err)
	}
	return &tree{run: r, root: root, mounts: mounts}, nil
}

func (t *tree) close() { _ = t.root.Close() }

// in is a path of the node as the root wants it.
func in(p string) string { return strings.TrimPrefix(path.Clean(p), "/") }

// top is the entry of dir that p lies in or is; "" for dir itself.
func top(dir, p string) string {
	rest, ok := strings.CutPrefix(p, dir+"/")
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(rest, "/")
	return path.Join(dir, first)
}

// private is the directory of a service of this boot, which only the service
// sees and which ends with it.
func (t *tree) private(p string, st fs.FileInfo) bool {
	boot := strings.ReplaceAll(t.text(bootIDFile), "-", "")
	return boot != "" && st.IsDir() && strings.HasPrefix(path.Base(p), "systemd-private-"+boot+"-") && t.uidOf(p, st) == 0
}

// directory says whether a directory is there. A link or a file in its place is an error: a tenant
// may have put the content elsewhere.
func (t *tree) directory(dir string) (bool, error) {
	st, err := t.root.Lstat(in(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at %s: %w", dir, err)
	case !st.IsDir():
		return false, fmt.Errorf("%s is no directory but a %s, so what belongs in it may lie elsewhere; put a directory in its place", dir, kindOf(st))
	}
	return true, nil
}

func kindOf(st fs.FileInfo) string {
	if st.Mode()&fs.ModeSymlink != 0 {
		return "link"
	}
	return "file"
}

// empty removes all in a directory but the private ones of running services.
func (t *tree) empty(ctx context.Context, dir string) (int, error) {
	if ok, err := t.directory(dir); !ok {
		return 0, err
	}
	if err := t.storageGuard(dir); err != nil {
		return 0, err
	}
	entries, err := fs.ReadDir(t.root.FS(), in(dir))
	if err != nil {
		return 0, fmt.Errorf("look into %s: %w", dir, err)
	}
	var errs []error
	removed := 0
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		st, err := t.root.Lstat(in(p))
		if errors.Is(err, fs.ErrNotExist) || !t.concerns("file", p) {
			continue
		}
		if err == nil && t.private(p, st) {
			continue
		}
		if err == nil {
			err = t.remove(ctx, p)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s cannot be removed: %w", p, err))
			continue
		}
		removed++
	}
	return removed, errors.Join(errs...)
}

// remove takes away a file, or a directory with all in it, unless something is
// mounted there, which is somebody else's.
func (t *tree) remove(ctx context.Context, p string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if i := slices.IndexFunc(t.mounts, func(m hostscan.Mount) bool { return m.Target == p || strings.HasPrefix(m.Target, p+"/") }); i >= 0 {
		return fmt.Errorf("%s is mounted at %s", t.mounts[i].Source, t.mounts[i].Target)
	}
	if err := t.root.RemoveAll(in(p)); err != nil {
		return err
	}
	if _, err := t.root.Lstat(in(p)); !errors.Is(err, fs.ErrNotExist) {
		return errors.New("it is there again")
	}
	return nil
}

// walk goes through a directory, not into links nor into what is mounted below. Files that go away
// meanwhile are left out.
func (t *tree) walk(ctx context.Context, dir string, see func(p string, st fs.FileInfo) error) error {
	if ok, err := t.directory(dir); !ok {
		return err
	}
	err := fs.WalkDir(t.root.FS(), in(dir), func(rel string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p := "/" + rel
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if p != dir && e.IsDir() && slices.ContainsFunc(t.mounts, func(m hostscan.Mount) bool { return m.Target == p }) {
			return fs.SkipDir
		}
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return see(p, st)
	})
	if err != nil {
		return fmt.Errorf("look into %s: %w", dir, err)
	}
	return nil
}

// ofRemoved lists what belongs to the accounts that this run's scrub removed,
// outside the temporary directories. A number that another account has by now is
// not theirs.
func (t *tree) ofRemoved(ctx context.Context) ([]string, error) {
	removed := t.notes.removed()
	accounts, err := t.accounts()
	if err != nil {
		return nil, err
	}
	removed = slices.DeleteFunc(removed, func(uid int) bool {
		return slices.ContainsFunc(accounts, func(a hostscan.Account) bool { return a.UID == uid })
	})
	if len(removed) == 0 {
		return nil, nil
	}
	var out []string
	for _, dir := range roomy() {
		if st, err := t.root.Lstat(in(dir)); err == nil && st.Mode()&fs.ModeSymlink != 0 {
			continue // as /var/mail is of /var/spool/mail: what it leads to is walked by its own name
		}
		err := t.walk(ctx, dir, func(p string, st fs.FileInfo) error {
			if t.concerns("file", p) && slices.Contains(removed, t.uidOf(p, st)) {
				out = append(out, p)
			}
			if len(out) > mostFiles {
				return fmt.Errorf("more than %d files belong to removed accounts", mostFiles)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// take removes the files of removed accounts. Directories that others use too,
// and the platform's own files, go back to root.
func (t *tree) take(ctx context.Context) (int, error) {
	found, err := t.ofRemoved(ctx)
	if err == nil && len(found) > 0 {
		err = t.storageGuard(found...)
	}
	if err != nil {
		return 0, err
	}
	taken := 0
	for _, p := range slices.Backward(found) { // what is in a directory before the directory
		if !ours(p) && !slices.Contains(roomy(), p) && t.root.Remove(in(p)) == nil {
			taken++
		} else if err := t.root.Lchown(in(p), 0, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return taken, fmt.Errorf("%s belongs to a removed account, and cannot be removed nor given to root: %w", p, err)
		}
	}
	left, err := t.ofRemoved(ctx)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d files of removed accounts are still there: %s", len(left), list(left))
	}
	return taken, err
}
