package providers

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Hidden stands where a secret was.
const Hidden = "[secret]"

const (
	// minRedacted is the length below which a value is not searched for in text: it would be found
	// inside ordinary words.
	minRedacted = 4
	// minScrubbed is the same for results, where a replaced word may change what they mean.
	minScrubbed = 8
	// minLine is the least length of one line of a longer secret that is hidden by itself.
	minLine = 16
)

// SecretForms lists the spellings in which a text may repeat a value: as it is, escaped by Go,
// JSON, HTML or Python, in a URL, and in base64. A value of several lines adds its long lines, and
// what stands after a colon in them.
func SecretForms(v string) []string {
	quoted := strconv.Quote(v)
	out := []string{
		v, quoted[1 : len(quoted)-1], url.QueryEscape(v), url.PathEscape(v), html.EscapeString(v),
		strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(v), base64.StdEncoding.EncodeToString([]byte(v)),
	}
	for _, escape := range []bool{true, false} {
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(escape)
		if enc.Encode(v) == nil {
			out = append(out, b.String()[1:b.Len()-2]) // without quotes and newline
		}
	}
	if strings.Contains(v, "\n") {
		for lines := bufio.NewScanner(strings.NewReader(v)); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			if _, after, ok := strings.Cut(line, ": "); ok {
				line = strings.TrimSpace(after)
			}
			if len(line) >= minLine && !strings.HasPrefix(line, "-----") {
				out = append(out, line)
			}
		}
	}
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return slices.DeleteFunc(slices.Compact(out), func(form string) bool { return form == "" })
}

// Redaction hides the secrets of one call in what the other side said. The zero value hides
// nothing.
type Redaction struct{ forms []string }

// NewRedaction returns the redaction of the given secrets.
func NewRedaction(secrets ...Secret) Redaction {
	var r Redaction
	for _, s := range secrets {
		if !s.IsZero() {
			r.forms = append(r.forms, SecretForms(s.Reveal())...)
		}
	}
	slices.SortFunc(r.forms, func(a, b string) int { return len(b) - len(a) }) // a part must not break the whole
	return r
}

// Found reports whether text repeats a secret, however short it is.
func (r Redaction) Found(text string) bool {
	return slices.ContainsFunc(r.forms, func(form string) bool { return strings.Contains(text, form) })
}

// Clean returns text without the secrets.
func (r Redaction) Clean(text string) string { return r.hide(text, minRedacted) }

// Error returns err with a clean message and cause where it is an *Error.
func (r Redaction) Error(err error) error {
	pe, ok := err.(*Error) //nolint:errorlint // providers return it as it is
	if !ok || len(r.forms) == 0 {
		return err
	}
	out := *pe
	out.Message = r.Clean(pe.Message)
	if pe.Err != nil && r.Found(pe.Err.Error()) {
		out.Err = fmt.Errorf("%s", r.Clean(pe.Err.Error()))
	}
	return &out
}

func (r Redaction) hide(text string, least int) string {
	for _, form := range r.forms {
		if len(form) >= least && strings.Contains(text, form) {
			text = strings.ReplaceAll(text, form, Hidden)
		}
	}
	return text
}

// Scrub hides the secrets in every text that result, a pointer, leads to. Short secrets stay: there
// a word of a result may be the same by chance.
func (r Redaction) Scrub(result any) {
	if len(r.forms) > 0 {
		r.scrub(reflect.ValueOf(result))
	}
}

func (r Redaction) scrub(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			r.scrub(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			r.scrub(v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			r.scrub(v.Index(i))
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(r.hide(v.String(), minScrubbed))
		}
	default:
	}
}
