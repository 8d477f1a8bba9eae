package op

import (
	"io"
	"net/http"
	"strings"
)

// maxValues bounds the values of a body. An empty object of three bytes takes some hundred in memory
// when it is unpacked, so that a body of a megabyte would take many.
const maxValues = 1 << 15

// fewValues cuts the body of an operation off behind maxValues values, where it is no JSON any more.
func (*API) fewValues(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody && strings.HasPrefix(r.URL.Path, Prefix+"/") {
			r.Body = &valueCounter{ReadCloser: r.Body, left: maxValues}
		}
		next.ServeHTTP(w, r)
	})
}

// valueCounter is a JSON text that ends behind the comma, bracket or brace with which its values are too
// many.
type valueCounter struct {
	io.ReadCloser

	left            int
	quoted, escaped bool
}

// Read implements io.Reader.
func (v *valueCounter) Read(p []byte) (int, error) {
	if v.left <= 0 {
		return 0, io.EOF
	}
	n, err := v.ReadCloser.Read(p)
	for i, c := range p[:n] {
		switch {
		case v.escaped:
			v.escaped = false
		case c == '\\':
			v.escaped = v.quoted
		case c == '"':
			v.quoted = !v.quoted
		case !v.quoted && (c == ',' || c == '[' || c == '{'):
			if v.left--; v.left <= 0 {
				return i + 1, nil
			}
		}
	}
	return n, err
}
