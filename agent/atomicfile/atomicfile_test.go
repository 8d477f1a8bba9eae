package atomicfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReplace_LeavesNoOtherFile(t *testing.T) {
	t.Parallel()
	p := filepath.Join(t.TempDir(), "keys.json")
	for _, c := range []struct {
		content string
		mode    fs.FileMode
	}{{"a first file, which is long", 0o600}, {"short", 0o644}} {
		require.NoError(t, Replace(p, []byte(c.content), c.mode))
		raw, err := os.ReadFile(p)
		require.NoError(t, err)
		require.Equal(t, c.content, string(raw))
		require.Equal(t, c.mode, mode(t, p))
	}
	require.Equal(t, []string{"keys.json"}, names(t, filepath.Dir(p)))
}

func TestReplace_FollowsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other, link := filepath.Join(dir, "other"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(other, []byte("mine"), 0o600))
	require.NoError(t, os.Symlink(other, link))
	require.NoError(t, Replace(link, []byte("new"), 0o600))
	raw, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, "mine", string(raw))
	st, err := os.Lstat(link)
	require.NoError(t, err)
	require.True(t, st.Mode().IsRegular())
}

func TestReplaceLike_KeepsMode(t *testing.T) {
	t.Parallel()
	p := filepath.Join(t.TempDir(), "passwd")
	require.NoError(t, ReplaceLike(p, []byte("one"), 0o640))
	require.Equal(t, fs.FileMode(0o640), mode(t, p), "there was none")
	require.NoError(t, os.Chmod(p, 0o604))
	require.NoError(t, ReplaceLike(p, []byte("two"), 0o640))
	require.Equal(t, fs.FileMode(0o604), mode(t, p))
	raw, err := os.ReadFile(p)
	require.NoError(t, err)
	require.Equal(t, "two", string(raw))
}

func TestReplace_FailureKeepsTheOldFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := filepath.Join(dir, "taken") // a directory with something in it cannot be replaced
	require.NoError(t, os.MkdirAll(filepath.Join(p, "x"), 0o700))
	require.Error(t, Replace(p, []byte("new"), 0o600))
	require.Equal(t, []string{"taken"}, names(t, dir))
	require.Equal(t, []string{"x"}, names(t, p))
	require.Error(t, Replace(filepath.Join(dir, "missing", "file"), nil, 0o600))
}

// Concurrent writers never mix: each writes a temporary file of its own.
func TestReplace_Concurrent(t *testing.T) {
	t.Parallel()
	p := filepath.Join(t.TempDir(), "file")
	contents := []string{"aaaaaaaaaaaaaaaaaaaaaaaa", "bb"}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := Replace(p, []byte(contents[i%2]), 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	raw, err := os.ReadFile(p)
	require.NoError(t, err)
	require.Contains(t, contents, string(raw))
	require.Equal(t, []string{"file"}, names(t, filepath.Dir(p)))
}

func mode(t *testing.T, p string) fs.FileMode {
	t.Helper()
	st, err := os.Stat(p)
	require.NoError(t, err)
	return st.Mode().Perm()
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
