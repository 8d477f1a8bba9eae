package telemetry

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	// minSecret is the length below which a value is not searched for: replacing
	// every "ok" would make logs useless and hide nothing.
	minSecret = 4
	// maxSecrets bounds what is remembered; the oldest value is forgotten first.
	maxSecrets = 4096
)

// Redactor knows secret values and replaces them in text. It is safe for
// concurrent use; the zero value knows none.
type Redactor struct {
	mu       sync.Mutex
	known    map[string]struct{}
	order    []string // oldest first
	replacer *strings.Replacer
}

// Register makes values known. A value that is a JSON object, as a BMC login is,
// also makes known the values of its secret keys. Registering twice is harmless.
func (r *Redactor) Register(values ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range values {
		r.add(v)
		var object map[string]any
		if json.Unmarshal([]byte(v), &object) != nil {
			continue
		}
		for key, inner := range object {
			if text, ok := inner.(string); ok && secretKey(key) {
				r.add(text)
			}
		}
	}
}

func (r *Redactor) add(v string) {
	v = strings.TrimSpace(v)
	if _, twice := r.known[v]; twice || len(v) < minSecret {
		return
	}
	if r.known == nil {
		r.known = map[string]struct{}{}
	}
	if len(r.order) >= maxSecrets {
		delete(r.known, r.order[0])
		r.order = r.order[1:]
	}
	r.known[v] = struct{}{}
	r.order = append(r.order, v)
	r.replacer = nil // built again when next needed
}

// Redact returns text without known values, URL passwords and Authorization
// credentials.
func (r *Redactor) Redact(text string) string {
	r.mu.Lock()
	if r.replacer == nil {
		r.replacer = r.build()
	}
	replacer := r.replacer
	r.mu.Unlock()
	return cleanText(replacer.Replace(text))
}

// build makes the search for all known values in the forms that they take in
// logs: as they are, escaped by JSON or Go, in a URL, in base64.
// Where two match at one place the replacer takes the first pair, so longer
// values come first: one must not be cut open by its own beginning.
func (r *Redactor) build() *strings.Replacer {
	values := slices.Clone(r.order)
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 4*len(values))
	for _, v := range values {
		for _, form := range forms(v) {
			pairs = append(pairs, form, Hidden)
		}
	}
	return strings.NewReplacer(pairs...)
}

func forms(v string) []string {
	out := []string{v}
	more := []string{
		inside(strconv.Quote(v)), url.QueryEscape(v), url.PathEscape(v), base64.StdEncoding.EncodeToString([]byte(v)),
	}
	for _, html := range []bool{true, false} {
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(html)
		if enc.Encode(v) == nil {
			more = append(more, inside(strings.TrimSuffix(b.String(), "\n")))
		}
	}
	for _, f := range more {
		if f != v {
			out = append(out, f)
		}
	}
	return out
}

// inside takes the quotes off.
func inside(quoted string) string { return quoted[1 : len(quoted)-1] }

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
