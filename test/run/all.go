package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
)

const (
	// aim is how long the tests take with warm caches, from their first step on. Chaos takes what
	// the others leave of it.
	aim                = 17 * time.Minute
	minChaos, maxChaos = 60 * time.Second, 180 * time.Second
	// demoHangs is many times what the demo takes: a detector of hangs.
	demoHangs  = 20 * time.Minute
	knownCases = "test/chaos/testdata/known.txt"
	endToEnd   = "test/e2e"
	portal     = "test/portal"
	harness    = "test/chaos"

	endToEndStep = "end-to-end tests"
	demoStep     = "demo run, searched for secrets"
	portalStep   = "operator portal"
	harnessStep  = "chaos harness"
	racedStep    = "raced packages"
	otherStep    = "other packages"

	chaosProgram = workFolder + "/chaos"
)

// testAll is `make test`.
func testAll(ctx context.Context, stdout, stderr io.Writer) error {
	s, err := newTestSession(ctx, stdout)
	if err != nil {
		return fmt.Errorf("%w\n0 passed, 1 failed, 0 skipped", err)
	}
	defer s.close()
	ctx, ended := s.begin(ctx)
	stepErr := s.everything(ctx, stderr)
	stalled := context.Cause(ctx)
	ended()
	return s.finish(errors.Join(stepErr, stalled))
}

// everything runs the steps in order. An error means that later steps could not even begin.
func (s *session) everything(ctx context.Context, log io.Writer) error {
	narrowed := strings.Fields(os.Getenv("TEST_PACKAGES"))
	whole := len(narrowed) == 0 && !s.short
	s.whole = whole
	if !s.prepare(ctx, "gotestsum") {
		return errors.New("what the tests need is not there")
	}
	began := time.Now()
	return withServers(ctx, log, func(ctx context.Context, servers []string) error {
		if len(narrowed) == 0 {
			narrowed = []string{"./..."}
		}
		all, err := folders(ctx, s.root, narrowed...)
		if err != nil {
			return err
		}
		s.lanes(ctx, all, servers, whole)
		s.runLateAgain(ctx, servers)
		if whole {
			s.chaos(ctx, servers, aim-time.Since(began))
		}
		return nil
	})
}

// prepare gets the system packages, the Temporal server, the tools and the programs.
func (s *session) prepare(ctx context.Context, tools ...string) bool {
	return s.run(ctx, "system packages", "scripts/system-packages.sh") &&
		s.ensureTools(ctx, "tools and Temporal server", append(tools, "devtemporal")...) &&
		s.build(ctx, "programs", "-o", "bin/", "./cmd/...") && s.realHost(ctx)
}

// ensureTools is a step that builds what the user's cache does not have.
func (s *session) ensureTools(ctx context.Context, step string, names ...string) bool {
	return s.board.step(ctx, step, func(ctx context.Context) (cost, error) {
		out := &prefixed{b: s.board, prefix: "tools | "}
		before, began := childrenCPU(), time.Now()
		var err error
		for _, name := range names {
			path, terr := ensureTool(ctx, name, out)
			s.tools[name], err = path, errors.Join(err, terr)
		}
		return cost{CPU: childrenCPU() - before, Wall: time.Since(began)}, err
	})
}

// run is a step that is one program.
func (s *session) run(ctx context.Context, name string, args ...string) bool {
	return s.board.step(ctx, name, func(ctx context.Context) (cost, error) { return s.child(ctx, name, args, nil) })
}

// lanes runs the end-to-end tests in a lane of their own, because they mostly wait, and the others
// beside them.
func (s *session) lanes(ctx context.Context, all, servers []string, whole bool) {
	race, plain := s.split(all)
	var wg sync.WaitGroup
	wg.Go(func() {
		if slices.Contains(all, endToEnd) {
			s.suite(ctx, suite{name: endToEndStep, packages: []string{"./" + endToEnd}, parallel: "6"}, servers)
		}
		if whole {
			s.board.step(ctx, demoStep, s.demo)
		}
		if slices.Contains(all, portal) {
			s.suite(ctx, suite{name: portalStep, packages: []string{"./" + portal}}, servers)
		}
		if slices.Contains(all, harness) {
			s.suite(ctx, suite{name: harnessStep, packages: []string{"./" + harness}}, servers)
		}
	})
	wg.Go(func() {
		s.suite(ctx, suite{name: racedStep, packages: race, race: !s.short}, servers)
		s.suite(ctx, suite{name: otherStep, packages: plain}, servers)
	})
	wg.Wait()
}

// demo runs the demo once and searches what it left for the secrets of the run.
func (s *session) demo(ctx context.Context) (cost, error) {
	ctx, cancel := context.WithTimeout(ctx, scaled(demoHangs, s.patience()))
	defer cancel()
	return s.child(ctx, "demo", []string{"bin/slipway-dev", "demo", "--search-secrets"}, nil)
}

// split sorts folders by whether they are raced; what has a lane of its own is left out.
func (s *session) split(all []string) (race, plain []string) {
	for _, folder := range all {
		switch {
		case folder == endToEnd || folder == portal || folder == harness:
		case isRaced(folder):
			race = append(race, "./"+folder)
		default:
			plain = append(plain, "./"+folder)
		}
	}
	return race, plain
}

func (s *session) suite(ctx context.Context, o suite, servers []string) {
	if len(o.packages) > 0 {
		s.board.step(ctx, o.name, func(ctx context.Context) (cost, error) { return s.runSuite(ctx, o, servers) })
	}
}

// runLateAgain runs every test whose only failures are missed deadlines once more, alone, with the
// same seed and more patience. When another test failed in another way, the run fails whatever they
// do.
func (s *session) runLateAgain(ctx context.Context, servers []string) {
	r, err := s.results()
	if err != nil {
		return // finish says so
	}
	again, red := r.late()
	if red {
		return
	}
	s.again = again
	for i, top := range again {
		name := fmt.Sprintf("again, alone: %s", top)
		s.board.step(ctx, name, func(ctx context.Context) (cost, error) {
			folder := strings.TrimPrefix(strings.TrimPrefix(top.Package, module), "/")
			return s.runSuite(ctx, suite{
				name: fmt.Sprintf("again %d", i+1), packages: []string{"./" + folder}, run: "^" + top.Test + "$",
				race: !s.short && isRaced(folder), alone: true, parallel: "1",
			}, servers)
		})
	}
}

// chaos is the elastic last step. It plays what fits into the time that is left.
func (s *session) chaos(ctx context.Context, servers []string, left time.Duration) {
	const name = "chaos"
	s.board.step(ctx, name, func(ctx context.Context) (cost, error) {
		built, err := s.child(ctx, name, []string{"go", "build", "-o", chaosProgram, "./" + harness + "/cmd/chaos"}, nil)
		if err != nil {
			return built, err
		}
		args := []string{
			chaosProgram, "--for", min(max(left, minChaos), maxChaos).Round(time.Second).String(), "--seed", fmt.Sprint(s.seed),
			"--known", knownCases, "--log", filepath.Join(workFolder, "chaos.log"),
		}
		if folder, err := toolcache.Folder("chaos"); err == nil { // without a cache only the seed decides the order
			args = append(args, "--left", filepath.Join(folder, "left"))
		}
		used, err := s.child(ctx, name, args, servers)
		return built.plus(used), err
	})
}

// results reads all results files of the session. It returns what could be read, and an error for a
// file that could not.
func (s *session) results() (*results, error) {
	r := newResults()
	var errs []error
	for _, path := range s.files {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue // its step has failed and says why
		}
		errs = append(errs, r.readFile(path))
	}
	return r, errors.Join(errs...)
}

// exitCode is what a command ended with, -1 where it did not end by itself.
func exitCode(err error) int {
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return ended.ExitCode()
	}
	return -1
}
