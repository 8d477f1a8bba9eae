package telemetry

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

const (
	// minSecret is the length below which a value is not searched for: replacing
	// every "ok" would make logs useless and hide nothing.
	minSecret = 4
	// endless is how long a value stays known when its call has no end.
	endless = 10 * time.Minute
)

// Redactor knows the secret values that are in use at present and replaces them in text. It is safe
// for concurrent use; the zero value knows none.
type Redactor struct {
	// Linger is how long values stay known after the end of their call: what is logged about a call
	// may be logged just after it.
	Linger time.Duration

	mu    sync.RWMutex
	inUse map[string]*usedValue
}

// usedValue is a value that calls in flight use.
type usedValue struct {
	forms []string
	calls int
}

// Use makes a value known until ctx, the context of the call that uses it, has ended. Temporal ends
// the context of an activity, and net/http that of a request, when its handler returns. A value
// that is a JSON object, as a BMC login is, also makes known the values of its secret keys.
func (r *Redactor) Use(ctx context.Context, value string) {
	release := r.hold(value)
	if ctx.Done() == nil {
		time.AfterFunc(endless, release)
		return
	}
	context.AfterFunc(ctx, func() {
		if r.Linger > 0 {
			time.AfterFunc(r.Linger, release)
			return
		}
		release()
	})
}

// hold makes a value known and returns what ends that.
func (r *Redactor) hold(value string) (release func()) {
	values := []string{value}
	var object map[string]any
	if json.Unmarshal([]byte(value), &object) == nil {
		for key, inner := range object {
			if text, ok := inner.(string); ok && secretKey(key) {
				values = append(values, text)
			}
		}
	}
	for i, v := range values {
		values[i] = strings.TrimSpace(v)
	}
	values = slices.DeleteFunc(values, func(v string) bool { return len(v) < minSecret })
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inUse == nil {
		r.inUse = map[string]*usedValue{}
	}
	for _, v := range values {
		if r.inUse[v] == nil {
			forms := slices.DeleteFunc(providers.SecretForms(v), func(form string) bool { return len(form) < minSecret })
			r.inUse[v] = &usedValue{forms: forms}
		}
		r.inUse[v].calls++
	}
	return func() { r.release(values) }
}

func (r *Redactor) release(values []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range values {
		if r.inUse[v].calls--; r.inUse[v].calls == 0 {
			delete(r.inUse, v)
		}
	}
}

// Redact returns text without the values in use, URL passwords and Authorization credentials.
func (r *Redactor) Redact(text string) string {
	if found := r.find(text); len(found) > 0 {
		// Where two match at one place the replacer takes the first pair, so longer values come
		// first: one must not be cut open by its own beginning.
		slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
		pairs := make([]string, 0, 2*len(found))
		for _, form := range found {
			pairs = append(pairs, form, Hidden)
		}
		text = strings.NewReplacer(pairs...).Replace(text)
	}
	return cleanText(text)
}

// find lists the forms of values in use that text holds.
func (r *Redactor) find(text string) (found []string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, v := range r.inUse {
		for _, form := range v.forms {
			if strings.Contains(text, form) {
				found = append(found, form)
			}
		}
	}
	return found
}

// redactingWriter redacts each write. A slog handler writes one whole record at
// a time, so a value is never split between two writes.
type redactingWriter struct {
	to       io.Writer
	redactor *Redactor
}

// Write reports len(p) on success, whatever the length after redaction.
func (w *redactingWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.to, w.redactor.Redact(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
