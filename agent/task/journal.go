package task

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
)

// The bounds of a journal.
const (
	journalFile = "journal"
	// maxJournal is how much is appended before the file is written again.
	maxJournal = 2 << 20
	// maxKnown is how many tasks are kept that are over.
	maxKnown = 128
	// maxOpen is how many tasks may be open; no new one is taken at that.
	maxOpen = 32
	// keepUnreported is how long after its deadline a result that the server did
	// not take is kept.
	keepUnreported = 7 * 24 * time.Hour
)

// ErrJournalFull says that too many results wait to be reported.
var ErrJournalFull = fmt.Errorf("%d tasks wait for their end to be reported; no other is taken before", maxOpen)

// Journal is an append-only file of entries, each on disk before Put returns.
// The last entry of a task counts. It is safe for concurrent use, by one process.
type Journal struct {
	dir string
	now func() time.Time
	// crash is called at the points where a process may die; tests die there.
	crash func(point string)

	mu   sync.Mutex
	file *os.File
	// mustReload is set when a write failed: the file is read again before its next use.
	mustReload bool
	size       int64
	compactAt  int64 // size beyond which the file is written again
	entries    map[string]Entry
	order      int64
	generation int64
}

// record is one line: 8 hex digits of CRC-32, a blank and this as JSON.
type record struct {
	Entry      *Entry `json:"entry,omitempty"`
	Generation int64  `json:"generation,omitempty"`
}

// OpenJournal reads the journal of a directory, which is made. A last line that
// was torn by a crash is dropped; damage elsewhere is an error, since what was
// begun would be forgotten.
func OpenJournal(dir string) (*Journal, error) { return openJournal(dir, func(string) {}) }

func openJournal(dir string, crash func(string)) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the journal's directory: %w", err)
	}
	j := &Journal{dir: dir, now: time.Now, crash: crash, entries: map[string]Entry{}}
	return j, j.reopen()
}

// Close closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return err
}

func (j *Journal) path() string { return filepath.Join(j.dir, journalFile) }

// reopen reads the file, writes it again as a whole and syncs it. After a failed fsync this decides
// what the file contains.
func (j *Journal) reopen() error {
	raw, err := os.ReadFile(j.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the journal: %w", err)
	}
	j.entries, j.order = map[string]Entry{}, 0
	for n := 1; len(raw) > 0; n++ {
		line, rest, whole := bytes.Cut(raw, []byte("\n"))
		r, ok := parseLine(line)
		if !ok || !whole {
			if len(rest) == 0 { // torn: it was never synced, so nothing was done on it
				break
			}
			return fmt.Errorf("the journal %s is damaged in line %d: an operator must check the node's tasks; move the file away to start an empty journal", j.path(), n)
		}
		j.generation = max(j.generation, r.Generation)
		if r.Entry != nil {
			j.entries[r.Entry.TaskID] = *r.Entry
			j.order = max(j.order, r.Entry.Order)
		}
		raw = rest
	}
	return j.compact()
}

func parseLine(line []byte) (record, bool) {
	var r record
	if len(line) < 10 || line[8] != ' ' {
		return r, false
	}
	sum, err := strconv.ParseUint(string(line[:8]), 16, 32)
	if err != nil || uint32(sum) != crc32.ChecksumIEEE(line[9:]) {
		return r, false
	}
	return r, json.Unmarshal(line[9:], &r) == nil
}

func writeLine(b *bytes.Buffer, r record) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode a journal entry: %w", err)
	}
	fmt.Fprintf(b, "%08x ", crc32.ChecksumIEEE(raw))
	b.Write(raw)
	b.WriteByte('\n')
	return nil
}

// Put appends an entry; it is on disk when Put returns nil. After an error the
// file is read again, so that memory never says more than the disk.
func (j *Journal) Put(e Entry) error { return j.put(e, 0) }

func (j *Journal) put(e Entry, generation int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.reloadIfNeeded(); err != nil {
		return err
	}
	if j.file == nil {
		return errors.New("the journal is closed")
	}
	if old, known := j.entries[e.TaskID]; known {
		e.Order = old.Order
	} else {
		j.order++
		e.Order = j.order
	}
	e.At = j.now().UTC()
	var line bytes.Buffer
	if err := writeLine(&line, record{Entry: &e, Generation: max(j.generation, generation)}); err != nil {
		return err
	}
	if err := j.append(line.Bytes()); err != nil {
		j.mustReload = true
		return fmt.Errorf("write the journal: %w", err)
	}
	j.entries[e.TaskID] = e
	j.generation = max(j.generation, generation)
	if j.size > j.compactAt {
		return j.compact()
	}
	return nil
}

func (j *Journal) append(line []byte) error {
	j.crash("before write")
	half := len(line) / 2
	if _, err := j.file.Write(line[:half]); err != nil {
		return err
	}
	j.crash("torn")
	if _, err := j.file.Write(line[half:]); err != nil {
		return err
	}
	j.crash("before sync")
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.size += int64(len(line))
	j.crash("after sync")
	return nil
}

// compact writes what still matters to a new file and puts it in place.
func (j *Journal) compact() error {
	j.prune()
	var b bytes.Buffer
	if err := writeLine(&b, record{Generation: j.generation}); err != nil {
		return err
	}
	for _, e := range j.sorted() {
		if err := writeLine(&b, record{Entry: &e}); err != nil {
			return err
		}
	}
	if j.file != nil {
		_ = j.file.Close()
		j.file = nil
	}
	j.crash("before compaction")
	f, err := os.OpenFile(j.path()+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	_, err = f.Write(b.Bytes())
	err = errors.Join(err, f.Sync())
	if err == nil {
		j.crash("before rename")
		err = atomicfile.Rename(j.path()+".new", j.path())
	}
	if err != nil {
		return fmt.Errorf("write the journal: %w", errors.Join(err, f.Close()))
	}
	j.file, j.size = f, int64(b.Len())
	j.compactAt = j.size + maxJournal
	return nil
}

// prune forgets what cannot come again: a task past its deadline is refused by
// the fence.
func (j *Journal) prune() {
	now := j.now()
	var over []Entry
	for id, e := range j.entries {
		closed := e.Phase == Finished || e.Phase == Dropped
		switch {
		case closed && now.After(e.Deadline), !closed && e.Phase != Reported && now.After(e.Deadline.Add(keepUnreported)):
			delete(j.entries, id)
		case closed:
			over = append(over, e)
		}
	}
	slices.SortFunc(over, func(a, b Entry) int { return cmp.Compare(b.Order, a.Order) })
	for _, e := range over[min(len(over), maxKnown):] {
		delete(j.entries, e.TaskID)
	}
}

func (j *Journal) sorted() []Entry {
	out := make([]Entry, 0, len(j.entries))
	for _, e := range j.entries {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.Order, b.Order) })
	return out
}

// Get finds a task.
func (j *Journal) Get(taskID string) (e Entry, known bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	err = j.reloadIfNeeded()
	e, known = j.entries[taskID]
	return e, known, err
}

// Open lists the tasks that are begun, done or to be finished, oldest first.
func (j *Journal) Open() ([]Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.reloadIfNeeded()
	return slices.DeleteFunc(j.sorted(), func(e Entry) bool { return e.Phase == Finished || e.Phase == Dropped }), err
}

// reloadIfNeeded reads the file again when a write has failed.
func (j *Journal) reloadIfNeeded() error {
	if !j.mustReload {
		return nil
	}
	err := j.reopen()
	j.mustReload = err != nil
	return err
}

// Generation is the highest under which a task was begun here.
func (j *Journal) Generation() int64 { j.mu.Lock(); defer j.mu.Unlock(); return j.generation }
