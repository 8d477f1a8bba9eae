package portal_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/docs"
)

// sourceFiles reads the source of the portal by its path below web.
func sourceFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	add := func(path string) error {
		data, err := os.ReadFile(filepath.Join("web", filepath.FromSlash(path)))
		files[path] = data
		return err
	}
	for _, path := range []string{"package-lock.json", "tsconfig.json", "build.mjs"} {
		require.NoError(t, add(path))
	}
	require.NoError(t, filepath.WalkDir("web/src", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return add(strings.TrimPrefix(filepath.ToSlash(path), "web/"))
	}))
	return files
}

// sourceDigest is that of build.mjs: path, length and content of each file, in the order of the
// paths.
func sourceDigest(files map[string][]byte) string {
	paths := make([]string, 0, len(files))
	for path := range files {
		paths = append(paths, path)
	}
	sort.Strings(paths)
	hash := sha256.New()
	for _, path := range paths {
		_, _ = fmt.Fprintf(hash, "%s\x00%d\x00", path, len(files[path])) // a hash never fails
		_, _ = hash.Write(files[path])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func TestDist_IsBuiltFromTheSource(t *testing.T) {
	t.Parallel()
	recorded, err := os.ReadFile("dist/SOURCE")
	require.NoError(t, err)
	require.Equal(t, sourceDigest(sourceFiles(t)), strings.TrimSpace(string(recorded)),
		"api/portal/web has changed since api/portal/dist was built: run make portal and commit both")
}

func TestDist_NamesCarryTheirHash(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("dist/index.html")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(hashedName.FindAll(index, -1)), 2, "index.html names the first script and the icon")
	require.False(t, bytes.Contains(index, []byte("<style")) || regexp.MustCompile(`<script[^>]*>[^<]`).Match(index), "the policy forbids inline scripts and styles")
	files, err := os.ReadDir("dist")
	require.NoError(t, err)
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join("dist", file.Name()))
		require.NoError(t, err)
		for _, used := range hashedName.FindAll(data, -1) {
			require.FileExists(t, filepath.Join("dist", string(used)), "%s loads it", file.Name())
		}
		name := hashedName.FindStringSubmatch(file.Name())
		if name == nil {
			require.Contains(t, []string{"index.html", "LICENSES", "SOURCE"}, file.Name())
			continue
		}
		sum := sha256.Sum256(data)
		require.Equal(t, hex.EncodeToString(sum[:8]), name[1], "%s was changed after it was built: run make portal", file.Name())
	}
}

// hashedName matches the name of a file whose content never changes.
var hashedName = regexp.MustCompile(`[a-z]+-([0-9a-f]{16})\.[a-z]+`)

// importedAtOnce and importedLater match the parts that a script of the build names.
var (
	importedAtOnce = regexp.MustCompile(`(?:from|import)\s*"\./([^"]+)"`)
	importedLater  = regexp.MustCompile(`import\("\./([^"]+)"\)`)
)

// builtFiles returns the files of the build whose names match a pattern.
func builtFiles(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("dist", pattern))
	require.NoError(t, err)
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	return found
}

// follow reads a script of the build and the scripts that it names in one of the ways. It returns
// their content by name.
func follow(t *testing.T, entry string, ways ...*regexp.Regexp) map[string]string {
	t.Helper()
	read := map[string]string{}
	for open := []string{entry}; len(open) > 0; open = open[1:] {
		if _, done := read[open[0]]; done {
			continue
		}
		data, err := os.ReadFile(filepath.Join("dist", open[0]))
		require.NoError(t, err)
		read[open[0]] = string(data)
		for _, way := range ways {
			for _, named := range way.FindAllStringSubmatch(string(data), -1) {
				open = append(open, named[1])
			}
		}
	}
	return read
}

// applications are the two front ends, by the beginning of the names of their files: the first view
// of each has a budget in bytes, as they are sent.
var applications = map[string]struct {
	budget int
	files  []string
}{
	"app": {budget: 65_000, files: []string{"live-*.js"}},
	"my":  {budget: 200_000},
}

// TestDist_FirstViewIsSmall counts what a browser loads before it shows the first page, as it is
// sent.
func TestDist_FirstViewIsSmall(t *testing.T) {
	t.Parallel()
	for name, application := range applications {
		entry := builtFiles(t, name+"-*.js")
		require.Len(t, entry, 1)
		atOnce := follow(t, entry[0], importedAtOnce)
		first := []string{"index.html"}
		for _, pattern := range append(application.files, "start-*.js", "icon-*.svg", name+"-*.css") {
			first = append(first, builtFiles(t, pattern)...)
		}
		start, err := os.ReadFile(filepath.Join("dist", builtFiles(t, "start-*.js")[0]))
		require.NoError(t, err)
		for part := range atOnce {
			first = append(first, part)
			require.Contains(t, string(start), part, "the first script preloads what %s imports at once", entry[0])
		}
		total := 0
		for _, file := range first {
			data, err := os.ReadFile(filepath.Join("dist", file))
			require.NoError(t, err)
			total += len(gzipped(t, data))
		}
		t.Logf("%s: %d bytes", name, total)
		require.Less(t, total, application.budget, "load pages that are rarely used later")
		require.Greater(t, len(follow(t, entry[0], importedAtOnce, importedLater)), len(atOnce), "some pages of %s are loaded later", name)
	}
}

// TestDist_CustomersLoadNothingOfOperators follows each script that the customers' pages can load.
func TestDist_CustomersLoadNothingOfOperators(t *testing.T) {
	t.Parallel()
	operators := follow(t, builtFiles(t, "app-*.js")[0], importedAtOnce, importedLater)
	customers := follow(t, builtFiles(t, "my-*.js")[0], importedAtOnce, importedLater)
	names := regexp.MustCompile(`/api/v1/admin|slipway\.v1\.|Onboard a node|Decommission|Quarantine|Inventory`)
	var all strings.Builder
	for _, script := range operators {
		all.WriteString(script)
	}
	require.Regexp(t, names, all.String(), "the operators' scripts are not read")
	for file, script := range customers {
		require.NotContains(t, operators, file, "both applications load a part")
		require.NotRegexp(t, names, script, "%s names what is the operators'", file)
	}
	require.Greater(t, len(customers), 1)
}

// TestSource_LinksToPagesOfDocs fails when a page or a runbook was added or removed and the
// portal's documentation page does not say so.
func TestSource_LinksToPagesOfDocs(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("web/src/text.ts")
	require.NoError(t, err)
	_, all, found := strings.Cut(string(source), "\n  docs: {")
	require.True(t, found)
	guides, runbooks, found := strings.Cut(all, "runbookPages: [")
	require.True(t, found)
	runbooks, _, _ = strings.Cut(runbooks, "]")
	_, guides, found = strings.Cut(guides, "pages: {")
	require.True(t, found)
	named := regexp.MustCompile(`(\w+): "`).FindAllStringSubmatch(guides, -1)
	require.NotEmpty(t, named)
	for _, guide := range named {
		_, err := docs.Page(guide[1])
		require.NoError(t, err, "text.ts names the page %s, which docs does not have", guide[1])
	}
	var linked, there []string
	for _, name := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(runbooks, -1) {
		linked = append(linked, name[1])
	}
	files, err := filepath.Glob("../../docs/runbooks/*.md")
	require.NoError(t, err)
	for _, file := range files {
		there = append(there, strings.TrimSuffix(filepath.Base(file), ".md"))
	}
	require.ElementsMatch(t, there, linked, "list each runbook in runbookPages of web/src/text.ts")
}

// TestSource_MakesNoMarkup holds the two rules by which a text from a BMC or a node cannot become
// markup or a script in an operator's browser.
func TestSource_MakesNoMarkup(t *testing.T) {
	t.Parallel()
	forbidden := map[string]*regexp.Regexp{
		"write texts as children of an element":           regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|srcdoc|DOMParser`),
		"evaluate nothing":                                regexp.MustCompile(`\beval\(|new Function\(|javascript:`),
		"give style an object":                            regexp.MustCompile(`style="|style=\{["'` + "`" + `]|setAttribute\(["']style`),
		"pass an href through safeHref, hrefOf, oidcHref": regexp.MustCompile(`href=\{|\.href = |window\.open|location\.(?:assign|replace)\(|location = `),
	}
	// Outside calls safeHref; a file of rows is saved by its download attribute and never opened.
	allowed := regexp.MustCompile(`<Outside href=\{|href=\{(?:hrefOf\(|projectHref\(|safeHref\(|oidcHref\(|safe\})|\.href = URL\.createObjectURL\(new Blob\(\[rows\], \{ type: "text/csv" \}\)\)`)
	for path, data := range sourceFiles(t) {
		if !strings.HasPrefix(path, "src/") || strings.HasSuffix(path, ".d.ts") || strings.HasSuffix(path, ".css") {
			continue
		}
		for i, line := range strings.Split(string(data), "\n") {
			for rule, pattern := range forbidden {
				if pattern.MatchString(allowed.ReplaceAllString(line, "")) {
					t.Errorf("%s:%d: %s: %s", path, i+1, rule, strings.TrimSpace(line))
				}
			}
		}
	}
}

// TestSource_CallsOperationsOfTheAPI fails when an operation that the portal calls was removed or
// renamed; the types alone would say so only where Node is installed.
func TestSource_CallsOperationsOfTheAPI(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/api/openapi.yaml")
	require.NoError(t, err)
	methods := map[string]map[string]bool{}
	var path string
	for _, line := range strings.Split(string(document), "\n") {
		if strings.HasPrefix(line, "  /") {
			path = strings.TrimSuffix(strings.TrimSpace(line), ":")
			methods[path] = map[string]bool{}
		} else if m := regexp.MustCompile(`^    (get|put|post|patch|delete):$`).FindStringSubmatch(line); m != nil && path != "" {
			methods[path][strings.ToUpper(m[1])] = true
		}
	}
	calls := 0
	for file, data := range sourceFiles(t) {
		for _, m := range regexp.MustCompile(`client\.(GET|PUT|POST|PATCH|DELETE)\(\s*"([^"]+)"`).FindAllSubmatch(data, -1) {
			calls++
			require.True(t, methods[string(m[2])][string(m[1])], "%s calls %s %s, which the API does not have", file, m[1], m[2])
		}
	}
	require.NotZero(t, calls)
}
