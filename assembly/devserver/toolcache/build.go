package toolcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/internal/poll"
)

const (
	heartbeat = 15 * time.Second
	// buildLimit is generous: on two slow, shared cores the longest build takes about ten minutes.
	buildLimit = 40 * time.Minute
	lockPoll   = 250 * time.Millisecond
	// keptVersions of a tool stay in the cache: as many checkouts with different versions can be
	// used in turns without a new build.
	keptVersions = 3
)

func buildFlags() []string { return []string{"-trimpath", "-buildvcs=false", "-ldflags=-s -w"} }

// Ensure returns the path of the tool in the cache and makes bin/NAME of the checkout a link to it.
// It builds the tool when the cache does not have it, and tells progress about that with a line
// every 15 seconds; nil for silence. Callers in several processes wait for each other. Ensure needs
// a checkout around the current folder, and the Go toolchain to build.
func Ensure(ctx context.Context, tool Tool, progress io.Writer) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	if progress == nil {
		progress = io.Discard
	}
	b := builder{Tool: tool, root: root, every: heartbeat, compile: compile}
	b.say = func(format string, args ...any) { _, _ = fmt.Fprintf(progress, format+"\n", args...) }
	path, err := b.ensure(ctx)
	if err != nil {
		return "", err
	}
	if err := link(path, filepath.Join(root, "bin", tool.Name)); err != nil {
		b.say("bin/%s is not a link to %s: %v", tool.Name, path, err)
	}
	return path, nil
}

// builder builds one tool of one checkout.
type builder struct {
	Tool
	root    string
	say     func(format string, args ...any)
	every   time.Duration                                          // between two lines of a long build
	compile func(ctx context.Context, b builder, out string) error // replaced by tests
}

func (b builder) ensure(ctx context.Context) (string, error) {
	hash, err := b.hash(b.root)
	if err != nil {
		return "", err
	}
	cache, err := findFolders(b.root, "bin")
	if err != nil {
		return "", err
	}
	for _, dir := range cache.read {
		if path := filepath.Join(dir, hash, b.Name); used(path) {
			return path, nil
		}
	}
	if err := cache.makeWritable(); err != nil {
		return "", err
	}
	path := filepath.Join(cache.write, hash, b.Name)
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	unlock, err := b.lock(ctx, filepath.Join(cache.write, b.Name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if used(path) { // another process has just built it
		return path, nil
	}
	if cache.fallback != nil {
		b.say("%s is kept in this checkout only: %v", b.Name, cache.fallback)
	}
	if err := b.build(ctx, path); err != nil {
		return "", err
	}
	return path, nil
}

// used reports whether the cache has the program, and if so makes it the most recently used one.
func used(path string) bool {
	if !usable(path) {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Dir(path), now, now) // root may own it
	return true
}

// build compiles into a new folder and renames that folder, so that an entry of the cache is always
// complete. The caller holds the lock.
func (b builder) build(ctx context.Context, path string) error {
	entry, dir := filepath.Dir(path), filepath.Dir(filepath.Dir(path))
	unfinished := b.Name + ".new-"
	// Folders that killed builds left are removed. Their names are never used again: a compiler may
	// still run.
	if err := removeOld(dir, 0, func(name string) bool { return strings.HasPrefix(name, unfinished) }); err != nil {
		return fmt.Errorf("remove an unfinished build: %w", err)
	}
	fresh, err := os.MkdirTemp(dir, unfinished)
	if err != nil {
		return fmt.Errorf("make a folder to build in: %w", err)
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	if err := b.watchCompile(ctx, filepath.Join(fresh, b.Name)); err != nil {
		return err
	}
	if err := os.RemoveAll(entry); err != nil { // one that is not usable
		return fmt.Errorf("replace %s: %w", entry, err)
	}
	if err := os.Rename(fresh, entry); err != nil {
		return fmt.Errorf("put %s in place: %w", path, err)
	}
	return removeOld(dir, keptVersions, func(name string) bool { return isFile(filepath.Join(dir, name, b.Name)) })
}

// watchCompile compiles and tells every now and then that it still does.
func (b builder) watchCompile(ctx context.Context, out string) error {
	b.say("building %s into %s: the first time on a machine about %s (2 cores)", b.Name, filepath.Dir(filepath.Dir(out)), b.Takes)
	began, done := time.Now(), make(chan error, 1)
	go func() { done <- b.compile(ctx, b, out) }()
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err == nil {
				b.say("built %s in %s", b.Name, since(began))
			}
			return err
		case <-tick.C:
			b.say("still building %s (%s so far)", b.Name, since(began))
		}
	}
}

func compile(ctx context.Context, b builder, out string) error {
	tool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("%s has to be built and there is no Go toolchain on PATH: install Go 1.26 or later", b.Name)
	}
	cmd := exec.CommandContext(ctx, tool, append(append([]string{"build"}, buildFlags()...), "-o", out, b.Package)...)
	cmd.Dir = filepath.Join(b.root, b.Module)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	cmd.WaitDelay = 5 * time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", b.Name, err, strings.TrimSpace(output.String()))
	}
	return os.Chmod(out, 0o755) // whatever the umask is
}

// lock keeps other processes from building the tool. It ends with the process, however that ends.
func (b builder) lock(ctx context.Context, path string) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the build of %s: %w", b.Name, err)
	}
	began, told := time.Now(), time.Time{}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock the build of %s: %w", b.Name, err), file.Close())
		}
		if time.Since(told) >= b.every {
			b.say("another process is building %s; waiting for it (%s so far)", b.Name, since(began))
			told = time.Now()
		}
		if poll.Sleep(ctx, lockPoll) != nil {
			return nil, errors.Join(fmt.Errorf("wait for the other build of %s: %w", b.Name, ctx.Err()), file.Close())
		}
	}
}

var links atomic.Int64

// link makes path a symbolic link to target, whatever was there.
func link(target, path string) error {
	if have, err := os.Readlink(path); err == nil && have == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	fresh := fmt.Sprintf("%s.%d-%d", path, os.Getpid(), links.Add(1))
	if err := os.Symlink(target, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

func since(began time.Time) time.Duration { return time.Since(began).Round(time.Second) }
