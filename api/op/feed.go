package op

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/db"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
)

// These constants bound the events that a tail keeps for its followers. A follower that needs older
// events reads the database.
const (
	platformEvents, platformBytes = 4096, 16 << 20
	projectEvents, projectBytes   = 256, 1 << 20
	// outputBytes is shared by the runs whose output is followed.
	outputChunks, outputBytes = 256, 32 << 20
	tailAge                   = time.Minute
	// eventOverhead and eventCopies estimate the memory of an event from the size of its payload.
	// The copies are the row, the decoded message, and one text for each encoding.
	eventOverhead, eventCopies = 1 << 10, 8
)

const (
	tailBatch = 200              // events that a tail reads at a time
	ownBatch  = 50               // events that a follower reads at a time, and holds while it sends them
	ownReads  = 4                // followers of a process that read the database at the same time
	readLimit = 10 * time.Second // for one statement
	// readAttempts is how many reads of a tail may fail in a row. After that its streams end.
	// Ending them at the first failure would make all readers reconnect at once.
	readAttempts = 3
)

// ErrRestored ends the streams of a database that was restored or moved to another server.
var ErrRestored = errors.New(whyRestored)

// Event is one event that streams send. All streams of a process share it, together with the
// messages and texts that Shared keeps in it.
type Event struct {
	Cursor int64
	Type   string
	Row    any // the row of the database
	Size   int // of the payload, in bytes

	read   time.Time
	alone  bool // only one stream has the event
	mu     sync.Mutex
	shared map[string]any
}

// Shared returns the value that build makes from an event. The first stream builds the value, and
// all other streams get the same value by its name.
func Shared[T any](e *Event, name string, build func() (T, error)) (T, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if v, ok := e.shared[name].(T); ok {
		return v, nil
	}
	v, err := build()
	if err == nil && !e.alone {
		if e.shared == nil {
			e.shared = map[string]any{}
		}
		e.shared[name] = v
	}
	return v, err
}

func (e *Event) cost() int { return eventOverhead + eventCopies*e.Size }

// Lister lists at most limit events after a cursor, in order. It returns io.EOF with the last
// events of a source that has ended.
type Lister func(ctx context.Context, after int64, limit int) ([]*Event, error)

// Source is a list of events that streams follow. Streams whose sources have the same Project and
// Run share the events that All lists. Each cursor is higher than those of all events that were
// committed before, so that a stream that has an event has missed none before it.
type Source struct {
	Project string // has the events; "" is the platform
	Run     string // has the output; "" means that the source has events
	All     Lister
	// Wanted lists the events that Wants selects. A nil Wants selects all events, and a nil Wanted
	// lists the same as All.
	Wanted Lister
	Wants  func(*Event) bool
	// Batch is how many events are read at a time. 0 selects the defaults.
	Batch int
}

// bounds returns how many events a tail of the source keeps, and how many bytes. The output of a
// run gets its share of the memory for all runs.
func (s Source) bounds(runs int) (events, bytes int) {
	switch {
	case s.Run != "":
		return outputChunks, outputBytes / max(1, runs)
	case s.Project != "":
		return projectEvents, projectBytes
	}
	return platformEvents, platformBytes
}

// PlatformEvents returns the source of the platform's events that match a filter.
func (a *API) PlatformEvents(f db.EventFilter) Source {
	list := func(f db.EventFilter) Lister {
		return func(ctx context.Context, after int64, limit int) ([]*Event, error) {
			rows, err := a.store.EventsAfter(ctx, after, f, limit)
			out := make([]*Event, 0, len(rows))
			for _, r := range rows {
				out = append(out, &Event{Cursor: r.Cursor, Type: r.Type, Row: r, Size: len(r.Payload)})
			}
			return out, err
		}
	}
	return Source{All: list(db.EventFilter{}), Wanted: list(f), Wants: func(e *Event) bool { return matches(f, e) }}
}

// matches reports whether db.Store.EventsAfter would select an event by the filter.
func matches(f db.EventFilter, e *Event) bool {
	row, ok := e.Row.(db.Event)
	return ok && (f.ResourceKind == "" || f.ResourceKind == row.ResourceKind) &&
		(f.ResourceID == "" || f.ResourceID == row.ResourceID) &&
		(f.NodeID == "" || row.NodeID != nil && f.NodeID == *row.NodeID)
}

// tailKey names a tail in its feed. Streams that began in another epoch of the database have their
// own tail, which ends at its first read.
type tailKey struct{ project, epoch string }

// tail holds the newest events of a source in memory.
type tail struct {
	key       tailKey
	feed      *feed
	source    Source
	followers int // the lock of feeds guards it
	failed    int // how many reads in a row have failed

	mu      sync.Mutex
	last    int64 // the tail has read all events up to this cursor
	base    int64 // ring has all events after base, up to last
	ring    []*Event
	bytes   int
	changed chan struct{} // the next change closes it
	err     error         // why the tail has ended
}

// add appends events and drops the oldest ones. It keeps the newest event of any size, which all
// followers need. runs is how many runs have followers.
func (t *tail) add(events []*Event, runs int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, e := range events {
		e.read = now
		t.ring, t.bytes, t.last = append(t.ring, e), t.bytes+e.cost(), e.Cursor
	}
	most, bytes := t.source.bounds(runs)
	for len(t.ring) > 0 && (len(t.ring) > most || len(t.ring) > 1 && t.bytes > bytes || now.Sub(t.ring[0].read) > tailAge) {
		t.base, t.bytes = t.ring[0].Cursor, t.bytes-t.ring[0].cost()
		t.ring[0], t.ring = nil, t.ring[1:]
	}
	if len(events) > 0 {
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

// end ends the tail. After io.EOF the followers still get the events of the ring.
func (t *tail) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return
	}
	if t.err = err; !errors.Is(err, io.EOF) {
		t.ring, t.base = nil, 0
	}
	close(t.changed)
}

// place is the state of a tail after a cursor.
type place struct {
	event   *Event // the next event; nil if the tail has none
	behind  bool   // the tail has dropped events after the cursor
	last    int64
	changed <-chan struct{}
	err     error
}

// batch returns how many events the tail reads at a time.
func (t *tail) batch() int { return cmp.Or(t.source.Batch, tailBatch) }

// after returns the state of the tail after a cursor.
func (t *tail) after(at int64) place {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := place{behind: at < t.base, last: t.last, changed: t.changed, err: t.err}
	if i := sort.Search(len(t.ring), func(i int) bool { return t.ring[i].Cursor > at }); i < len(t.ring) {
		p.event = t.ring[i]
	}
	return p
}

// feeds has the feeds of a process: one for events, and one for each run whose output has
// followers.
type feeds struct {
	store        *db.Store
	events, logs *Hub
	own          chan struct{} // has one element for each follower that reads the database

	mu    sync.Mutex
	byRun map[string]*feed // the feed of events has the key ""
}

func newFeeds(store *db.Store) *feeds {
	return &feeds{
		store: store, events: NewHub(store, db.ChannelEvents), logs: NewHub(store, db.ChannelRunLogs),
		own: make(chan struct{}, ownReads), byRun: map[string]*feed{},
	}
}

// feed reads each event once for all streams of this process. Its goroutine runs while the feed has
// tails. The lock of feeds guards the map of tails.
type feed struct {
	*feeds

	run    string
	stop   context.CancelFunc
	joined chan struct{} // receives a value when a tail is added
	tails  map[tailKey]*tail
}

func (s *feeds) join(from StreamStart, source Source) *tail {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.byRun[source.Run]
	if d == nil {
		ctx, stop := context.WithCancel(context.Background())
		d = &feed{feeds: s, run: source.Run, stop: stop, joined: make(chan struct{}, 1), tails: map[tailKey]*tail{}}
		s.byRun[source.Run] = d
		go d.follow(ctx)
	}
	key := tailKey{source.Project, from.Epoch}
	t := d.tails[key]
	if t == nil {
		t = &tail{key: key, feed: d, source: source, last: from.Last, base: from.Last, changed: make(chan struct{})}
		d.tails[key] = t
		select {
		case d.joined <- struct{}{}:
		default: // a value is waiting already
		}
	}
	t.followers++
	return t
}

func (s *feeds) leave(t *tail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.followers--; t.followers == 0 {
		t.feed.remove(t)
	}
}

// remove removes a tail, and stops the feed after its last tail. The caller holds the lock of
// feeds.
func (d *feed) remove(t *tail) {
	if d.tails[t.key] != t {
		return
	}
	delete(d.tails, t.key)
	if len(d.tails) == 0 {
		d.stop()
		delete(d.byRun, d.run)
	}
}

func (d *feed) end(t *tail, err error) {
	d.mu.Lock()
	d.remove(t)
	d.mu.Unlock()
	t.end(err)
}

// follow reads the tails until ctx ends: at each notification, for each new tail, and every
// streamPoll.
func (d *feed) follow(ctx context.Context) {
	hub := d.events
	if d.run != "" {
		hub = d.logs
	}
	woken, leave := hub.Join(d.run)
	defer leave()
	poll := time.NewTicker(streamPoll)
	defer poll.Stop()
	for ctx.Err() == nil {
		if d.read(ctx) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-woken:
		case <-d.joined:
		case <-poll.C:
		}
	}
}

// read reads one batch for each tail. It reads the epoch after the batches, so that streams send no
// event of another epoch. It reports whether more events may be stored already.
func (d *feed) read(ctx context.Context) (more bool) {
	d.mu.Lock()
	tails, runs := slices.Collect(maps.Values(d.tails)), len(d.byRun)
	d.mu.Unlock()
	heads, err := d.heads(ctx, tails)
	batches, errs := make([][]*Event, len(tails)), make([]error, len(tails))
	for i, t := range tails {
		if errs[i] = err; err == nil && (t.key.project == "" || heads[t.key.project] > t.last) {
			batches[i], errs[i] = within(ctx, func(ctx context.Context) ([]*Event, error) { return t.source.All(ctx, t.last, t.batch()) })
		}
	}
	now, err := within(ctx, d.store.ReadEventCursor)
	for i, t := range tails {
		ended := errors.Is(errs[i], io.EOF)
		switch {
		case err != nil || errs[i] != nil && !ended:
			if t.failed++; t.failed == readAttempts {
				d.end(t, errors.Join(errs[i], err))
			}
			continue
		case now.Epoch != t.key.epoch:
			d.end(t, ErrRestored)
			continue
		}
		t.failed = 0
		t.add(batches[i], runs)
		more = more || len(batches[i]) == t.batch()
		if ended {
			d.end(t, io.EOF)
		}
	}
	return more
}

// heads reads the cursor of the last event of each project that has followers, in one query.
func (d *feed) heads(ctx context.Context, tails []*tail) (map[string]int64, error) {
	var projects []string
	for _, t := range tails {
		if t.key.project != "" {
			projects = append(projects, t.key.project)
		}
	}
	if len(projects) == 0 {
		return nil, nil
	}
	return within(ctx, func(ctx context.Context) (map[string]int64, error) {
		return webhookdb.LastCursors(ctx, d.store, projects)
	})
}

// within calls read with the deadline of one statement.
func within[T any](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	return read(ctx)
}

// Follower is the position of one stream in its source. Only one goroutine may use it.
type Follower struct {
	feeds  *feeds
	tail   *tail
	source Source
	at     int64
	own    []*Event // the follower has read them from the database, and sends them next
	until  int64    // the position after own
}

// Follow starts to follow a source. The caller must call Leave.
func (a *API) Follow(from StreamStart, s Source) *Follower {
	if s.Wanted == nil {
		s.Wanted = s.All
	}
	return &Follower{feeds: a.feeds, tail: a.feeds.join(from, s), source: s, at: from.Cursor}
}

// Leave stops following the source.
func (f *Follower) Leave() { f.feeds.leave(f.tail) }

// At returns the cursor up to which Next has returned all events.
func (f *Follower) At() int64 { return f.at }

// Next returns the next event that the stream wants. If there is none yet, it returns a channel
// that is closed when there may be one. It returns io.EOF after the last event of a source that has
// ended.
func (f *Follower) Next(ctx context.Context) (*Event, <-chan struct{}, error) {
	for ctx.Err() == nil {
		if len(f.own) > 0 {
			e := f.own[0]
			f.own[0], f.own = nil, f.own[1:]
			f.at = e.Cursor
			return e, nil, nil
		}
		f.at = max(f.at, f.until)
		p := f.tail.after(f.at)
		switch {
		case p.behind:
			if err := f.readOwn(ctx, p.last); err != nil {
				return nil, nil, err
			}
		case p.event != nil:
			f.at = p.event.Cursor
			if f.source.Wants == nil || f.source.Wants(p.event) {
				return p.event, nil, nil
			}
		case p.err != nil:
			return nil, nil, p.err
		default:
			return nil, p.changed, nil
		}
	}
	return nil, nil, ctx.Err()
}

// readOwn reads the next batch from the database, for a follower whose next events the tail has
// dropped. last is the last event that the tail had read before: a batch that is not full has all
// wanted events up to last. It waits while ownReads other followers read.
func (f *Follower) readOwn(ctx context.Context, last int64) error {
	select {
	case f.feeds.own <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-f.feeds.own }()
	limit := min(f.tail.batch(), ownBatch)
	events, err := within(ctx, func(ctx context.Context) ([]*Event, error) { return f.source.Wanted(ctx, f.at, limit) })
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	now, err := within(ctx, f.feeds.store.ReadEventCursor)
	if err == nil && now.Epoch != f.tail.key.epoch {
		err = ErrRestored
	}
	if err != nil {
		return err
	}
	for _, e := range events {
		e.alone = true
	}
	if f.own = events; len(events) < limit {
		f.until = last
	}
	return nil
}
