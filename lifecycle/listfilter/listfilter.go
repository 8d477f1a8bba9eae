// Package listfilter reads the filters of lists of machines and runs: field=value or field!=value,
// joined by AND. Blanks may stand around each part. A value with other characters than letters,
// digits and . _ : / - stands in double quotes, with \" and \\ for these two.
package listfilter

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// The bounds of a filter.
const (
	MaxBytes = 2048
	MaxTerms = 16
	maxValue = 256
)

// labelPrefix begins the fields that name a label.
const labelPrefix = "labels."

// Term is one comparison.
type Term struct {
	Field   string // "phase", or "labels.env"
	Negated bool   // != instead of =
	Value   string
}

// Filter is a list of terms that all must hold. An empty one matches everything.
type Filter []Term

// Field is a field that a filter may name.
type Field struct {
	Name   string   // with labelPrefix alone, every name of a label
	Values []string // that it may be compared with; nil for any
}

// MachineFields returns the fields of machines. The types of conditions are fields with the values
// true and false.
func MachineFields() []Field {
	var phases []string
	for _, s := range lifecycle.MachinePhases.States {
		phases = append(phases, string(s.State))
	}
	fields := []Field{
		{Name: "machine_id"}, {Name: "phase", Values: phases}, {Name: "effective_state", Values: phases}, {Name: "provider"}, {Name: "customer_id"},
		{Name: "target_cluster_ref"}, {Name: labelPrefix},
	}
	for _, t := range lifecycle.ConditionTypes() {
		fields = append(fields, Field{Name: string(t), Values: []string{"true", "false"}})
	}
	return fields
}

// RunFields returns the fields of runs.
func RunFields() []Field {
	var phases, types []string
	for _, s := range lifecycle.Run.States {
		phases = append(phases, string(s.State))
	}
	for _, t := range lifecycle.RunTypes() {
		types = append(types, string(t))
	}
	return []Field{{Name: "run_id"}, {Name: "machine_id"}, {Name: "phase", Values: phases}, {Name: "type", Values: types}, {Name: "plan_id"}}
}

// Error says what is wrong with a filter and what it may be.
type Error struct{ Problem string }

func (e *Error) Error() string { return e.Problem }

func refuse(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// Parse reads a filter whose terms name the given fields. The error is an *Error; it repeats no
// value.
func Parse(text string, fields []Field) (Filter, error) {
	if len(text) > MaxBytes {
		return nil, refuse("the filter is longer than %d bytes", MaxBytes)
	}
	if !utf8.ValidString(text) {
		return nil, refuse("the filter is not UTF-8 text")
	}
	var f Filter
	rest := strings.TrimSpace(text)
	for rest != "" {
		if len(f) == MaxTerms {
			return nil, refuse("the filter has more than %d terms", MaxTerms)
		}
		if len(f) > 0 {
			after, found := strings.CutPrefix(rest, "AND")
			if !found || trimBlanks(after) == after {
				return nil, refuse("write AND between term %d and what follows it", len(f))
			}
			rest = trimBlanks(after)
		}
		term, left, err := parseTerm(rest, len(f)+1, fields)
		if err != nil {
			return nil, err
		}
		f = append(f, term)
		trimmed := trimBlanks(left)
		if left != "" && trimmed == left {
			return nil, refuse("write a space after term %d, or put its value in double quotes", len(f))
		}
		if rest = trimmed; rest == "AND" {
			return nil, refuse("write a term after AND")
		}
	}
	return f, nil
}

// blanks are the characters that may stand around each part of a filter.
const blanks = " \t\r\n"

func trimBlanks(text string) string { return strings.TrimLeft(text, blanks) }

// parseTerm reads the term that text begins with.
func parseTerm(text string, number int, fields []Field) (term Term, rest string, err error) {
	at := strings.IndexAny(text, "=!"+blanks)
	if at <= 0 {
		return Term{}, "", refuse("term %d is not field=value or field!=value", number)
	}
	term.Field, rest = text[:at], trimBlanks(text[at:])
	switch {
	case strings.HasPrefix(rest, "!="):
		term.Negated, rest = true, rest[2:]
	case strings.HasPrefix(rest, "="):
		rest = rest[1:]
	default:
		return Term{}, "", refuse("term %d is not field=value or field!=value", number)
	}
	rest = trimBlanks(rest)
	field, known := find(term.Field, fields)
	if !known {
		return Term{}, "", refuse("term %d names no field of this list; the fields are %s", number, names(fields))
	}
	if term.Value, rest, err = parseValue(rest, number); err != nil {
		return Term{}, "", err
	}
	if field.Values != nil && !slices.Contains(field.Values, term.Value) {
		return Term{}, "", refuse("%s is one of %s", term.Field, strings.Join(field.Values, ", "))
	}
	return term, rest, nil
}

// parseValue reads the value that text begins with.
func parseValue(text string, number int) (value, rest string, err error) {
	quoted := strings.HasPrefix(text, `"`)
	var b strings.Builder
	i := 0
	if quoted {
		i = 1
	}
	closed := false
	for ; i < len(text) && !closed; i++ {
		c := text[i]
		switch {
		case quoted && c == '"':
			closed = true
		case quoted && c == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			b.WriteByte(text[i])
		case quoted && (c < ' ' || c == '\\' || c == 0x7f):
			return "", "", refuse(`the value of term %d holds a control character, or a backslash that is neither \" nor \\`, number)
		case !quoted && !plain(c):
			return finish(b.String(), text[i:], number)
		default:
			b.WriteByte(c)
		}
	}
	if quoted && !closed {
		return "", "", refuse("the value of term %d has no closing quote", number)
	}
	if !quoted && b.Len() == 0 {
		return "", "", refuse(`term %d has no value; write "" for an empty one`, number)
	}
	return finish(b.String(), text[i:], number)
}

func finish(value, rest string, number int) (string, string, error) {
	if len(value) > maxValue {
		return "", "", refuse("the value of term %d is longer than %d bytes", number, maxValue)
	}
	return value, rest, nil
}

// plain reports whether a character of a value needs no quotes.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._:/-", c) >= 0
}

func find(name string, fields []Field) (Field, bool) {
	for _, f := range fields {
		if f.Name == name && name != labelPrefix || f.Name == labelPrefix && validLabel(strings.TrimPrefix(name, labelPrefix)) && strings.HasPrefix(name, labelPrefix) {
			return f, true
		}
	}
	return Field{}, false
}

func validLabel(name string) bool {
	return len(name) > 0 && len(name) <= 128 && !slices.ContainsFunc([]byte(name), func(c byte) bool { return !plain(c) })
}

func names(fields []Field) string {
	var out []string
	for _, f := range fields {
		if f.Name == labelPrefix {
			f.Name += "NAME"
		}
		out = append(out, f.Name)
	}
	return strings.Join(out, ", ")
}

// Label returns the name of the label that a term compares, and whether it compares one.
func (t Term) Label() (string, bool) { return strings.CutPrefix(t.Field, labelPrefix) }

// Match reports whether every term holds for the values of a resource. A field without a value is
// "".
func (f Filter) Match(value func(field string) string) bool {
	for _, t := range f {
		if (value(t.Field) == t.Value) == t.Negated {
			return false
		}
	}
	return true
}

// String returns the filter in one spelling, so that two texts of the same filter compare equal:
// the token of a page holds for one filter.
func (f Filter) String() string {
	parts := make([]string, len(f))
	for i, t := range f {
		sign := "="
		if t.Negated {
			sign = "!="
		}
		parts[i] = t.Field + sign + `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(t.Value) + `"`
	}
	slices.Sort(parts)
	return strings.Join(parts, " AND ")
}
