package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSubjects_CoreNamesNone checks that the runner, projections and the actions of operators know
// the subjects of jobs through package intent/subject alone, so that a new kind of job touches none
// of them.
func TestSubjects_CoreNamesNone(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`\b(allocationdb|instancedb|machinesdb|NodeMove|AllocationMove|InstanceProgress|RunProgress|contract\.Kind(?:[A-NP-Z]\w*|On\w+))\b`)
	var files []string
	for _, pattern := range []string{"workflows/stage/*.go", "activities/projection/*.go", "api/rest/actions*.go"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		files = append(files, found...)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, named.FindAllString(string(text), -1), file)
	}
}
