package arch

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle"
)

//go:generate go test . -run ^TestTheSettingsPageIsCurrent$ -update

var update = flag.Bool("update", false, "write the generated page")

// An operator who sees a failure class must find its page, and the page must say what lifecycle
// does with the class.
func TestEveryFailureClassHasItsRunbook(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(root, "docs", "runbooks", "*.md"))
	require.NoError(t, err)
	var known []string
	for _, f := range lifecycle.Failures() {
		path := filepath.Join(root, filepath.FromSlash(f.Runbook()))
		known = append(known, path)
		text, err := os.ReadFile(path)
		require.NoError(t, err, "failure class %s has no page", f.Class)
		page := string(text)
		require.True(t, strings.HasPrefix(strings.Join(strings.Fields(page), " "), "# "+string(f.Class)+" "+facts(f)+" "), "%s must begin with its name and: %s", path, facts(f))
		require.Equal(t, []string{"What it means", "How to see it", "What to do", "When to escalate"}, headings(page), path)
		lines := strings.Count(page, "\n")
		require.True(t, lines >= 10 && lines <= 38, "%s has %d lines of 100 columns; a page that is read in a hurry has 10 to 38", path, lines)
	}
	slices.Sort(pages)
	slices.Sort(known)
	require.Equal(t, known, pages, "each page is a class")
}

// facts is the line of a runbook that lifecycle decides.
func facts(f lifecycle.FailureInfo) string {
	tries := "1 try"
	if f.AutoAttempts > 1 {
		tries = fmt.Sprintf("%d tries", f.AutoAttempts)
	}
	line := fmt.Sprintf("Parks in `%s` after %s. First action to offer: `%s`.", f.ParkStatus(), tries, f.Recommended)
	if f.NodeUnsafe {
		line += " The node is quarantined."
	}
	return line
}

func headings(page string) []string {
	var found []string
	for _, match := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(page, -1) {
		found = append(found, match[1])
	}
	return found
}

// The table of settings comes from internal/config, so that it cannot say something else than the
// program.
func TestTheSettingsPageIsCurrent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(root, "docs", "settings.md")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(settingsPage()), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, settingsPage(), string(got), "%s is stale: run make generate", path)
}

func settingsPage() string {
	flags := pflag.NewFlagSet("slipwayd", pflag.ContinueOnError)
	config.Flags(flags)
	var b strings.Builder
	b.WriteString("# Settings of slipwayd\n\n" +
		"For operators who configure slipwayd: every setting with its default. Generated from internal/config. Do not edit; `make generate` writes it.\n\n" +
		"Each setting has one name in three spellings: `--api-public-url` as a flag, `SLIPWAY_API_PUBLIC_URL` in the environment, and `public_url` under `api:` in the " +
		"YAML file that `--config` names. Flags win over the environment, the environment over the file.\n\n" +
		"| flag | variable | default | what it is |\n|---|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		usage, variable, _ := strings.Cut(f.Usage, " [")
		value := f.DefValue
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s |\n", f.Name, strings.TrimSuffix(variable, "]"), value, strings.ReplaceAll(usage, "|", "\\|"))
	})
	return b.String()
}

var (
	link = regexp.MustCompile(`\]\(([^)#\s]+)?(#[^)\s]+)?\)`)
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
)

// A page that was renamed must not leave readers at a dead end.
func TestLinksBetweenPagesLead(t *testing.T) {
	t.Parallel()
	seen := 0
	for path, text := range sources(t, ".md") {
		for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			seen++
			target := path
			if match[1] != "" {
				target = filepath.Join(filepath.Dir(path), match[1])
			}
			content, err := os.ReadFile(target)
			if info, serr := os.Stat(target); serr == nil && info.IsDir() {
				continue
			}
			if err != nil {
				t.Errorf("%s links to %s, which is not there", path, match[1])
				continue
			}
			if match[2] != "" && !slices.Contains(anchors(string(content)), match[2]) {
				t.Errorf("%s links to %s%s; there is no such heading", path, match[1], match[2])
			}
		}
	}
	require.Greater(t, seen, 10, "the walk saw the links")
}

// anchors are the names that headings get on a rendered page.
func anchors(page string) []string {
	var found []string
	for _, match := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(match[1]), "")
		found = append(found, "#"+strings.ReplaceAll(name, " ", "-"))
	}
	return found
}

// A metric that an operator is told to watch must be one that a program serves, and a role of the database one that it makes.
func TestTheMetricsToWatchExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "run", "operate.md"))
	require.NoError(t, err)
	named := regexp.MustCompile("`(slipway_[a-z_]+)`").FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(named), 4)
	var source strings.Builder
	for _, folder := range []string{"api", "assembly", "db", "internal", "loops"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			source.Write(text)
			return err
		})
		require.NoError(t, err)
	}
	for _, match := range named {
		require.Contains(t, source.String(), `"`+match[1]+`"`, "docs/run/operate.md names it")
	}
}

// A variable or a make target that a page names must be one that something reads or that make has.
func TestPages_NameExistingVariablesAndTargets(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	var read strings.Builder
	read.WriteString(settingsPage())
	read.Write(makefile)
	for path, text := range sources(t, ".go", ".sh", ".yaml", ".yml") {
		if !strings.HasPrefix(path, filepath.Join(root, "docs")) {
			read.WriteString(text)
		}
	}
	variable, target := regexp.MustCompile(`\bSLIPWAY_[A-Z_]*[A-Z]\b`), regexp.MustCompile("(?m)(?:`|^)make ([a-z][a-z-]*)")
	seen := map[string]bool{}
	for path, text := range sources(t, ".md") {
		for _, name := range variable.FindAllString(text, -1) {
			if seen[name] = true; !strings.Contains(read.String(), name) {
				t.Errorf("%s names the variable %s, which nothing reads", path, name)
			}
		}
		for _, match := range target.FindAllStringSubmatch(strings.Join(code.FindAllString(text, -1), "\n"), -1) {
			if seen[match[1]] = true; !regexp.MustCompile(`(?m)^` + match[1] + `:`).Match(makefile) {
				t.Errorf("%s names `make %s`, which the Makefile does not have", path, match[1])
			}
		}
	}
	require.Greater(t, len(seen), 50, "the search saw the pages")
}
