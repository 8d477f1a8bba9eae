package pg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// oldestMajor is the oldest PostgreSQL that Slipway's schema runs on.
const oldestMajor = 15

// ErrNoBinaries is wrapped by FindBinaries's error when there is no usable PostgreSQL on this
// machine.
var ErrNoBinaries = errors.New("no PostgreSQL " + strconv.Itoa(oldestMajor) + " or later found: run `apt-get install postgresql` or `make pg`, " +
	"or set PGBIN to a folder with initdb and postgres in it, or DATABASE_URL to a running server")

// Binaries is one installed PostgreSQL.
type Binaries struct {
	Dir     string // holds initdb and postgres
	Version string // "PostgreSQL 15.18 Debian 15.18-0+deb12u1"
	Major   int
}

// FindBinaries looks in $PGBIN, the newest /usr/lib/postgresql/*/bin, $PATH, and node_modules (here
// and in every folder above), and returns the first installation that is new enough. A $PGBIN that
// is set and unusable is an error, never passed over.
func FindBinaries(ctx context.Context) (Binaries, error) {
	if dir := os.Getenv("PGBIN"); dir != "" {
		if !filepath.IsAbs(dir) {
			return Binaries{}, fmt.Errorf("PGBIN=%s must be an absolute path: each test runs in a folder of its own", dir)
		}
		bin, err := inspect(ctx, dir)
		if err != nil {
			return Binaries{}, fmt.Errorf("PGBIN=%s is no usable PostgreSQL: %w", dir, err)
		}
		return bin, nil
	}
	var passedOver error
	for _, dir := range candidates() {
		bin, err := inspect(ctx, dir)
		if err == nil {
			return bin, nil
		}
		passedOver = errors.Join(passedOver, fmt.Errorf("%s: %w", dir, err))
	}
	if passedOver != nil {
		return Binaries{}, fmt.Errorf("%w (passed over: %s)", ErrNoBinaries, strings.ReplaceAll(passedOver.Error(), "\n", "; "))
	}
	return Binaries{}, ErrNoBinaries
}

func candidates() []string {
	packaged, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is constant and well formed
	slices.SortFunc(packaged, func(a, b string) int { return majorOfDir(b) - majorOfDir(a) })
	found := packaged
	if path, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil && !slices.Contains(found, filepath.Dir(real)) {
			found = append(found, filepath.Dir(real))
		}
	}
	return append(found, npmCandidates()...)
}

func majorOfDir(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir))) // "15" of /usr/lib/postgresql/15/bin; anything else sorts last
	return n
}

// npmCandidates lists the packages of @embedded-postgres for this platform, as `make pg` or an npm
// project around us installed them, here and in the folders above.
func npmCandidates() []string {
	dir, err := os.Getwd()
	if err != nil {
		return nil
	}
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	var found []string
	for {
		for _, modules := range []string{filepath.Join(dir, "tools", "pg", "node_modules"), filepath.Join(dir, "node_modules")} {
			bin := filepath.Join(modules, "@embedded-postgres", runtime.GOOS+"-"+arch, "native", "bin")
			if isFile(filepath.Join(bin, "initdb")) {
				found = append(found, bin)
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return found
		}
		dir = parent
	}
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

func inspect(ctx context.Context, dir string) (Binaries, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Binaries{}, err
	}
	for _, name := range []string{"initdb", "postgres"} {
		if !isFile(filepath.Join(abs, name)) {
			return Binaries{}, fmt.Errorf("%s is missing there", name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(abs, "postgres"), "--version").CombinedOutput()
	if err != nil {
		return Binaries{}, fmt.Errorf("postgres --version: %w: %s", err, strings.TrimSpace(string(out)))
	}
	match := versionLine.FindSubmatch(out)
	if match == nil {
		return Binaries{}, fmt.Errorf("postgres --version says %q", strings.TrimSpace(string(out)))
	}
	major, err := strconv.Atoi(string(match[1]))
	if err != nil {
		return Binaries{}, err
	}
	if major < oldestMajor {
		return Binaries{}, fmt.Errorf("version %d is older than %d", major, oldestMajor)
	}
	version := strings.TrimPrefix(strings.TrimSpace(string(out)), "postgres ")
	return Binaries{Dir: abs, Version: strings.NewReplacer("(", "", ")", "").Replace(version), Major: major}, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
