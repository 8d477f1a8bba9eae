package arch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// countWords counts the private words and references of a text, and names up to ten of the words
// with what to write instead.
func countWords(words map[string]string, path, text string) (count int, found []string) {
	text = keptName.ReplaceAllStringFunc(text, func(name string) string { return strings.Repeat("_", len(name)) })
	for start, end := nextWord(text, 0); start >= 0; start, end = nextWord(text, end) {
		instead, private := words[strings.ToLower(text[start:end])]
		if !private {
			continue
		}
		if count++; count <= 10 {
			found = append(found, fmt.Sprintf("%s:%d: %q; write: %s", path, 1+strings.Count(text[:start], "\n"), text[start:end], instead))
		}
	}
	for _, reference := range privateReferences() {
		if n := strings.Count(text, reference); n > 0 {
			count += n
			found = append(found, fmt.Sprintf("%s: %q; write: the fact itself, or a page in docs/", path, reference))
		}
	}
	return count, found
}

// wordFolder returns the folder by which words are counted: the first two elements of a Go file's
// folder, the first of any other.
func wordFolder(path string) string {
	elements := strings.Split(filepath.ToSlash(filepath.Dir(path)), "/")
	if len(elements) > 2 {
		elements = elements[:2]
	}
	return strings.Join(elements, "/")
}

// The count of private words in a folder may only fall. When it has fallen, `go test ./test/arch
// -run TestWords -update` writes the new count, which no later change may exceed.
func TestWords_OnlyFall(t *testing.T) {
	t.Parallel()
	words := privateWords()
	counts, samples := map[string]int{}, map[string][]string{}
	for path, text := range sources(t, ".go", ".md", ".sql", ".yaml") {
		path, err := filepath.Rel(root, path)
		require.NoError(t, err)
		if generated.MatchString(text) || strings.HasPrefix(path, filepath.Join("test", "arch", "words")) {
			continue
		}
		if path == filepath.Join("docs", "glossary.md") { // its third column lists the words not to use
			continue
		}
		if n, found := countWords(words, path, text); n > 0 {
			counts[wordFolder(path)] += n
			samples[wordFolder(path)] = append(samples[wordFolder(path)], found...)
		}
	}
	const list = "words.json"
	if *update {
		text, err := json.MarshalIndent(counts, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(list, append(text, '\n'), 0o644))
	}
	text, err := os.ReadFile(list)
	require.NoError(t, err)
	allowed := map[string]int{}
	require.NoError(t, json.Unmarshal(text, &allowed))
	for folder, n := range counts {
		if n > allowed[folder] {
			t.Errorf("%s has %d private words, %d are allowed (test/arch/words.json). Some of them:\n%s", folder, n, allowed[folder], strings.Join(samples[folder], "\n"))
		}
	}
	for folder, most := range allowed {
		if counts[folder] < most {
			t.Errorf("%s has only %d private words now; run `go test ./test/arch -run TestWords -update`, so that the number stays (%d)", folder, counts[folder], most)
		}
	}
}

func TestWords_AreCounted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"A person mends it anew.":               3,
		"seed 001 section 4.2, 04-jobs":         2,
		"lookAtLeaving(dark_mode)":              2,
		"heartbeat, personal, darkness, repair": 0,
		"NeedsHuman needs_human --needs-human":  0,
		"a human that needs it":                 1,
	} {
		n, found := countWords(privateWords(), "x.go", text)
		require.Equal(t, want, n, text)
		require.Len(t, found, want)
	}
}
