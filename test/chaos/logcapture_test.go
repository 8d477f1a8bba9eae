package chaos

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLogCapture_KeepsWarningsOfJobs(t *testing.T) {
	t.Parallel()
	const one, other = "job_01a1fe84-7a52-7c00-8000-000000000001", "job_01a1fe84-7a52-7c00-8000-000000000002"
	var all bytes.Buffer
	d := &logCapture{to: &all}
	for i := range 20 {
		fmt.Fprintf(d, "level=INFO msg=fine WorkflowID=x/%s\nlevel=WARN msg=", one)
		fmt.Fprintf(d, "%d WorkflowID=x/%s\n", i, one) // the rest of the line comes later
	}
	fmt.Fprintf(d, "level=ERROR msg=planned error=\"chaos: the activity crashed\" WorkflowID=x/%s\n", other)
	require.Len(t, d.of(one), linesOfJob)
	require.Equal(t, "level=WARN msg=19 WorkflowID=x/"+one, d.of(one)[linesOfJob-1])
	require.Empty(t, d.of(other))
	require.Equal(t, 41, bytes.Count(all.Bytes(), []byte("\n")), "all of it is passed on")
}
