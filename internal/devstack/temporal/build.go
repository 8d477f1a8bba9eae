package temporal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	binary    = "devtemporal"
	heartbeat = 15 * time.Second
	// buildLimit is generous: cold on two slow, shared cores the build takes about ten minutes.
	buildLimit = 40 * time.Minute
	lockPoll   = 250 * time.Millisecond
)

// EnsureBuilt returns the path of bin/devtemporal, building it when it is missing or when a source of the dev module has changed since. It tells
// progress what it does, with a line every 15 seconds while the compiler works; nil for silence. Callers in several processes wait for each other. It
// needs the Go toolchain and a checkout around the current folder.
func EnsureBuilt(ctx context.Context, progress io.Writer) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	b := builder{
		module: filepath.Join(root, "dev"),
		out:    filepath.Join(root, "bin", binary),
		say:    sayer(progress),
		every:  heartbeat,
	}
	return b.ensure(ctx)
}

// Root returns the folder of the Slipway checkout that the current folder is in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for {
		if isFile(filepath.Join(dir, "go.mod")) && isFile(filepath.Join(dir, "dev", "go.mod")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside a Slipway checkout: run this from a folder of it")
		}
		dir = parent
	}
}

// builder makes one program out of one module, if it has to.
type builder struct {
	module string // folder of the module; the program is ./cmd/devtemporal in it
	out    string // where the program goes; beside it lie .stamp and .lock
	say    func(format string, args ...any)
	every  time.Duration
}

func (b builder) ensure(ctx context.Context) (string, error) {
	want, err := b.fingerprint()
	if err != nil {
		return "", err
	}
	if b.current(want) {
		return b.out, nil
	}
	if err := os.MkdirAll(filepath.Dir(b.out), 0o755); err != nil {
		return "", fmt.Errorf("make the folder for %s: %w", b.out, err)
	}
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	unlock, err := b.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if b.current(want) { // another process has just built it
		return b.out, nil
	}
	if err := b.build(ctx); err != nil {
		return "", err
	}
	if err := os.WriteFile(b.stamp(), []byte(want), 0o644); err != nil {
		return "", fmt.Errorf("note what %s was built from: %w", b.out, err)
	}
	return b.out, nil
}

func (b builder) stamp() string { return b.out + ".stamp" }

func (b builder) current(want string) bool {
	have, err := os.ReadFile(b.stamp())
	return err == nil && string(have) == want && isFile(b.out)
}

// fingerprint hashes all that the program is made of: the module's own sources, the versions it pins, and the compiler.
func (b builder) fingerprint() (string, error) {
	var files []string
	err := filepath.WalkDir(b.module, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		source := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
		if d.Type().IsRegular() && (source || name == "go.mod" || name == "go.sum") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read the sources of the Temporal server: %w", err)
	}
	slices.Sort(files)
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read the sources of the Temporal server: %w", err)
		}
		relative, err := filepath.Rel(b.module, path)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintln(sum, relative, len(content))
		_, _ = sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// lock keeps other processes from building the same program. It ends with the process, however that ends.
func (b builder) lock(ctx context.Context) (func(), error) {
	file, err := os.OpenFile(b.out+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the build of %s: %w", b.out, err)
	}
	began, told := time.Now(), time.Time{}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock the build of %s: %w", b.out, err), file.Close())
		}
		if time.Since(told) >= b.every {
			b.say("another process is building the Temporal server; waiting for it (%s so far)", since(began))
			told = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for the other build of %s: %w", b.out, ctx.Err()), file.Close())
		case <-time.After(lockPoll):
		}
	}
}

func (b builder) build(ctx context.Context) error {
	tool, err := exec.LookPath("go")
	if err != nil {
		return errors.New("the development Temporal server has to be built and there is no Go toolchain on PATH: install Go 1.26 or later")
	}
	b.say("building the development Temporal server into %s: the first time this downloads its modules and takes about 6 minutes (2 cores); later it is cached", b.out)
	began := time.Now()
	fresh := b.out + ".new"
	cmd := exec.CommandContext(ctx, tool, "build", "-buildvcs=false", "-ldflags=-s -w", "-o", fresh, "./cmd/"+binary)
	cmd.Dir = b.module
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.WaitDelay = 5 * time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	done := make(chan struct{})
	go b.beat(began, done)
	err = cmd.Run()
	close(done)
	if err != nil {
		return fmt.Errorf("build the development Temporal server: %w\n%s", err, strings.TrimSpace(output.String()))
	}
	if err := os.Rename(fresh, b.out); err != nil {
		return fmt.Errorf("put %s in place: %w", b.out, err)
	}
	b.say("built the development Temporal server in %s", since(began))
	return nil
}

func (b builder) beat(began time.Time, done <-chan struct{}) {
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			b.say("still building the Temporal server (%s so far)", since(began))
		}
	}
}

func sayer(w io.Writer) func(string, ...any) {
	if w == nil {
		return func(string, ...any) {}
	}
	return func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
}

func since(began time.Time) time.Duration { return time.Since(began).Round(time.Second) }

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
