package toolcache

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// lines collects what a builder says.
type lines struct {
	mu   sync.Mutex
	said []string
}

func (l *lines) say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, fmt.Sprintf(format, args...))
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(strings.Join(l.said, "\n"), part)
}

// newBuilder returns a builder for a checkout with a small program, with a cache of its own. Its
// compiler copies a line that differs with each call.
func newBuilder(t *testing.T) (builder, *lines) {
	t.Helper()
	cache := filepath.Join(t.TempDir(), "cache")
	t.Setenv(DirVar, cache)
	require.NoError(t, os.MkdirAll(cache, 0o700))
	require.NoError(t, os.Chmod(filepath.Dir(cache), 0o700))
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "tiny"), 0o755))
	write(t, filepath.Join(root, "tiny", "go.mod"), "module tiny\n\ngo 1.26.0\n")
	write(t, filepath.Join(root, "tiny", "main.go"), "package main\n\nfunc main() {}\n")
	said := &lines{}
	return builder{
		Tool: Tool{Name: "tiny", Module: "tiny", Package: "."}, root: root, say: said.say, every: time.Hour,
		compile: func(_ context.Context, _ builder, out string) error {
			return os.WriteFile(out, []byte("program"), 0o755)
		},
	}, said
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// ensure returns the path that the builder returns.
func ensure(t *testing.T, b builder) string {
	t.Helper()
	path, err := b.ensure(t.Context())
	require.NoError(t, err)
	return path
}

func TestEnsure_BuildsOnceForConcurrentCallers(t *testing.T) {
	b, said := newBuilder(t)
	b.compile = compile // the real one, this once
	var wg sync.WaitGroup
	paths := make([]string, 3)
	for i := range paths {
		wg.Go(func() {
			path, err := b.ensure(t.Context())
			if err != nil {
				t.Error(err)
			}
			paths[i] = path
		})
	}
	wg.Wait()
	require.Equal(t, 1, said.count("built tiny"), "%v", said.said)
	require.Equal(t, []string{paths[0], paths[0], paths[0]}, paths)
	require.True(t, usable(paths[0]))
}

func TestEnsure_BuildsAgainWhenSourcesChange(t *testing.T) {
	b, said := newBuilder(t)
	first := ensure(t, b)
	module := filepath.Join(b.root, b.Module)
	write(t, filepath.Join(module, "main_test.go"), "package main\n")
	require.Equal(t, first, ensure(t, b), "a test is not part of the program")
	require.Equal(t, 1, said.count("built tiny"))

	write(t, filepath.Join(module, "go.sum"), "changed\n")
	second := ensure(t, b)
	write(t, filepath.Join(module, "more.go"), "package main\n")
	third := ensure(t, b)
	require.NotEqual(t, first, second)
	require.NotEqual(t, second, third)
	write(t, filepath.Join(module, "embedded.json"), "{}")
	fourth := ensure(t, b)
	require.NotEqual(t, third, fourth)
	require.Equal(t, 4, said.count("built tiny"))
	third = fourth

	require.NoError(t, os.Remove(third))
	require.Equal(t, third, ensure(t, b))
	require.FileExists(t, third)
}

func TestEnsure_BuildsAgainWhenAStubChanges(t *testing.T) {
	b, said := newBuilder(t)
	module := filepath.Join(b.root, b.Module)
	stub := filepath.Join(module, "stubs", "big")
	require.NoError(t, os.MkdirAll(stub, 0o755))
	write(t, filepath.Join(stub, "go.mod"), "module example.com/big\n")
	write(t, filepath.Join(stub, "big.go"), "package big\n")
	write(t, filepath.Join(module, "go.mod"), "module tiny\n\nreplace example.com/big v1.0.0 => ./stubs/big\n")
	first := ensure(t, b)
	require.Equal(t, first, ensure(t, b))
	write(t, filepath.Join(stub, "big.go"), "package big // changed\n")
	require.NotEqual(t, first, ensure(t, b))
	require.Equal(t, 2, said.count("built tiny"))
}

func TestEnsure_FailedBuildLeavesNothing(t *testing.T) {
	b, _ := newBuilder(t)
	b.compile = compile
	write(t, filepath.Join(b.root, b.Module, "main.go"), "package main\n\nfunc main() { oops() }\n")
	_, err := b.ensure(t.Context())
	require.ErrorContains(t, err, "undefined: oops")
	require.Equal(t, []string{"tiny.lock"}, names(t, filepath.Join(os.Getenv(DirVar), "bin")))
}

// A killed process leaves its unfinished folder; no caller takes it for a program, and the next
// build removes it.
func TestEnsure_RemovesAnUnfinishedBuild(t *testing.T) {
	b, said := newBuilder(t)
	left := filepath.Join(os.Getenv(DirVar), "bin", "tiny.new-1", "tiny")
	require.NoError(t, os.MkdirAll(filepath.Dir(left), 0o700))
	require.NoError(t, os.WriteFile(left, []byte("half a prog"), 0o755))
	path := ensure(t, b)
	require.Equal(t, 1, said.count("built tiny"))
	require.Equal(t, []string{filepath.Base(filepath.Dir(path)), "tiny.lock"}, names(t, filepath.Join(os.Getenv(DirVar), "bin")))
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}

func TestEnsure_KeepsTheVersionsUsedLast(t *testing.T) {
	b, said := newBuilder(t)
	var paths []string
	for i := range keptVersions + 1 {
		if i == keptVersions {
			b.Package = "version 0"
			require.Equal(t, paths[0], ensure(t, b), "used again, so it is not the oldest now")
		}
		b.Package = fmt.Sprint("version ", i)
		path := ensure(t, b)
		paths = append(paths, path)
		age := time.Now().Add(time.Duration(i-10) * time.Hour)
		require.NoError(t, os.Chtimes(filepath.Dir(path), age, age))
	}
	require.Equal(t, keptVersions+1, said.count("built tiny"))
	for i, path := range paths {
		require.Equal(t, i != 1, isFile(path), "version %d", i)
	}
}

func TestEnsure_ReplacesAProgramOthersMayWrite(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"program": func(path string) error { return os.Chmod(path, 0o757) },
		"folder":  func(path string) error { return os.Chmod(filepath.Dir(path), 0o770) },
		"empty":   func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			b, said := newBuilder(t)
			require.NoError(t, spoil(ensure(t, b)))
			require.True(t, usable(ensure(t, b)))
			require.Equal(t, 2, said.count("built tiny"))
		})
	}
}

func TestFolder_RefusesOneThatOthersMayWrite(t *testing.T) {
	b, _ := newBuilder(t)
	cache := os.Getenv(DirVar)
	above := filepath.Dir(cache)
	for _, dir := range []string{cache, above} {
		require.NoError(t, os.Chmod(dir, 0o777))
		_, err := b.ensure(t.Context())
		require.ErrorContains(t, err, "SLIPWAY_CACHE_DIR: ")
		require.ErrorContains(t, err, dir+" may be written by other users")
		require.NoError(t, os.Chmod(dir, 0o700))
	}
	require.NoError(t, os.Chmod(above, 0o777|os.ModeSticky))
	ensure(t, b)
	require.NoError(t, os.Chmod(filepath.Join(cache, "bin"), 0o777|os.ModeSticky))
	_, err := b.ensure(t.Context())
	require.ErrorContains(t, err, filepath.Join(cache, "bin")+" may be written by other users")

	t.Setenv(DirVar, "relative")
	_, err = b.ensure(t.Context())
	require.ErrorContains(t, err, "write an absolute path")
}

func TestFolder_FallsBackToTheCheckout(t *testing.T) {
	b, said := newBuilder(t)
	t.Setenv(DirVar, "")
	t.Setenv("XDG_CACHE_HOME", "")
	for _, home := range []string{"", os.DevNull} {
		t.Setenv("HOME", home)
		require.True(t, strings.HasPrefix(ensure(t, b), filepath.Join(b.root, "bin", fmt.Sprintf("cache-%d", os.Getuid()))+"/"))
	}
	require.Equal(t, 1, said.count("tiny is kept in this checkout only: "), "%v", said.said)
}

// Below a folder that is not trusted, as another user's home is for root, nothing is made.
func TestFolder_MakesNothingWhereItIsNotUsed(t *testing.T) {
	b, _ := newBuilder(t)
	home := t.TempDir()
	t.Setenv(DirVar, "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", home)
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(home, 12345, 0))
	} else {
		require.NoError(t, os.Chmod(home, 0o777))
	}
	require.True(t, strings.HasPrefix(ensure(t, b), b.root+"/"))
	require.Empty(t, names(t, home))
}

func TestFolder_ReadsOneThatIsNotWritable(t *testing.T) {
	b, said := newBuilder(t)
	cache := t.TempDir()
	t.Setenv(DirVar, "")
	t.Setenv("XDG_CACHE_HOME", cache)
	first := ensure(t, b)
	t.Cleanup(func() { access = syscall.Access })
	access = func(string, uint32) error { return syscall.EROFS }
	require.Equal(t, first, ensure(t, b))
	b.Package = "another"
	require.True(t, strings.HasPrefix(ensure(t, b), b.root+"/"))
	require.Equal(t, 1, said.count("tiny is kept in this checkout only: "), "%v", said.said)
}

func TestSettings_AreThoseThatChangeAProgram(t *testing.T) {
	t.Parallel()
	env := map[string]string{"GOFLAGS": "-trimpath -tags=a '-gcflags=all=-N' -p=2 --race"}
	get := func(name string) string { return env[name] }
	plain := settings(get)
	require.Equal(t, []string{"-tags=a", "'-gcflags=all=-N'", "--race"}, plain[len(plain)-3:])
	env["CGO_ENABLED"] = "0"
	require.NotEqual(t, plain, settings(get))
	env["CGO_ENABLED"], env["GOFLAGS"] = "", "-trimpath -buildvcs=false"
	require.Len(t, settings(get), len(plain)-3)
}

func TestDistrust(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mode        fs.FileMode
		owner, user int
		want        string
	}{
		"own":               {0o755, 7, 7, ""},
		"of root":           {0o755, 0, 7, ""},
		"of another user":   {0o755, 8, 7, "belongs to user 8"},
		"of a user of root": {0o755, 8, 0, "belongs to user 8"},
		"group":             {0o775, 7, 7, "may be written"},
		"others":            {0o757, 7, 7, "may be written"},
		"sticky":            {fs.ModeSticky | 0o777, 0, 7, ""},
		"sticky of another": {fs.ModeSticky | 0o777, 8, 7, "belongs to user 8"},
	} {
		got := distrustOf(tc.mode, tc.owner, tc.user, fs.ModeSticky)
		require.Equal(t, tc.want == "", got == "", name)
		require.Contains(t, got, tc.want, name)
	}
	require.NotEmpty(t, distrustOf(fs.ModeSticky|0o777, 7, 7, 0))
}

func TestLock_WaitsAndEndsWithItsContext(t *testing.T) {
	b, said := newBuilder(t)
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := b.lock(t.Context(), path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error)
	go func() {
		_, err := b.lock(ctx, path)
		waited <- err
	}()
	require.Eventually(t, func() bool { return said.count("another process is building tiny") == 1 },
		runenv.Patience(10*time.Second), time.Millisecond)
	cancel()
	require.ErrorIs(t, <-waited, context.Canceled)
	unlock()
	unlock, err = b.lock(t.Context(), path)
	require.NoError(t, err)
	unlock()
}

func TestWatchCompile_ReportsALongBuild(t *testing.T) {
	b, said := newBuilder(t)
	b.every = time.Millisecond
	b.compile = func(ctx context.Context, _ builder, _ string) error {
		for said.count("still building tiny") < 3 && ctx.Err() == nil {
			<-time.After(time.Millisecond)
		}
		return ctx.Err()
	}
	require.NoError(t, b.watchCompile(t.Context(), "out"))
	require.Equal(t, 1, said.count("built tiny in"))
}

func TestLink_ReplacesWhatWasThere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bin", "tool")
	for _, target := range []string{"/one", "/two", "/two"} {
		require.NoError(t, link(target, path))
		have, err := os.Readlink(path)
		require.NoError(t, err)
		require.Equal(t, target, have)
	}
	require.NoError(t, os.Remove(path))
	write(t, path, "a program of its own")
	require.NoError(t, link("/one", path))
	require.Equal(t, []string{"tool"}, names(t, filepath.Dir(path)))
}

func TestChecked_RemembersAHash(t *testing.T) {
	newBuilder(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.go"), "package a\n")
	first, err := Hash(dir, "vet", ".")
	require.NoError(t, err)
	require.False(t, Checked(first))
	require.NoError(t, MarkChecked(first))
	require.True(t, Checked(first))

	write(t, filepath.Join(dir, "b.go"), "package a\n")
	second, err := Hash(dir, "vet", ".")
	require.NoError(t, err)
	require.False(t, Checked(second), "a new file is a new hash")
	other, err := Hash(dir, "lint", ".")
	require.NoError(t, err)
	require.NotEqual(t, second, other)

	checked := filepath.Join(os.Getenv(DirVar), "checked")
	require.NoError(t, os.Chmod(filepath.Join(checked, names(t, checked)[0]), 0o666))
	require.False(t, Checked(first), "another user could have written it")
	for i := range keptChecks + 1 {
		require.NoError(t, MarkChecked(fmt.Sprint(i)))
	}
	require.Len(t, names(t, checked), keptChecks)
}

func TestHash_LeavesOutOtherModules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.go"), "package a\n")
	before, err := Hash(dir, "", ".")
	require.NoError(t, err)
	for _, path := range []string{"other/go.mod", "node_modules/a.js", ".hidden/a.go"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755))
		write(t, filepath.Join(dir, path), "text")
	}
	after, err := Hash(dir, "", ".", "a.go")
	require.NoError(t, err)
	require.Equal(t, before, after)
	_, err = Hash(dir, "", "missing")
	require.Error(t, err)
}

func TestSources_AreThoseOfAllImports(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for path, text := range map[string]string{
		"go.mod": "module tiny\n\ngo 1.26.0\n", "go.sum": "",
		"a/a.go": "package a\n\nimport _ \"tiny/b\"\nimport _ \"fmt\"\n", "a/a_test.go": "package a\n",
		"b/b.go": "package b\n", "c/c.go": "package c\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755))
		write(t, filepath.Join(dir, path), text)
	}
	paths, err := Sources(t.Context(), dir, "./a")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"go.mod", "go.sum", "a/a.go", "b/b.go"}, paths)
	_, err = Hash(dir, "", paths...)
	require.NoError(t, err)
	_, err = Sources(t.Context(), dir, "./missing")
	require.Error(t, err)
}

// Each pinned tool is one that the go.mod of its module names.
func TestTools_ArePinned(t *testing.T) {
	root, err := Root()
	require.NoError(t, err)
	for _, tool := range Tools() {
		module := filepath.Join(root, filepath.FromSlash(tool.Module))
		if inModule, ok := strings.CutPrefix(tool.Package, "./"); ok {
			require.DirExists(t, filepath.Join(module, inModule))
			continue
		}
		text, err := os.ReadFile(filepath.Join(module, "go.mod"))
		require.NoError(t, err)
		require.Regexp(t, `(?m)^(tool |\t)`+tool.Package+`$`, string(text))
	}
	_, err = Find("unknown")
	require.ErrorContains(t, err, "devtemporal gotestsum")
	t.Chdir(t.TempDir())
	_, err = Root()
	require.ErrorContains(t, err, "not inside a Slipway checkout")
}
