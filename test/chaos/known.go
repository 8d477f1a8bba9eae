package chaos

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// KnownCase is a line of the committed list: a case in which an exploring run found something that
// did not recur when the case was played again alone. Later runs play it first.
type KnownCase struct {
	Case    Case
	Comment string // when, with which seed, and what was found
}

// ReadKnown reads the list of known cases: one case on each line, followed by # and a comment.
// Empty lines, and lines that begin with #, are ignored. It returns an error that names the file
// and the line when a line is not such a case.
func ReadKnown(path string, sets []*ScenarioSet) ([]KnownCase, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the known cases: %w", err)
	}
	var out []KnownCase
	for i, line := range strings.Split(string(text), "\n") {
		entry, comment, _ := strings.Cut(line, "#")
		entry, comment = strings.TrimSpace(entry), strings.TrimSpace(comment)
		if entry == "" {
			continue
		}
		c, err := ParseCase(entry, sets)
		if err == nil && comment == "" {
			err = errors.New("the case has no comment; write CASE # DATE seed N: VERDICT")
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		out = append(out, KnownCase{c, comment})
	}
	return out, nil
}

// KnownLine is the line of the list for a case with findings.
func KnownLine(r Result, seed uint64, now time.Time) string {
	return fmt.Sprintf("%s # %s seed %d: %s", r.Case, now.UTC().Format(time.DateOnly), seed, r.Findings[0].Verdict)
}

// AppendKnown adds lines to the list in a file. It creates the file when there is none.
func AppendKnown(path string, lines []string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // a list in the repository
	if err != nil {
		return fmt.Errorf("keep the findings: %w", err)
	}
	_, err = f.WriteString(strings.Join(lines, "\n") + "\n")
	return errors.Join(err, f.Close())
}
