package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// outageQuiet is how long no line of an outage has to come until the outage counts as over.
const outageQuiet = 30 * time.Second

// CountOutages returns a logger that writes the first line of an outage and counts the others. When
// none has come for 30 seconds, it writes how many it left out. nameOf names the system that err
// says is away, "" for every other error; it is asked about each error attribute of a line.
func CountOutages(log *slog.Logger, nameOf func(err error) string) *slog.Logger {
	return slog.New(&outageHandler{log.Handler(), &outages{next: log.Handler(), nameOf: nameOf, open: map[string]*outage{}}})
}

// outages are those that all handlers of a logger share.
type outages struct {
	next   slog.Handler
	nameOf func(error) string

	mu   sync.Mutex
	open map[string]*outage
}

type outage struct {
	since, last time.Time
	leftOut     int
	over        *time.Timer
}

type outageHandler struct {
	slog.Handler
	shared *outages
}

// Handle implements slog.Handler.
func (h *outageHandler) Handle(ctx context.Context, r slog.Record) error {
	name := ""
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			name = h.shared.nameOf(err)
		}
		return name == ""
	})
	if name != "" && !h.shared.isFirst(name) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *outageHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &outageHandler{h.Handler.WithAttrs(attrs), h.shared}
}

// WithGroup implements slog.Handler.
func (h *outageHandler) WithGroup(name string) slog.Handler {
	return &outageHandler{h.Handler.WithGroup(name), h.shared}
}

// isFirst reports whether a line is the first of its outage, and counts it otherwise.
func (o *outages) isFirst(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if open, ok := o.open[name]; ok {
		open.last = now
		open.leftOut++
		open.over.Reset(outageQuiet)
		return false
	}
	o.open[name] = &outage{since: now, last: now, over: time.AfterFunc(outageQuiet, func() { o.end(name) })}
	return true
}

// end writes the last line of an outage, unless another line has just come.
func (o *outages) end(name string) {
	o.mu.Lock()
	open, ok := o.open[name]
	if !ok || time.Since(open.last) < outageQuiet {
		o.mu.Unlock()
		return
	}
	delete(o.open, name)
	o.mu.Unlock()
	if open.leftOut == 0 {
		return
	}
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "an outage is over; its other lines were left out", 0)
	r.AddAttrs(slog.String("of", name), slog.Int("left_out", open.leftOut), slog.Time("since", open.since), slog.Time("until", open.last))
	_ = o.next.Handle(context.Background(), r)
}
