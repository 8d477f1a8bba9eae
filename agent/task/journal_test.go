package task

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

func get(t testing.TB, j *Journal, id string) (Entry, bool) {
	t.Helper()
	e, ok, err := j.Get(id)
	require.NoError(t, err)
	return e, ok
}

func TestAJournalIsReadBackAndDropsATornLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, err := OpenJournal(dir)
	require.NoError(t, err)
	until := time.Now().Add(time.Hour)
	require.NoError(t, j.put(Entry{TaskID: "t1", Phase: Begun, Deadline: until}, 7))
	require.NoError(t, j.Put(Entry{TaskID: "t2", Phase: Begun, Deadline: until}))
	require.NoError(t, j.Put(Entry{TaskID: "t1", Phase: Done, Deadline: until, Result: &lifecycle.TaskResult{OK: true}}))
	require.NoError(t, j.Close())
	path := filepath.Join(dir, journalFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, cut := range []int{1, 5, 40, 120} {
		require.NoError(t, os.WriteFile(path, whole[:len(whole)-cut], 0o600))
		j, err := OpenJournal(dir)
		require.NoError(t, err)
		e, ok := get(t, j, "t1")
		require.True(t, ok)
		require.Equal(t, Begun, e.Phase, "the torn line does not count")
		require.EqualValues(t, 7, j.Generation())
		open, err := j.Open()
		require.NoError(t, err)
		require.Equal(t, []string{"t1", "t2"}, []string{open[0].TaskID, open[1].TaskID}, "in the order in which they came")
		require.NoError(t, j.Put(Entry{TaskID: "t3", Phase: Begun, Deadline: until}))
		require.NoError(t, j.Close())
		j, err = OpenJournal(dir)
		require.NoError(t, err)
		_, ok = get(t, j, "t3")
		require.True(t, ok, "what was written after a torn line counts")
		require.NoError(t, j.Close())
	}
}

func TestADamagedJournalIsNotPassedOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, err := OpenJournal(dir)
	require.NoError(t, err)
	for i := range 3 {
		require.NoError(t, j.Put(Entry{TaskID: fmt.Sprint(i), Phase: Begun, Deadline: time.Now().Add(time.Hour)}))
	}
	require.NoError(t, j.Close())
	path := filepath.Join(dir, journalFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(whole), `"task_id":"1"`, `"task_id":"9"`, 1)), 0o600))
	_, err = OpenJournal(dir)
	require.ErrorContains(t, err, "damaged in line 3")
}

func TestAJournalStaysSmall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, err := OpenJournal(dir)
	require.NoError(t, err)
	defer j.Close()
	long := strings.Repeat("x", 60_000)
	for i := range 200 {
		id := fmt.Sprintf("t%d", i)
		e := Entry{TaskID: id, Phase: Finished, Deadline: time.Now().Add(time.Hour), Result: &lifecycle.TaskResult{Message: long}}
		if i == 3 {
			e.Phase = Done
		}
		if i < 100 && i != 3 {
			e.Deadline = time.Now().Add(-time.Second)
		}
		require.NoError(t, j.Put(e))
		require.LessOrEqual(t, j.size, int64(maxJournal+maxKnown*61_000))
	}
	require.NoError(t, j.reopen())
	_, known := get(t, j, "t3")
	require.True(t, known, "what is not reported stays")
	_, known = get(t, j, "t5")
	require.False(t, known, "what is over and past its deadline goes")
	require.LessOrEqual(t, len(j.entries), maxKnown+1)
}

func TestAJournalThatCannotBeWrittenSaysSoAndRecovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, err := OpenJournal(dir)
	require.NoError(t, err)
	until := time.Now().Add(time.Hour)
	require.NoError(t, j.Put(Entry{TaskID: "t1", Phase: Begun, Deadline: until}))
	require.NoError(t, j.file.Close()) // as a disk that went away
	require.ErrorContains(t, j.Put(Entry{TaskID: "t1", Phase: Done, Deadline: until}), "write the journal")
	e, _ := get(t, j, "t1")
	require.Equal(t, Begun, e.Phase, "memory never says more than the disk")
	require.NoError(t, j.Put(Entry{TaskID: "t1", Phase: Done, Deadline: until}))
}
