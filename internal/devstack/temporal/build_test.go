package temporal

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func freePort(t *testing.T) int {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().(*net.TCPAddr).Port
}

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
	n := 0
	for _, line := range l.said {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// tinyModule has a program of the right name that compiles in a second.
func tinyModule(t *testing.T) (builder, *lines) {
	t.Helper()
	dir := t.TempDir()
	main := filepath.Join(dir, "cmd", binary)
	require.NoError(t, os.MkdirAll(main, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module tiny\n\ngo 1.26.0\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(main, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	said := &lines{}
	return builder{module: dir, out: filepath.Join(dir, "bin", binary), say: said.say, every: time.Hour}, said
}

func TestTheProgramIsBuiltOnceUntilASourceChanges(t *testing.T) {
	t.Parallel()
	b, said := tinyModule(t)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			path, err := b.ensure(t.Context())
			if err != nil || path != b.out {
				t.Errorf("built %q, %v", path, err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, said.count("about 6 minutes"), "three callers, one build: %v", said.said)

	note := filepath.Join(b.module, "cmd", binary, "note_test.go")
	require.NoError(t, os.WriteFile(note, []byte("package main\n"), 0o600))
	_, err := b.ensure(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, said.count("built the"), "a test is no part of the program")

	main := filepath.Join(b.module, "cmd", binary, "main.go")
	require.NoError(t, os.WriteFile(main, []byte("package main\n\nfunc main() { println() }\n"), 0o600))
	_, err = b.ensure(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, said.count("built the"))

	require.NoError(t, os.Remove(b.out))
	_, err = b.ensure(t.Context())
	require.NoError(t, err)
	require.FileExists(t, b.out)
}

func TestABuildThatFailsQuotesTheCompilerAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	b, _ := tinyModule(t)
	main := filepath.Join(b.module, "cmd", binary, "main.go")
	require.NoError(t, os.WriteFile(main, []byte("package main\n\nfunc main() { oops() }\n"), 0o600))
	for range 2 {
		_, err := b.ensure(t.Context())
		require.ErrorContains(t, err, "undefined: oops")
	}
}

func TestALongBuildTellsThatItIsAlive(t *testing.T) {
	t.Parallel()
	said := &lines{}
	b := builder{say: said.say, every: time.Millisecond}
	done := make(chan struct{})
	go b.beat(time.Now(), done)
	require.Eventually(t, func() bool { return said.count("still building") >= 3 }, 10*time.Second, time.Millisecond)
	close(done)
}

func TestRootIsFoundFromBelowAndMissedOutside(t *testing.T) {
	root, err := Root()
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(root, "dev", "go.mod"))
	t.Chdir(t.TempDir())
	_, err = Root()
	require.ErrorContains(t, err, "not inside a Slipway checkout")
}
