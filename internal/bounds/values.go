package bounds

import (
	"fmt"
	"io"
)

// MaxValues is the maximum number of values in a JSON body. An empty object of three bytes takes
// more than a hundred bytes in memory, so that a body of a megabyte could take many megabytes. A
// full report of an agent has some thousands of values.
const MaxValues = 1 << 15

// TooManyValues is the refusal of a body that has more values.
var TooManyValues = fmt.Sprintf("The body holds more than %d values.", MaxValues)

// Body reads a JSON body. It counts a value for each comma, bracket and brace outside texts, and
// ends after the one that exceeds MaxValues, where the body is not valid JSON.
type Body struct {
	io.ReadCloser

	values, most    int
	quoted, escaped bool
}

// NewBody returns a reader of a body.
func NewBody(r io.ReadCloser) *Body { return &Body{ReadCloser: r, most: MaxValues} }

// HasTooManyValues reports whether the part that was read has more than MaxValues values.
func (b *Body) HasTooManyValues() bool { return b.values > b.most }

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	if b.HasTooManyValues() {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	for i, c := range p[:n] {
		switch {
		case b.escaped:
			b.escaped = false
		case c == '\\':
			b.escaped = b.quoted
		case c == '"':
			b.quoted = !b.quoted
		case !b.quoted && (c == ',' || c == '[' || c == '{'):
			if b.values++; b.HasTooManyValues() {
				return i + 1, nil
			}
		}
	}
	return n, err
}
