// Package secretscan searches what Slipway writes for secrets: workflow histories with every
// payload decoded, every column of the database, logs and printed output. The caller names the
// secrets; the search finds them as they are, in base64, in hex and in URL-escaped form, and inside
// JSON that is written in a string. A finding names the place and the kind of secret, never the
// secret.
package secretscan

import (
	"cmp"
	"slices"

	"go.temporal.io/sdk/converter"
)

// Secret is a value that must be found nowhere.
type Secret struct {
	Kind  string // what it is, for a finding
	Value string
}

// Hash is the SHA-256 of a token whose text the caller does not know. The token must be 43 or 47
// characters of the alphabet of URL-safe base64: 256 random bits, with or without "pxe_".
type Hash struct {
	Kind   string
	SHA256 [32]byte
}

// Finding is a secret that was found.
type Finding struct {
	Place string // for example a workflow and its event, a table with column and row, a line of a log
	Kind  string // of the secret
	Form  string // in which it was written
}

func (f Finding) String() string { return f.Place + ": " + f.Kind + ", in " + f.Form + " form" }

// maxFindings bounds the findings that are kept. A secret in a loop may be found a million times.
const maxFindings = 1000

// Counts says how much was searched.
type Counts struct {
	Histories, Events, Payloads int
	Rows, Columns               int // a column counts once, however many rows its table has
	LogLines, LogBytes          int
	Secrets, Forms              int
}

// Searcher searches for a fixed set of secrets. It is for one goroutine.
type Searcher struct {
	Counts   Counts
	Searched Runs // whose histories were searched to their end
	// Payloads decrypts payloads before they are searched. Nil when they are plain.
	Payloads converter.PayloadCodec
	// LeftOut are the secrets that are not searched for, because they are shorter than minPattern.
	// The caller decides whether that is an error.
	LeftOut []Secret

	patterns patterns
	tokens   map[[32]byte]string // kind by hash
	found    map[Finding]struct{}
	unread   error // of a payload that could not be decrypted
}

// New returns a Searcher for secrets and for the tokens behind hashes. Values that are too short to
// be told from other text are not searched for: they are in LeftOut.
func New(secrets []Secret, hashes []Hash) *Searcher {
	s := &Searcher{patterns: newPatterns(secrets), tokens: map[[32]byte]string{}, found: map[Finding]struct{}{}, Searched: Runs{}}
	for _, h := range hashes {
		s.tokens[h.SHA256] = h.Kind
	}
	for _, secret := range secrets {
		if len(secret.Value) < minPattern {
			s.LeftOut = append(s.LeftOut, secret)
		}
	}
	s.Counts.Secrets, s.Counts.Forms = len(secrets)-len(s.LeftOut)+len(s.tokens), s.patterns.count
	return s
}

// Search searches data, and what is encoded in it, and records findings under place.
func (s *Searcher) Search(place string, data []byte) {
	Layers(data, func(layer []byte) {
		s.patterns.match(layer, func(kind, form string) { s.record(Finding{place, kind, form}) })
		s.searchTokens(place, layer)
	})
}

// nameOf returns the id of a place for a finding, which must not repeat a secret.
func (s *Searcher) nameOf(id string) string {
	s.patterns.match([]byte(id), func(string, string) { id = "whose id holds a secret" })
	return id
}

func (s *Searcher) record(f Finding) {
	if len(s.found) < maxFindings {
		s.found[f] = struct{}{}
	}
}

// Findings returns what was found so far, sorted by place, without repeats.
func (s *Searcher) Findings() []Finding {
	out := make([]Finding, 0, len(s.found))
	for f := range s.found {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Form, b.Form))
	})
	return out
}
