package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/test/realhost"
)

const (
	areasFile  = "test/proof/areas.json"
	stampsFile = "test/proof/stamps.json"
	// areaAim is how long an area should take on the reference machine. An area that takes longer
	// is reported.
	areaAim = 20 * time.Minute
	// areaHangs is a detector of hangs.
	areaHangs = time.Hour
)

// area is one part of `make proof`.
type area struct {
	Name   string `json:"name"`
	Proves string `json:"proves"`
	// Packages are run by go test, those that match Run; or Command is run, with {seed} replaced.
	// Either way the packages and all that they import are what the area's stamp covers.
	Packages []string `json:"packages"`
	Run      string   `json:"run,omitempty"`
	Race     bool     `json:"race,omitempty"`
	Short    bool     `json:"short,omitempty"` // the tests' short form, as in make test
	Except   []string `json:"except,omitempty"`
	// Programs are packages that the tests build and run, Files are folders that they read: the
	// stamp covers them too.
	Programs []string `json:"programs,omitempty"`
	Files    []string `json:"files,omitempty"` // "docs/"
	Command  []string `json:"command,omitempty"`
}

// stamp says that an area succeeded on a tree.
type stamp struct {
	Tree       string  `json:"tree"` // hash of what the area covers
	Date       string  `json:"date"`
	Seed       uint64  `json:"seed"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	Passed     int     `json:"passed"` // tests; 0 for a command
	Skipped    int     `json:"skipped"`
}

func readAreas(root string) ([]area, error) {
	text, err := os.ReadFile(filepath.Join(root, areasFile))
	if err != nil {
		return nil, err
	}
	var list struct {
		Areas []area `json:"areas"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", areasFile, err)
	}
	return list.Areas, nil
}

func readStamps(root string) (map[string]stamp, error) {
	text, err := os.ReadFile(filepath.Join(root, stampsFile))
	if errors.Is(err, os.ErrNotExist) {
		return map[string]stamp{}, nil
	}
	if err != nil {
		return nil, err
	}
	stamps := map[string]stamp{}
	if err := json.Unmarshal(text, &stamps); err != nil {
		return nil, fmt.Errorf("%s: %w", stampsFile, err)
	}
	return stamps, nil
}

// proveAreas is `make proof`: all areas, or those named. An area whose stamp covers this tree is
// not run again, unless it is named and PROOF_AGAIN is set.
func proveAreas(ctx context.Context, names []string, stdout, stderr io.Writer) error {
	if err := ready(); err != nil {
		return err
	}
	s, err := newTestSession(ctx, stdout)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, ended := s.begin(ctx)
	defer ended()
	s.short = false
	areas, err := chosen(s.root, names)
	if err != nil {
		return err
	}
	if !s.prepare(ctx, "gotestsum", "sqlc", "oapi-codegen", "buf", "protoc-gen-go", "protoc-gen-connect-go", "temporal", "grpcurl") {
		return errors.New("what the tests need is not there")
	}
	if !s.run(ctx, "chaos program", "go", "build", "-o", chaosProgram, "./"+harness+"/cmd/chaos") {
		return errors.New("the chaos program does not build")
	}
	err = withServers(ctx, stderr, func(ctx context.Context, servers []string) error {
		var errs []error
		for _, a := range areas {
			errs = append(errs, s.prove(ctx, a, servers))
		}
		return errors.Join(errs...)
	})
	s.board.printf("\n%s\n", s.board.table(childrenCPU()))
	return err
}

// sizes are the variables that make a long form shorter or longer.
var sizes = []string{
	"SLIPWAY_ROTATIONS", "SLIPWAY_DRIFT_NODES", "SLIPWAY_DRIFT_DETECTORS", "SLIPWAY_FLOOD", "SLIPWAY_E2E_ROWS", "SLIPWAY_E2E_OUTAGE_SECONDS",
	"SLIPWAY_STRATA", "SLIPWAY_TENANCY_TURNS", "SLIPWAY_BILLING_STEPS", "SLIPWAY_BILLING_MUTANTS", "SLIPWAY_TEST_INSTANCES", "SLIPWAY_ETA_JOBS",
	"SLIPWAY_WEBHOOK_EVENTS", "SLIPWAY_PAYMENT_WALKS", "SLIPWAY_OPERATION_KILLS", "SLIPWAY_SCRUB_FAULTS",
}

// ready refuses an environment in which a stamp would say more than was proven, and makes a missing
// peer an error.
func ready() error {
	for _, name := range sizes {
		if os.Getenv(name) != "" {
			return fmt.Errorf("%s is set: a proof has its own sizes; unset it", name)
		}
	}
	return os.Setenv(realhost.RequireVar, "1")
}

func chosen(root string, names []string) ([]area, error) {
	all, err := readAreas(root)
	if err != nil || len(names) == 0 {
		return all, err
	}
	var areas []area
	for _, name := range names {
		i := slices.IndexFunc(all, func(a area) bool { return a.Name == name })
		if i < 0 {
			var known []string
			for _, a := range all {
				known = append(known, a.Name)
			}
			return nil, fmt.Errorf("there is no area %q; write one of: %s", name, strings.Join(known, ", "))
		}
		areas = append(areas, all[i])
	}
	return areas, nil
}

// prove runs one area, unless its stamp is current, and stamps it when it passes.
func (s *session) prove(ctx context.Context, a area, servers []string) error {
	stamps, err := readStamps(s.root)
	if err != nil {
		return err
	}
	hash, err := s.covered(ctx, a)
	if err != nil {
		return fmt.Errorf("area %s: %w", a.Name, err)
	}
	if old, ok := stamps[a.Name]; ok && old.Tree == hash && os.Getenv("PROOF_AGAIN") == "" {
		s.board.printf("\n== proof %s: proven on this tree on %s in %.0f s (PROOF_AGAIN=1 runs it again)\n", a.Name, old.Date, old.Seconds)
		return nil
	}
	limit := scaled(areaHangs, s.patience()).Round(time.Second)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("area %s had not ended after %s", a.Name, limit))
	defer cancel()
	began := time.Now()
	var result stamp
	ok := s.board.step(ctx, "proof "+a.Name, func(ctx context.Context) (cost, error) {
		used, passed, skipped, err := s.runArea(ctx, a, servers)
		result = stamp{CPUSeconds: math.Round(used.CPU.Seconds()), Passed: passed, Skipped: skipped}
		return used, err
	})
	if !ok {
		return fmt.Errorf("area %s failed", a.Name)
	}
	if took := time.Since(began); took > scaled(areaAim, s.patience()) {
		s.board.printf("area %s took %s; an area should take at most %s\n", a.Name, took.Round(time.Second), areaAim)
	}
	if after, err := s.covered(ctx, a); err != nil || after != hash {
		return errors.Join(err, fmt.Errorf("area %s passed, but its files changed while it ran: run it again", a.Name))
	}
	result.Tree, result.Seed = hash, s.seed
	result.Date, result.Seconds = time.Now().UTC().Format(time.DateOnly), math.Round(time.Since(began).Seconds())
	stamps[a.Name] = result
	text, err := json.MarshalIndent(stamps, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.root, stampsFile), append(text, '\n'), 0o644)
}

// runArea runs the command or the tests of an area. It returns how many tests passed and how many
// were skipped.
func (s *session) runArea(ctx context.Context, a area, servers []string) (used cost, passed, skipped int, err error) {
	if len(a.Command) > 0 {
		var args []string
		for _, arg := range a.Command {
			args = append(args, strings.ReplaceAll(arg, "{seed}", strconv.FormatUint(s.seed, 10)))
		}
		used, err = s.child(ctx, a.Name, args, servers)
		return used, 0, 0, err
	}
	packages, err := s.packagesOf(ctx, a)
	if err != nil {
		return cost{}, 0, 0, err
	}
	o := suite{name: "proof-" + a.Name, packages: packages, run: a.Run, race: a.Race}
	if !a.Short {
		o.area = a.Name
	}
	used, err = s.runSuite(ctx, o, servers)
	r := newResults()
	if rerr := r.readFile(filepath.Join(workFolder, "proof-"+a.Name+".jsonl")); rerr != nil {
		return used, 0, 0, errors.Join(err, rerr)
	}
	for _, key := range r.failures() {
		s.board.printf("FAILED %s\n%s", key, r.excerpt(key))
	}
	passed, _, skipped = r.counts()
	if err == nil && passed == 0 {
		err = errors.New("no test ran: the area's packages and run expression in " + areasFile + " match nothing")
	}
	return used, passed, skipped, err
}

func (s *session) packagesOf(ctx context.Context, a area) ([]string, error) {
	all, err := folders(ctx, s.root, a.Packages...)
	if err != nil {
		return nil, err
	}
	var packages []string
	for _, folder := range all {
		if !slices.Contains(a.Except, folder) {
			packages = append(packages, "./"+folder)
		}
	}
	return packages, nil
}

// covered is the hash of everything that an area depends on: its packages with all that they and
// their tests import, and its own line in the list of areas. An area without packages covers the
// whole tree.
func (s *session) covered(ctx context.Context, a area) (string, error) {
	t, err := readTree(ctx, s.root)
	if err != nil {
		return "", err
	}
	keep := func(string) bool { return true }
	if len(a.Packages) > 0 {
		packages, err := s.packagesOf(ctx, a)
		if err != nil {
			return "", err
		}
		packages = append(packages, a.Programs...)
		deps, err := folders(ctx, s.root, append([]string{"-deps", "-test", "-f", `{{if not .Standard}}{{.ImportPath}}{{end}}`}, packages...)...)
		if err != nil {
			return "", err
		}
		// go list names a test's variant of a package "path [path.test]", in two words.
		code := t.covered(deps)
		keep = func(name string) bool { return code(name) || below(name, a.Files) }
	}
	sum, err := t.hash(keep)
	if err != nil {
		return "", err
	}
	line, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	return hashOf(sum, string(line), runtime.Version()), nil
}
