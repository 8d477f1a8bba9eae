package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
	"github.com/slipway-cloud/slipway/test/realhost"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// session is one run of `testrun test` or `testrun proof`.
type session struct {
	root   string
	lock   *os.File // keeps other runs out of the checkout
	board  *board
	speed  speed
	pace   *pace    // measures during the run
	before busyness // of the machine, at the start
	seed   uint64
	env    []string          // for every child
	files  []string          // results of `go test -json`, in the order in which they were written
	tools  map[string]string // paths of the pinned tools by name
	short  bool
	noRace bool      // there is no C compiler
	whole  bool      // not narrowed and not short
	again  []testKey // top-level tests that missed a deadline and ran again
	tree   string    // hash of the tree
}

const (
	workFolder = ".test" // results of the run, relative to the checkout
	usageFile  = workFolder + "/usage.jsonl"
)

// suite is one call of go test.
type suite struct {
	name     string
	packages []string // "./db" or "./..."
	run      string   // regular expression of tests; empty is all
	race     bool
	area     string // of proof; empty is `make test`
	alone    bool   // a repetition, with twice the patience
	parallel string // tests of a package at a time; empty is 4
}

// hangLimit is after how long go test ends a test binary and prints what its goroutines wait for.
// It is many times what the slowest takes: a detector of hangs, and no verdict on speed.
const hangLimit = 30 * time.Minute

// newSession finds the checkout and measures the machine. The caller ends the session with close.
func newSession(ctx context.Context, out io.Writer) (*session, error) {
	root, err := toolcache.Root()
	if err != nil {
		return nil, err
	}
	if err := os.Chdir(root); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(workFolder, 0o755); err != nil {
		return nil, err
	}
	lock, err := lockFolder(workFolder)
	if err != nil {
		return nil, err
	}
	s := &session{root: root, lock: lock, board: newBoard(out), tools: map[string]string{}, short: os.Getenv("TEST_SHORT") != ""}
	t, err := readTree(ctx, root)
	if err != nil {
		return nil, err
	}
	if s.tree, err = t.hash(func(string) bool { return true }); err != nil {
		return nil, err
	}
	if s.seed, err = seedOf(s.tree); err != nil {
		return nil, err
	}
	s.before, s.speed = readBusyness(), calibrate()
	s.env = []string{
		// A machine that stood still for a second is no deadlock in a workflow: the SDK would let
		// go of a coroutine that still runs, which is a data race.
		"TEMPORAL_DEBUG=1",
		fmt.Sprintf("%s=%d", runenv.SeedVar, s.seed), patienceEnv(s.speed.Wall), s.paceEnv(),
		usageVar + "=" + filepath.Join(root, usageFile),
	}
	s.pace = newPace(filepath.Join(root, paceFile))
	return s, nil
}

// newTestSession is a session that runs tests: it empties the work folder of the results of former
// runs.
func newTestSession(ctx context.Context, out io.Writer) (*session, error) {
	s, err := newSession(ctx, out)
	if err != nil {
		return nil, err
	}
	old, err := filepath.Glob(workFolder + "/*.jsonl")
	for _, path := range append(old, runFile) {
		if rerr := os.Remove(path); !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	if err = errors.Join(err, s.findCompiler()); err != nil {
		s.close()
		return nil, err
	}
	s.board.printf("seed %d (%s=N plays another); this machine is %.2f times as slow as the reference at the start, and is measured all the time\n",
		s.seed, runenv.SeedVar, s.speed.Wall)
	return s, nil
}

// close ends what the session has started, and lets other runs into the checkout.
func (s *session) close() {
	s.pace.end()
	_ = s.lock.Close()
}

// lockFolder keeps a second run out of the folder as long as the returned file is open.
func lockFolder(folder string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(
			fmt.Errorf("another test run uses this checkout (%s is locked): wait for its end", file.Name()), file.Close())
	}
	return file, nil
}

// findCompiler notes whether the race detector can be used. Where nothing may be missing, it must.
func (s *session) findCompiler() error {
	if _, err := exec.LookPath(orDefault(os.Getenv("CC"), "gcc")); err == nil {
		return nil
	}
	if os.Getenv(realhost.RequireVar) == "1" {
		return errors.New("the race detector needs a C compiler: apt-get install gcc")
	}
	s.noRace = true
	s.board.printf("no C compiler: testing without the race detector (apt-get install gcc)\n")
	return nil
}

// seedOf is the seed that the environment names, or else the one of the tree's hash.
func seedOf(hash string) (uint64, error) {
	text := os.Getenv(runenv.SeedVar)
	if text == "" {
		return seedOfHash(hash)
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s=%q: write an unsigned integer", runenv.SeedVar, text)
	}
	return seed, nil
}

// runSuite runs go test and adds its results file to the session.
func (s *session) runSuite(ctx context.Context, o suite, servers []string) (cost, error) {
	runner, err := os.Executable()
	if err != nil {
		return cost{}, err
	}
	into := filepath.Join(workFolder, strings.ReplaceAll(o.name, " ", "-")+".jsonl")
	args := []string{
		s.tools["gotestsum"], "--format", "pkgname", "--format-hide-empty-pkg", "--jsonfile", into,
		"--hide-summary=skipped", "--", "-count=1", "-exec", "'" + runner + "' exec",
		"-p", orDefault(os.Getenv("TEST_PACKAGES_AT_ONCE"), "2"),
		"-parallel", orDefault(os.Getenv("TEST_PARALLEL"), orDefault(o.parallel, "4")),
		"-timeout", s.hangs().String(),
		"-ldflags=-w", // no debugger reads them, and a quarter of the linking is for the debugger
	}
	if o.race && !s.noRace {
		args = append(args, "-race")
	}
	if s.whole {
		args = append(args, "-vet=off") // make check does it
	}
	if s.short {
		args = append(args, "-short")
	}
	if o.run != "" {
		args = append(args, "-run", o.run)
	}
	args = append(args, o.packages...)
	s.board.mu.Lock()
	s.files = append(s.files, into)
	s.board.mu.Unlock()
	env := append([]string{stepVar + "=" + o.name, runenv.ProofVar + "=" + o.area}, servers...)
	if o.alone {
		env = append(env, patienceEnv(2*s.patience()))
	}
	s.board.counts(o.name, len(o.packages))
	used, err := s.childLines(ctx, o.name, args, env, func(line string) bool {
		if endsPackage(line) {
			s.board.counted(o.name)
		}
		return true
	})
	if exitCode(err) == 1 && ctx.Err() == nil {
		r := newResults()
		if rerr := r.readFile(into); rerr == nil && len(r.failures()) > 0 {
			err = errTestsFailed
		}
	}
	return used, err
}

// errTestsFailed ends a step whose tests failed. The results decide what that means for the run.
var errTestsFailed = errors.New("tests failed")

func orDefault(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// hangs is hangLimit on this machine.
func (s *session) hangs() time.Duration { return scaled(hangLimit, s.patience()).Round(time.Second) }

func scaled(d time.Duration, factor float64) time.Duration {
	return time.Duration(float64(d) * factor)
}

// child runs a program whose lines are printed behind the name of its step.
func (s *session) child(ctx context.Context, name string, args, env []string) (cost, error) {
	return s.childLines(ctx, name, args, env, nil)
}

// childLines is child, for a program of which only the lines are printed for which shows holds.
func (s *session) childLines(ctx context.Context, name string, args, env []string, shows func(string) bool) (cost, error) {
	out := &prefixed{b: s.board, prefix: name + " | ", shows: shows}
	cmd := command(ctx, args, append(s.env[:len(s.env):len(s.env)], env...), out, out)
	began := time.Now()
	err := runCommand(ctx, cmd)
	out.flush()
	used := costOf(cmd.ProcessState, time.Since(began))
	if err != nil && len(out.last) > 0 {
		err = fmt.Errorf("%w; its last lines:\n    %s", err, strings.Join(out.last, "\n    "))
	}
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return used, err
}

// goList runs go list and returns its lines.
func goList(ctx context.Context, root string, args ...string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	var wrong strings.Builder
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, wrong.String())
	}
	return strings.Fields(string(out)), nil
}

// folders are the product's packages, as folders relative to the checkout.
func folders(ctx context.Context, root string, patterns ...string) ([]string, error) {
	packages, err := goList(ctx, root, patterns...)
	if err != nil {
		return nil, err
	}
	for i, pkg := range packages {
		packages[i] = strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
	}
	return packages, nil
}
