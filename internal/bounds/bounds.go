// Package bounds enforces the bounds that struct tags state for everything that comes in from
// outside: minimum and maximum of numbers, maxLength of texts, maxItems of lists with itemMaxLength
// of their texts, and maxProperties of maps. Texts must hold no control characters and none that
// change the direction of what follows; the tag text:"any" exempts a field, such as a password.
// With text:"clean" a text is made harmless and cut instead, because what a machine reports must
// not keep its report from being heard.
package bounds

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxKey is how many characters a key of a map may have.
const MaxKey = 256

// Violation is one value that is out of bounds. The value itself is not repeated.
type Violation struct{ Location, Message string }

// Check cleans what v points to and returns what is out of bounds. Locations are those of problem
// documents, such as body.spec.gpus and query.limit.
func Check(v any) []Violation {
	var c checker
	c.value(reflect.ValueOf(v).Elem(), "", "")
	return c.found
}

type checker struct{ found []Violation }

func (c *checker) add(at, format string, args ...any) {
	c.found = append(c.found, Violation{at, fmt.Sprintf(format, args...)})
}

// value checks v, which stands at a location in a field with a tag.
func (c *checker) value(v reflect.Value, at string, tag reflect.StructTag) {
	if isText(v.Type()) {
		return // it is checked where it is decoded
	}
	switch v.Kind() { //nolint:exhaustive // the others hold nothing that could be out of bounds
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() && v.Kind() == reflect.Pointer {
			c.value(v.Elem(), at, tag)
		}
	case reflect.Struct:
		for f, value := range v.Fields() {
			if f.IsExported() {
				c.value(value, location(at, f), f.Tag)
			}
		}
	case reflect.String:
		c.text(v, at, tag)
	case reflect.Slice, reflect.Array:
		c.list(v, at, tag)
	case reflect.Map:
		c.table(v, at, tag)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		c.number(float64(v.Int()), at, tag)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		c.number(float64(v.Uint()), at, tag)
	case reflect.Float32, reflect.Float64:
		c.number(v.Float(), at, tag)
	}
}

// number checks a number. 0 is how Go says that a field was left out.
func (c *checker) number(n float64, at string, tag reflect.StructTag) {
	least, low := limit(tag, "minimum")
	most, high := limit(tag, "maximum")
	if n != 0 && (math.IsNaN(n) || low && n < least || high && n > most) {
		c.add(at, "must be %s to %s", tag.Get("minimum"), tag.Get("maximum"))
	}
}

func (c *checker) text(v reflect.Value, at string, tag reflect.StructTag) {
	most, bounded := limit(tag, "maxLength")
	if tag.Get("text") == "clean" && v.CanSet() {
		v.SetString(Clean(v.String(), int(most)))
		return
	}
	if s := v.String(); bounded && utf8.RuneCountInString(s) > int(most) {
		c.add(at, "must have at most %d characters", int(most))
	} else if tag.Get("text") != "any" && !isPlain(s) {
		c.add(at, "must not hold control characters, nor characters that change the direction of the text")
	}
}

// list checks a list and its elements. A list of bytes is bounded by maxLength.
func (c *checker) list(v reflect.Value, at string, tag reflect.StructTag) {
	what, name := "maxItems", "elements"
	if v.Type().Elem().Kind() == reflect.Uint8 {
		what, name = "maxLength", "bytes"
	}
	if most, ok := limit(tag, what); ok && v.Len() > int(most) {
		c.add(at, "must have at most %d %s", int(most), name)
		return
	}
	if name == "bytes" {
		return
	}
	for i := range v.Len() {
		c.value(v.Index(i), fmt.Sprintf("%s[%d]", at, i), itemTag(tag))
	}
}

func (c *checker) table(v reflect.Value, at string, tag reflect.StructTag) {
	if most, ok := limit(tag, "maxProperties"); ok && v.Len() > int(most) {
		c.add(at, "must have at most %d keys", int(most))
		return
	}
	for k, e := range v.Seq2() {
		if key := k.String(); utf8.RuneCountInString(key) > MaxKey || !isPlain(key) {
			c.add(at, "must have keys of at most %d plain characters", MaxKey)
			continue
		}
		c.value(e, at+"."+k.String(), itemTag(tag))
	}
}

// itemTag is the tag of the elements of a field.
func itemTag(tag reflect.StructTag) reflect.StructTag {
	out := `text:"` + tag.Get("text") + `"`
	if most := tag.Get("itemMaxLength"); most != "" {
		out += ` maxLength:"` + most + `"`
	}
	return reflect.StructTag(out)
}

func limit(tag reflect.StructTag, name string) (float64, bool) {
	n, err := strconv.ParseFloat(tag.Get(name), 64)
	return n, err == nil
}

// location names a field within at.
func location(at string, f reflect.StructField) string {
	for _, in := range []string{"path", "query", "header"} {
		if name := f.Tag.Get(in); name != "" {
			return in + "." + name
		}
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name == "" && f.Anonymous:
		return at
	case name == "" && f.Name == "Body":
		return "body"
	case name == "":
		name = f.Name
	}
	return strings.TrimPrefix(at+"."+name, ".")
}

// isText reports whether values of t are written as texts that t reads by itself.
func isText(t reflect.Type) bool {
	return t == reflect.TypeFor[time.Time]() || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// isPlain reports whether a text can be shown anywhere without harm. It may have several lines.
func isPlain(s string) bool {
	for _, r := range s {
		if !plain(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}

func plain(r rune) bool {
	return r == '\n' || r == '\r' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r) && r != '\u2028' && r != '\u2029'
}

// Clean returns a text in which a question mark stands for each character that is not plain, cut to
// a number of characters; 0 is no limit.
func Clean(s string, most int) string {
	n := 0
	return strings.Map(func(r rune) rune {
		if n++; most > 0 && n > most {
			return -1
		}
		if !plain(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}
