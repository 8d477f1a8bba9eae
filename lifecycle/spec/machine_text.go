package spec

import (
	"net/netip"
	"strings"
	"unicode"
)

// MaxFact is how many characters are kept of what a machine says of itself.
const MaxFact = 128

// CleanText makes a text that a machine says of itself harmless wherever it is
// shown or written: letters, digits, blanks and ._:/+,()@=- stay, anything else
// becomes a question mark; at most limit characters.
func CleanText(text string, limit int) string {
	out := make([]rune, 0, min(len(text), limit))
	for _, r := range strings.TrimSpace(text) {
		if len(out) == limit {
			break
		}
		if !harmless(r) {
			r = '?'
		}
		out = append(out, r)
	}
	return string(out)
}

func harmless(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" ._:/+,()@=-", r)
}

// NormalIP is an IP address in its usual form, or "" for anything else.
func NormalIP(text string) string {
	ip, err := netip.ParseAddr(strings.TrimSpace(text))
	if err != nil || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() {
		return ""
	}
	return ip.Unmap().String()
}

// OneLine returns a text in one line for display. Characters that cannot be shown become blanks. It
// does not bound the length.
func OneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
}
