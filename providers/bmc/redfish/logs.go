package redfish

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/slipway-cloud/slipway/providers"
)

// The bounds of one reading of logs.
const (
	maxLogRequests = 256
	maxLogServices = 64
	maxLogEntries  = 4000
	maxLogText     = 1024
)

// skippedLogs hold memory images and boot codes: nothing that is read as a line.
var skippedLogs = []string{"dump", "postcodes", "debugtoken", "fdr", "callhome"}

// logReader gathers entries.
type logReader struct {
	b       *BMC
	op      *operation
	known   func(providers.BMCLogEntry) bool
	out     providers.BMCLogs
	visited map[string]bool
}

// Logs reads every log of systems, managers and chassis, the event logs first. A log that cannot be
// read, or not to its end, is named in Partial. It clears nothing.
func (b *BMC) Logs(ctx context.Context, known func(providers.BMCLogEntry) bool) (providers.BMCLogs, error) {
	op := newOperation("logs", maxLogRequests)
	op.kept = newKeptDocs()
	if err := b.conn.ready(ctx, op); err != nil {
		return providers.BMCLogs{}, err
	}
	l := &logReader{b: b, op: op, known: known, visited: map[string]bool{}}
	services, err := l.services(ctx)
	if err != nil {
		return providers.BMCLogs{}, err
	}
	for _, s := range services {
		if err := l.service(ctx, s); err != nil {
			return providers.BMCLogs{}, err
		}
	}
	b.secrets.scrub(&l.out)
	return l.out, nil
}

// failed records a log that could not be read, and returns err when the whole BMC is concerned.
func (l *logReader) failed(ctx context.Context, link string, err error) error {
	if !listable(err) && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	l.partial(link, reason(err))
	return nil
}

func (l *logReader) partial(link, why string) {
	if len(l.out.Partial) < maxFindings {
		l.out.Partial = append(l.out.Partial, l.b.secrets.text(link)+": "+why)
	}
}

// services lists the logs, those first that tell of hardware.
func (l *logReader) services(ctx context.Context) ([]string, error) {
	var out []string
	for _, list := range []string{"Systems", "Managers", "Chassis"} {
		err := l.each(ctx, l.b.conn.root.link(list), func(d doc) error {
			at := d.link("LogServices")
			if at == "" || l.visited[at] {
				return nil // managers and chassis often share the system's list
			}
			l.visited[at] = true
			uris, err := l.b.conn.members(ctx, l.op, at)
			if err != nil {
				if err := l.failed(ctx, at, err); err != nil {
					return err
				}
			}
			for _, u := range uris {
				if !slices.Contains(out, u) && !slices.ContainsFunc(skippedLogs, func(w string) bool { return strings.Contains(strings.ToLower(baseName(u)), w) }) {
					out = append(out, u)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	rank := func(uri string) int {
		for i, word := range []string{"sel", "iml", "event", "xid", "lclog", "platform", "log1", "journal"} {
			if strings.Contains(strings.ToLower(baseName(uri)), word) {
				return i
			}
		}
		return 8
	}
	slices.SortStableFunc(out, func(a, b string) int { return rank(a) - rank(b) })
	if len(out) > maxLogServices {
		l.partial(out[maxLogServices], "the BMC has more logs than are read")
		out = out[:maxLogServices]
	}
	return out, nil
}

func (l *logReader) each(ctx context.Context, link string, f func(doc) error) error {
	if link == "" {
		return nil
	}
	uris, err := l.b.conn.members(ctx, l.op, link)
	if err != nil {
		if err := l.failed(ctx, link, err); err != nil {
			return err
		}
	}
	for _, u := range uris {
		d, err := l.b.conn.get(ctx, l.op, u)
		if err != nil {
			err = l.failed(ctx, u, err)
		} else {
			err = f(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// service reads the entries of one log, page by page. Entries that the list only links are read one
// by one: those first that known does not know, then the last of those it knows, since a log that
// was cleared gives their ids again.
func (l *logReader) service(ctx context.Context, uri string) error {
	d, err := l.b.conn.get(ctx, l.op, uri)
	if err != nil {
		return l.failed(ctx, uri, err)
	}
	var fresh, old []string
	next := d.link("Entries")
	for page := 0; next != ""; page++ {
		at := next
		if page >= maxPages {
			l.partial(uri, "its list does not end")
			break
		}
		list, err := l.b.conn.get(ctx, l.op, at)
		if err != nil {
			if err := l.failed(ctx, at, err); err != nil {
				return err
			}
			break
		}
		for _, m := range list.docs("Members") {
			switch link := m.text("@odata.id"); {
			case m["Message"] != nil || m["Created"] != nil || m["MessageId"] != nil:
				l.add(uri, m)
			case link == "":
			case l.known(providers.BMCLogEntry{Service: uri, ID: baseName(link)}):
				old = append(old, link)
			default:
				fresh = append(fresh, link)
			}
		}
		if next = list.text("Members@odata.nextLink"); next == at {
			break
		}
	}
	slices.Reverse(old)
	for _, link := range append(fresh, old[:min(len(old), 8)]...) {
		e, err := l.b.conn.get(ctx, l.op, link)
		if err != nil {
			if err := l.failed(ctx, link, err); err != nil {
				return err
			}
			if !passable(err) {
				break // nothing more can be asked
			}
			continue
		}
		l.add(uri, e)
	}
	return nil
}

// add takes an entry that is not known.
func (l *logReader) add(service string, d doc) {
	e := providers.BMCLogEntry{
		Service: l.b.secrets.text(service), ID: l.b.secrets.text(d.text("Id")), MessageID: l.b.secrets.text(d.text("MessageId")),
		Severity: severityOf(d), Message: l.message(d.text("Message")),
	}
	if e.ID == "" {
		e.ID = l.b.secrets.text(baseName(d.text("@odata.id")))
	}
	if at, err := time.Parse(time.RFC3339, d.text("Created")); err == nil {
		e.Created = at.UTC()
	}
	if l.known(e) {
		return
	}
	if len(l.out.Entries) >= maxLogEntries {
		if len(l.out.Partial) == 0 || !strings.HasSuffix(l.out.Partial[len(l.out.Partial)-1], moreEntries) {
			l.partial(service, moreEntries)
		}
		return
	}
	l.out.Entries = append(l.out.Entries, e)
}

const moreEntries = "more new entries than are read at once"

// message bounds the text of an entry and withholds one that repeats a secret.
func (l *logReader) message(s string) string {
	text := strings.ToValidUTF8(s[:min(len(s), maxLogText)], "")
	if l.b.secrets.secretIn(s) { // also where the bound cuts it
		return l.b.secrets.text(s)
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, text)
}

// severityOf reads the severity of an entry, from the older property where the newer is missing.
func severityOf(d doc) string {
	for _, key := range []string{"MessageSeverity", "Severity"} {
		switch h := schemas.Health(d.text(key)); h {
		case schemas.OKHealth, schemas.WarningHealth, schemas.CriticalHealth:
			return string(h)
		}
	}
	return "Unknown"
}
