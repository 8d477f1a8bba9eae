package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	areasFile  = "test/proof/areas.json"
	stampsFile = "test/proof/stamps.json"
	// areaLimit is how long an area may take on the reference machine.
	areaLimit = 20 * time.Minute
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
	Command  []string `json:"command,omitempty"`
}

// stamp says that an area passed on a tree.
type stamp struct {
	Tree       string  `json:"tree"` // hash of what the area covers
	Date       string  `json:"date"`
	Seed       uint64  `json:"seed"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	Passed     int     `json:"passed"` // tests; 0 for a command
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
	s, err := newSession(ctx, stdout)
	if err != nil {
		return err
	}
	areas, err := chosen(s.root, names)
	if err != nil {
		return err
	}
	if !s.prepare(ctx, "gotestsum", "sqlc", "temporal") {
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
	ctx, cancel := context.WithTimeoutCause(ctx, scaled(areaLimit, s.speed),
		fmt.Errorf("area %s took more than %s, the limit of an area on this machine", a.Name, scaled(areaLimit, s.speed)))
	defer cancel()
	began, passed := time.Now(), 0
	var used cost
	ok := s.board.step(ctx, "proof "+a.Name, func(ctx context.Context) (cost, error) {
		var err error
		used, passed, err = s.runArea(ctx, a, servers)
		return used, err
	})
	if !ok {
		return fmt.Errorf("area %s failed", a.Name)
	}
	stamps[a.Name] = stamp{
		Tree: hash, Date: time.Now().UTC().Format(time.DateOnly), Seed: s.seed, Seconds: float64(int(time.Since(began).Seconds())),
		CPUSeconds: float64(int(used.CPU.Seconds())), Passed: passed,
	}
	text, err := json.MarshalIndent(stamps, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.root, stampsFile), append(text, '\n'), 0o644)
}

// runArea runs the command or the tests of an area. It returns how many tests passed.
func (s *session) runArea(ctx context.Context, a area, servers []string) (cost, int, error) {
	if len(a.Command) > 0 {
		var args []string
		for _, arg := range a.Command {
			args = append(args, strings.ReplaceAll(arg, "{seed}", strconv.FormatUint(s.seed, 10)))
		}
		used, err := s.child(ctx, a.Name, args, servers)
		return used, 0, err
	}
	packages, err := s.packagesOf(ctx, a)
	if err != nil {
		return cost{}, 0, err
	}
	o := suite{name: "proof-" + a.Name, packages: packages, run: a.Run, race: a.Race, timeout: areaLimit}
	if !a.Short {
		o.area = a.Name
	}
	used, err := s.runSuite(ctx, o, servers)
	r := newResults()
	if rerr := r.readFile(filepath.Join(workFolder, "proof-"+a.Name+".jsonl")); rerr != nil {
		return used, 0, errors.Join(err, rerr)
	}
	for _, key := range r.failures() {
		s.board.printf("FAILED %s\n", key)
	}
	passed, _, _ := r.counts()
	if err == nil && passed == 0 {
		err = errors.New("no test ran: the area's packages and run expression in " + areasFile + " match nothing")
	}
	return used, passed, err
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
		deps, err := folders(ctx, s.root, append([]string{"-deps", "-test", "-f", `{{if not .Standard}}{{.ImportPath}}{{end}}`}, packages...)...)
		if err != nil {
			return "", err
		}
		// go list names a test's variant of a package "path [path.test]", in two words.
		keep = t.covered(deps)
	}
	sum, err := t.hash(keep)
	if err != nil {
		return "", err
	}
	line, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	return hashOf(sum, string(line)), nil
}
