package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCount(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ events, want, err string }{
		"all pass": {
			`{"Action":"run","Package":"p","Test":"A"}
{"Action":"output","Package":"p","Test":"A","Output":"--- PASS: A"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"skip","Package":"p","Test":"B"}
{"Action":"pass","Package":"p"}`, "1 passed, 0 failed, 1 skipped\n", "",
		},
		"a failed test is named, its package not counted again": {
			`{"Action":"pass","Package":"p","Test":"A"}
{"Action":"fail","Package":"p","Test":"B"}
{"Action":"fail","Package":"p"}`, "FAILED p B\n1 passed, 1 failed, 0 skipped\n", "tests failed",
		},
		"a package that does not compile counts": {
			`{"ImportPath":"p","Action":"build-fail"}
{"Action":"pass","Package":"q","Test":"A"}
{"Action":"fail","Package":"p","FailedBuild":"p"}`, "FAILED p (the package itself: see above)\n1 passed, 1 failed, 0 skipped\n", "tests failed",
		},
		"a rerun has the last word": {
			`{"Action":"fail","Package":"p","Test":"A"}
{"Action":"pass","Package":"p","Test":"A"}`, "1 passed, 0 failed, 0 skipped\n", "",
		},
		"nothing ran": {`{"Action":"pass","Package":"p"}`, "0 passed, 0 failed, 0 skipped\n", "no test ran"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "results.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(tc.events), 0o600))
			var out bytes.Buffer
			err := run(t.Context(), []string{"count", path}, &out, &out)
			require.Equal(t, tc.want, out.String())
			if tc.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.err)
			}
		})
	}
}

func TestRunHandsOnServersAndStatus(t *testing.T) {
	t.Parallel()
	var out, log bytes.Buffer
	err := run(t.Context(), []string{"run", "--", "/bin/sh", "-c", `echo "$TEST_DATABASE_URL $SLIPWAY_TEMPORAL_ADDRESS"; exit 7`}, &out, &log)
	var ended *exec.ExitError
	require.ErrorAs(t, err, &ended)
	require.Equal(t, 7, ended.ExitCode())
	require.Regexp(t, `^postgres(ql)?://\S+ \S+:\d+\n$`, out.String())
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"run"}, {"run", "ls"}, {"run", "--"}, {"count"}, {"dance"}} {
		require.ErrorContains(t, run(t.Context(), args, nil, nil), "usage:")
	}
	require.ErrorContains(t, run(t.Context(), []string{"count", "/does/not/exist"}, nil, nil), "read the test results")
}
