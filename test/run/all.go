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
)

const (
	// aim is how long `make test` takes with warm caches. Chaos takes what the rest leaves of it.
	aim                = 17 * time.Minute
	minChaos, maxChaos = 60 * time.Second, 180 * time.Second
	demoLimit          = 5 * time.Minute
	// watchdog ends a run that CI would end without a word a quarter of an hour later.
	watchdog   = 75 * time.Minute
	knownCases = "test/chaos/testdata/known.txt"
	endToEnd   = "test/e2e"
	portal     = "test/portal"
	harness    = "test/chaos"
	demoStep   = "demo run, searched for secrets"

	chaosProgram = workFolder + "/chaos"
)

var errWatchdog = fmt.Errorf("the watchdog ended the run after %s; the table says which steps were running", watchdog)

// testAll is `make test`.
func testAll(ctx context.Context, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, watchdog, errWatchdog)
	defer cancel()
	s, err := newSession(ctx, stdout)
	if err != nil {
		return fmt.Errorf("%w\n0 passed, 1 failed, 0 skipped", err)
	}
	stepErr := s.everything(ctx, stderr)
	return s.finish(ctx, stepErr)
}

// everything runs the steps in order. An error means that later steps could not even begin.
func (s *session) everything(ctx context.Context, log io.Writer) error {
	narrowed := strings.Fields(os.Getenv("TEST_PACKAGES"))
	whole := len(narrowed) == 0 && !s.short
	s.whole = whole
	tools := []string{"gotestsum"}
	if whole {
		tools = append(tools, "golangci-lint", "workflowcheck", "grpcurl")
	}
	if !s.prepare(ctx, tools...) {
		return errors.New("what the tests need is not there")
	}
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
			s.chaos(ctx, servers)
		}
		return nil
	})
}

// prepare gets the system packages, the Temporal server, the tools and the programs.
func (s *session) prepare(ctx context.Context, tools ...string) bool {
	if !s.run(ctx, "system packages", "scripts/system-packages.sh") {
		return false
	}
	if !s.board.step(ctx, "tools and Temporal server", func(ctx context.Context) (cost, error) {
		out := &prefixed{b: s.board, prefix: "tools | "}
		before, began := childrenCPU(), time.Now()
		var err error
		for _, name := range append(tools, "devtemporal") {
			path, terr := ensureTool(ctx, name, out)
			s.tools[name], err = path, errors.Join(err, terr)
		}
		return cost{CPU: childrenCPU() - before, Wall: time.Since(began)}, err
	}) {
		return false
	}
	return s.run(ctx, "programs", "go", "build", "-o", "bin/", "./cmd/...") && s.realHost(ctx)
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
			s.suite(ctx, suite{name: "end-to-end tests", packages: []string{"./" + endToEnd}, timeout: 15 * time.Minute, parallel: "6"}, servers)
		}
		if whole {
			s.board.step(ctx, demoStep, s.demo)
		}
		if slices.Contains(all, portal) {
			s.suite(ctx, suite{name: "operator portal", packages: []string{"./" + portal}, timeout: 10 * time.Minute}, servers)
		}
		if slices.Contains(all, harness) {
			s.suite(ctx, suite{name: "chaos harness", packages: []string{"./" + harness}, race: !s.short, timeout: 10 * time.Minute}, servers)
		}
	})
	wg.Go(func() {
		s.suite(ctx, suite{name: "raced packages", packages: race, race: !s.short, timeout: 15 * time.Minute}, servers)
		s.suite(ctx, suite{name: "other packages", packages: plain, timeout: 15 * time.Minute}, servers)
		if whole {
			s.lint(ctx)
		}
	})
	wg.Wait()
}

// demo runs the demo once and searches what it left for the secrets of the run.
func (s *session) demo(ctx context.Context) (cost, error) {
	ctx, cancel := context.WithTimeout(ctx, scaled(demoLimit, s.speed))
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
// same seed. When another test failed in another way, the run fails whatever they do.
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
				race: !s.short && isRaced(folder), timeout: 10 * time.Minute, parallel: "1",
			}, servers)
		})
	}
}

// chaos is the elastic last step.
func (s *session) chaos(ctx context.Context, servers []string) {
	const name = "chaos"
	s.board.step(ctx, name, func(ctx context.Context) (cost, error) {
		built, err := s.child(ctx, name, []string{"go", "build", "-o", chaosProgram, "./" + harness + "/cmd/chaos"}, nil)
		if err != nil {
			return built, err
		}
		left := min(max(aim-time.Since(s.board.began), minChaos), maxChaos).Round(time.Second)
		used, err := s.child(ctx, name, []string{
			chaosProgram, "--for", left.String(), "--seed", fmt.Sprint(s.seed), "--known", knownCases, "--log", filepath.Join(workFolder, "chaos.log"),
		}, servers)
		return built.plus(used), err
	})
}

// lint runs the linters, and vet on the dev module when it has changed.
func (s *session) lint(ctx context.Context) {
	s.run(ctx, "lint", s.tools["golangci-lint"], "run", "./...")
	s.board.step(ctx, "workflowcheck", s.workflowcheck)
	s.board.step(ctx, "dev module", s.vetDevModule)
	s.board.step(ctx, "proto", s.checkProto)
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
