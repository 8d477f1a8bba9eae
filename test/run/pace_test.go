package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestPace_PublishesTheMean: the tests get the mean of the last samples. One slow sample does not
// make the machine slow, half a minute of them does, and it ends when they end.
func TestPace_PublishesTheMean(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pace")
	t.Setenv(runenv.PatienceVar, "1")
	t.Setenv(runenv.PaceFileVar, path)
	p := &pace{path: path, largest: 1}
	require.InDelta(t, 1, p.now(), 0)
	for range paceKept {
		p.add(1)
	}
	p.add(4)
	require.InDelta(t, 1.5, p.now(), 0.001)
	require.Equal(t, 1500*time.Millisecond, runenv.Patience(time.Second))
	for range paceKept {
		p.add(4)
	}
	require.Equal(t, 4*time.Second, runenv.Patience(time.Second), "of a test that runs already too")
	for range paceKept {
		p.add(1)
	}
	require.InDelta(t, 1, p.now(), 0)
	require.InDelta(t, 4, p.worst(), 0)
	require.NoFileExists(t, path+".new", "the file is replaced as a whole")
}

// TestPace_MeasuresAndEnds: a sample takes less than a hundredth of a core, and the end removes the
// file.
func TestPace_MeasuresAndEnds(t *testing.T) {
	t.Parallel()
	require.Less(t, paceWork+paceStarting, paceEvery/100)
	path := filepath.Join(t.TempDir(), "pace")
	p := newPace(path)
	p.add(2)
	require.FileExists(t, path)
	p.end()
	require.NoFileExists(t, path)
	var none *pace
	none.end()
	require.InDelta(t, 1, none.now(), 0)
}

func TestPatience_IsTheLargerOne(t *testing.T) {
	t.Parallel()
	s := &session{speed: speed{Wall: 1.2}, pace: &pace{path: filepath.Join(t.TempDir(), "pace")}}
	require.InDelta(t, 1.2, s.patience(), 0)
	s.pace.add(3)
	require.InDelta(t, 3, s.patience(), 0)
	require.Equal(t, 3*hangLimit, s.hangs())
}

const stat = `cpu  200 0 100 5000 40 0 10 50 7 0
cpu0 100 0 50 2500 20 0 5 25 7 0
cpu1 100 0 50 2500 20 0 5 25 0 0
intr 1036766 0 0
`

func TestBusyTime(t *testing.T) {
	t.Parallel()
	busy, known := busyTime(stat, 2)
	require.True(t, known)
	require.Equal(t, 3600*time.Millisecond, busy, "idle time, waits for disks and guests do not count")
	_, known = busyTime(stat, 1)
	require.False(t, known, "a container that sees the processors of its host")
	_, known = busyTime("", 2)
	require.False(t, known)
}

func TestOthers_AreWhatTheRunDidNotUse(t *testing.T) {
	t.Parallel()
	began := time.Now()
	before := busyness{at: began, all: time.Hour, ours: time.Second, known: true}
	after := busyness{at: began.Add(100 * time.Second), all: time.Hour + 180*time.Second, ours: 161 * time.Second, known: true}
	require.InDelta(t, 0.1, after.others(before, 2), 1e-9, "20 of 200 CPU seconds")
	after.ours = 500 * time.Second
	require.Zero(t, after.others(before, 2))
	after.known = false
	require.InDelta(t, -1, after.others(before, 2), 0)
}

// TestCompiling_NamesThePackagesOfTheRun: the compilers below the run's process, and no others.
func TestCompiling_NamesThePackagesOfTheRun(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	process := func(pid, parent, cmdline string) {
		require.NoError(t, os.MkdirAll(filepath.Join(proc, pid), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(proc, pid, "stat"), []byte(pid+" (a) name) S "+parent+" 1 1"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(cmdline), 0o600))
	}
	process("10", "1", "testrun\x00test\x00")
	process("11", "10", "go\x00test\x00-p\x002\x00")
	process("12", "11", "/go/tool/compile\x00-o\x00x.a\x00-p\x00k8s.io/api\x00a.go\x00")
	process("13", "1", "/go/tool/compile\x00-o\x00x.a\x00-p\x00other/checkout\x00a.go\x00")
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "14"), 0o755)) // it has ended
	require.Equal(t, []string{"k8s.io/api"}, compiling(proc, 10))
	require.Empty(t, compiling(proc, 99))
	require.True(t, isPackage("k8s.io/api"))
	require.False(t, isPackage("# k8s.io/api"))
	require.False(t, isPackage("a/b.go:1:2: undefined: x"))
	require.True(t, endsPackage("✓  db (3s)"))
	require.False(t, endsPackage("=== RUN"))
}
