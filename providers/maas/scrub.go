package maas

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slipway-cloud/slipway/providers"
)

const hidden = providers.Hidden

// scrubber removes the secrets of one call from what the other side said: MAAS
// names the token it rejects and may repeat a parameter it could not use.
type scrubber struct{ forms []string }

// newScrubber knows the parts of the API key and the given further secrets, in
// the spellings in which an answer could repeat them.
func newScrubber(key providers.Secret, more ...providers.Secret) scrubber {
	values := strings.Split(key.Reveal(), ":")
	for _, s := range more {
		values = append(values, s.Reveal())
	}
	seen := map[string]bool{"": true}
	var out scrubber
	for _, v := range values {
		for _, form := range append(providers.SecretForms(v), plain(v)) {
			if !seen[form] {
				seen[form] = true
				out.forms = append(out.forms, form)
			}
		}
	}
	// The longest first, or a part would break the whole.
	sort.Slice(out.forms, func(i, j int) bool { return len(out.forms[i]) > len(out.forms[j]) })
	return out
}

// clean returns text without any secret. A secret of under four letters would
// be found inside ordinary words; then the whole text is withheld.
func (s scrubber) clean(text string) string {
	for _, form := range s.forms {
		if !strings.Contains(text, form) {
			continue
		}
		if len(form) < 4 {
			return "(the answer repeats a secret and is withheld)"
		}
		text = strings.ReplaceAll(text, form, hidden)
	}
	return text
}

// plain makes a text fit for one line: valid UTF-8, no control characters,
// runs of space as one.
func plain(text string) string {
	text = strings.ToValidUTF8(text, "?")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}

// bounded cuts text to at most n bytes at a rune's edge.
func bounded(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "..."
}
