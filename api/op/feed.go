package op

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/db"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
)

// What a tail keeps for its followers, at most. A follower that needs older events reads them itself.
const (
	platformEvents, platformBytes = 4096, 16 << 20
	projectEvents, projectBytes   = 256, 1 << 20
	tailAge                       = time.Minute
	// eventOverhead and eventCopies estimate the memory of an event from its payload: the row, the
	// decoded message, and a text for each encoding.
	eventOverhead, eventCopies = 1 << 10, 8
)

const (
	tailBatch = 200
	ownBatch  = 50 // a blocked follower holds so many
	ownReads  = 4  // followers of a process that read the database at once
	readLimit = 10 * time.Second
	// readAttempts fail in a row before the streams end: their readers would come back all at once.
	readAttempts = 3
)

// ErrRestored is the end of a stream whose database was restored, or moved to another server.
var ErrRestored = errors.New(whyRestored)

// Event is one event that streams send. All streams of a process share it, and what they build of it.
type Event struct {
	Cursor int64
	Type   string
	Row    any // as the package below db returned it
	Size   int // of the payload, in bytes

	read   time.Time
	mu     sync.Mutex
	shared map[string]any
}

// Shared returns what build makes of an event. The first stream builds it, all others get the same.
func Shared[T any](e *Event, name string, build func() (T, error)) (T, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if v, ok := e.shared[name].(T); ok {
		return v, nil
	}
	v, err := build()
	if err == nil {
		if e.shared == nil {
			e.shared = map[string]any{}
		}
		e.shared[name] = v
	}
	return v, err
}

func (e *Event) cost() int { return eventOverhead + eventCopies*e.Size }

// Lister lists at most limit events after a cursor, in order.
type Lister func(ctx context.Context, after int64, limit int) ([]*Event, error)

// Source is what a stream follows. Two streams with the same Project share what All lists.
type Source struct {
	Project string // "" is the platform
	All     Lister
	// Wanted lists the events that Wants selects. Without both the stream wants all.
	Wanted Lister
	Wants  func(*Event) bool
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

// matches is the filter of db.Store.EventsAfter.
func matches(f db.EventFilter, e *Event) bool {
	row, ok := e.Row.(db.Event)
	return ok && (f.ResourceKind == "" || f.ResourceKind == row.ResourceKind) &&
		(f.ResourceID == "" || f.ResourceID == row.ResourceID) &&
		(f.NodeID == "" || row.NodeID != nil && f.NodeID == *row.NodeID)
}

// tailKey names a tail. Streams that began in another epoch of the database have a tail of their own,
// which ends at its first read.
type tailKey struct{ project, epoch string }

// tail is the newest events of a source.
type tail struct {
	key       tailKey
	list      Lister
	followers int // under the lock of the feed
	failed    int // reads in a row

	mu      sync.Mutex
	last    int64 // every event to here was read
	base    int64 // ring has every event after it, to last
	ring    []*Event
	bytes   int
	changed chan struct{} // closed by the next change
	err     error         // the end
}

// add appends events and forgets the oldest.
func (t *tail) add(events []*Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, e := range events {
		e.read = now
		t.ring, t.bytes, t.last = append(t.ring, e), t.bytes+e.cost(), e.Cursor
	}
	most, bytes := platformEvents, platformBytes
	if t.key.project != "" {
		most, bytes = projectEvents, projectBytes
	}
	for len(t.ring) > 0 && (len(t.ring) > most || t.bytes > bytes || now.Sub(t.ring[0].read) > tailAge) {
		t.base, t.bytes = t.ring[0].Cursor, t.bytes-t.ring[0].cost()
		t.ring[0], t.ring = nil, t.ring[1:]
	}
	if len(events) > 0 {
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

// end tells the followers why there are no more events.
func (t *tail) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err, t.ring = err, nil
		close(t.changed)
	}
}

// place is what a tail has after a cursor.
type place struct {
	event   *Event // nil: there is none yet
	behind  bool   // the tail has forgotten it
	last    int64
	changed <-chan struct{}
	err     error
}

func (t *tail) after(at int64) place {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := place{behind: at < t.base, last: t.last, changed: t.changed, err: t.err}
	if i := sort.Search(len(t.ring), func(i int) bool { return t.ring[i].Cursor > at }); i < len(t.ring) {
		p.event = t.ring[i]
	}
	return p
}

// feed reads the events that the streams of this process follow: each event once, however many follow.
// Its goroutine runs while there are streams.
type feed struct {
	store  *db.Store
	hub    *Hub
	own    chan struct{} // has an element for each follower that reads the database
	joined chan struct{} // a tail is new

	mu    sync.Mutex
	tails map[tailKey]*tail
	stop  context.CancelFunc // nil while no goroutine runs
}

func newFeed(store *db.Store) *feed {
	return &feed{
		store: store, hub: NewHub(store, db.ChannelEvents), own: make(chan struct{}, ownReads), joined: make(chan struct{}, 1), tails: map[tailKey]*tail{},
	}
}

func (d *feed) join(from StreamStart, s Source) *tail {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := tailKey{s.Project, from.Epoch}
	t := d.tails[key]
	if t == nil {
		t = &tail{key: key, list: s.All, last: from.last, base: from.last, changed: make(chan struct{})}
		d.tails[key] = t
		select {
		case d.joined <- struct{}{}:
		default: // it is told already
		}
	}
	t.followers++
	if d.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		d.stop = stop
		go d.run(ctx)
	}
	return t
}

func (d *feed) leave(t *tail) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.followers--; t.followers == 0 {
		d.remove(t)
	}
}

// remove is called under the lock. The last tail ends the goroutine.
func (d *feed) remove(t *tail) {
	if d.tails[t.key] != t {
		return
	}
	delete(d.tails, t.key)
	if len(d.tails) == 0 {
		d.stop()
		d.stop = nil
	}
}

func (d *feed) end(t *tail, err error) {
	d.mu.Lock()
	d.remove(t)
	d.mu.Unlock()
	t.end(err)
}

// run reads when the hub wakes it, when there is a new tail, and now and then, until ctx ends.
func (d *feed) run(ctx context.Context) {
	woken, leave := d.hub.Join("")
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

// read reads a batch for each tail, and the epoch after it, so that no event of another epoch is sent.
// It reports whether there may be more. A tail that cannot be read for some time ends, and its streams
// with it.
func (d *feed) read(ctx context.Context) (more bool) {
	d.mu.Lock()
	tails := slices.Collect(maps.Values(d.tails))
	d.mu.Unlock()
	heads, err := d.heads(ctx, tails)
	batches, errs := make([][]*Event, len(tails)), make([]error, len(tails))
	for i, t := range tails {
		if errs[i] = err; err == nil && (t.key.project == "" || heads[t.key.project] > t.last) {
			batches[i], errs[i] = bounded(ctx, func(ctx context.Context) ([]*Event, error) { return t.list(ctx, t.last, tailBatch) })
		}
	}
	now, err := bounded(ctx, d.store.ReadEventCursor)
	for i, t := range tails {
		switch err := errors.Join(errs[i], err); {
		case err != nil:
			if t.failed++; t.failed == readAttempts {
				d.end(t, err)
			}
		case now.Epoch != t.key.epoch:
			d.end(t, ErrRestored)
		default:
			t.failed = 0
			t.add(batches[i])
			more = more || len(batches[i]) == tailBatch
		}
	}
	return more
}

// heads returns the cursor of the last event of each project that has followers, in one query.
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
	return bounded(ctx, func(ctx context.Context) (map[string]int64, error) {
		return webhookdb.LastCursors(ctx, d.store, projects)
	})
}

func bounded[T any](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	return read(ctx)
}

// Follower is the place of one stream in its source. It belongs to one goroutine.
type Follower struct {
	feed   *feed
	tail   *tail
	source Source
	at     int64
	own    []*Event // read for this follower alone, when it was behind
	until  int64    // where it is after them
}

// Follow begins to follow a source after its start. The caller leaves in the end.
func (a *API) Follow(from StreamStart, s Source) *Follower {
	if s.Wanted == nil {
		s.Wanted, s.Wants = s.All, func(*Event) bool { return true }
	}
	return &Follower{feed: a.feed, tail: a.feed.join(from, s), source: s, at: from.Cursor}
}

// Leave ends the following.
func (f *Follower) Leave() { f.feed.leave(f.tail) }

// At returns the cursor up to which the follower has seen every event.
func (f *Follower) At() int64 { return f.at }

// Next returns the next event that the stream wants. While there is none it returns a channel that is
// closed when there may be one. ErrRestored and errors of the database end the stream.
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
		case p.err != nil:
			return nil, nil, p.err
		case p.behind:
			if err := f.readOwn(ctx, p.last); err != nil {
				return nil, nil, err
			}
		case p.event == nil:
			return nil, p.changed, nil
		default:
			f.at = p.event.Cursor
			if f.source.Wants(p.event) {
				return p.event, nil, nil
			}
		}
	}
	return nil, nil, ctx.Err()
}

// readOwn reads a batch for a follower that is behind its tail, whose last event the database has. Few do
// so at once.
func (f *Follower) readOwn(ctx context.Context, last int64) error {
	select {
	case f.feed.own <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-f.feed.own }()
	events, err := bounded(ctx, func(ctx context.Context) ([]*Event, error) { return f.source.Wanted(ctx, f.at, ownBatch) })
	if err != nil {
		return err
	}
	now, err := bounded(ctx, f.feed.store.ReadEventCursor)
	if err == nil && now.Epoch != f.tail.key.epoch {
		err = ErrRestored
	}
	if err != nil {
		return err
	}
	if f.own = events; len(events) < ownBatch {
		f.until = last
	}
	return nil
}
