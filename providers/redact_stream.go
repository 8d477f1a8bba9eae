package providers

import (
	"slices"
	"strings"
)

// RedactedStream hides the secrets of a Redaction in a stream of chunks, wherever a chunk ends. It
// holds back an end that may be the beginning of a secret.
type RedactedStream struct {
	forms []string
	first [256]bool // the first bytes of forms
	held  []byte
	next  int64 // bytes written and not held
	emit  func(clean []byte, next int64) error
}

// Stream returns a stream that begins at an offset. emit gets clean bytes, and the offset after the
// bytes that they stand for.
func (r Redaction) Stream(from int64, emit func(clean []byte, next int64) error) *RedactedStream {
	s := &RedactedStream{next: from, emit: emit}
	for _, form := range r.forms {
		if len(form) >= minRedacted {
			s.forms = append(s.forms, form)
			s.first[form[0]] = true
		}
	}
	return s
}

// Write implements io.Writer.
func (s *RedactedStream) Write(p []byte) (int, error) {
	text := append(s.held, p...)
	clean, rest := s.scan(text)
	s.next += int64(len(text) - len(rest))
	s.held = slices.Clone(rest)
	if len(clean) == 0 {
		return len(p), nil
	}
	return len(p), s.emit(clean, s.next)
}

// Close emits what was held: it was no secret, or the beginning of one that never came whole. The
// beginning of a secret is hidden too when it is long enough to be one by itself.
func (s *RedactedStream) Close() error {
	if len(s.held) == 0 {
		return nil
	}
	held := string(s.held)
	s.held = nil
	s.next += int64(len(held))
	for _, form := range s.forms {
		if len(held) >= minScrubbed && strings.HasPrefix(form, held) {
			return s.emit([]byte(Hidden), s.next)
		}
	}
	return s.emit([]byte(Redaction{s.forms}.Clean(held)), s.next)
}

// scan replaces the secrets in text. It returns the rest from where a secret may begin that text
// does not hold whole.
func (s *RedactedStream) scan(text []byte) (clean, rest []byte) {
	clean = make([]byte, 0, len(text))
	plain := 0
	for at := 0; at < len(text); {
		if !s.first[text[at]] {
			at++
			continue
		}
		whole, cut := s.match(text[at:])
		switch {
		case cut:
			return append(clean, text[plain:at]...), text[at:]
		case whole > 0:
			clean = append(append(clean, text[plain:at]...), Hidden...)
			at += whole
			plain = at
		default:
			at++
		}
	}
	return append(clean, text[plain:]...), nil
}

// match returns the length of the longest secret that text begins with, and whether text is the
// beginning of a longer one.
func (s *RedactedStream) match(text []byte) (whole int, cut bool) {
	for _, form := range s.forms {
		switch {
		case len(text) < len(form) && strings.HasPrefix(form, string(text)):
			return 0, true
		case whole == 0 && len(text) >= len(form) && string(text[:len(form)]) == form:
			whole = len(form) // the longest comes first
		}
	}
	return whole, false
}
