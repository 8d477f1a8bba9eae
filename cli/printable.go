package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// textWriter replaces each character that a terminal would act on or not show, and that a node, a
// BMC or another user may have put into a text. Everything that a run prints goes through it. With
// raw it changes nothing.
type textWriter struct {
	w    io.Writer
	raw  *bool
	rest []byte // the begun character at the end of the last write
}

func (t *textWriter) Write(p []byte) (int, error) {
	if *t.raw {
		return t.w.Write(p)
	}
	in := append(t.rest, p...) //nolint:gocritic // rest is assigned again below
	whole := len(in)
	for back := 1; back < utf8.UTFMax && back <= len(in); back++ {
		if b := in[len(in)-back]; utf8.RuneStart(b) {
			if !utf8.FullRune(in[len(in)-back:]) {
				whole -= back
			}
			break
		}
	}
	t.rest = append([]byte(nil), in[whole:]...)
	text := strings.Map(func(r rune) rune {
		if isUnsafe(r) {
			return utf8.RuneError
		}
		return r
	}, string(in[:whole]))
	if _, err := io.WriteString(t.w, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// isUnsafe is true for control characters, except line feed and tab, and for characters that are
// invisible or change the direction of the text around them.
func isUnsafe(r rune) bool {
	return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// oneLine keeps a text in its line and in its column.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '\n', '\r', '\t', '\v', '\f', 0x85, 0x2028, 0x2029:
			return ' '
		}
		return r
	}, s)
}

// escapeJSON writes unsafe characters of a JSON document in their escaped form, which means the
// same. They can stand only in its strings.
func escapeJSON(doc string) string {
	return escapeUnsafe(doc, func(r rune) string {
		if r > 0xffff {
			high, low := utf16.EncodeRune(r)
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// escapeYAML is escapeJSON for a YAML document whose strings with unsafe characters are in double
// quotes.
func escapeYAML(doc string) string {
	return escapeUnsafe(doc, func(r rune) string { return fmt.Sprintf(`\U%08X`, r) })
}

func escapeUnsafe(doc string, form func(rune) string) string {
	var b strings.Builder
	for _, r := range doc {
		if isUnsafe(r) {
			b.WriteString(form(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
