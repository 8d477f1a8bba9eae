package redfish

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
)

// doc is a resource read without a schema. The getters return the zero value
// for what is absent or of another type.
type doc map[string]any

func parseDoc(body []byte) (doc, error) {
	var d doc
	if err := json.Unmarshal(body, &d); err != nil {
		// The text of a JSON error may quote the body, which may echo a secret.
		return nil, errors.New("not a JSON object")
	}
	if d == nil {
		return nil, errors.New("not a JSON object")
	}
	return d, nil
}

func (d doc) text(key string) string {
	switch v := d[key].(type) {
	case string:
		return strings.TrimSpace(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

func (d doc) number(key string) (float64, bool) {
	switch v := d[key].(type) {
	case float64:
		return v, true
	case string:
		n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
	}
	return 0, false
}

func (d doc) flag(key string) bool {
	b, _ := d[key].(bool)
	return b
}

func (d doc) sub(keys ...string) doc {
	for _, k := range keys {
		m, ok := d[k].(map[string]any)
		if !ok {
			return nil
		}
		d = m
	}
	return d
}

func (d doc) list(key string) []any {
	l, _ := d[key].([]any)
	return l
}

// docs returns the objects of a list.
func (d doc) docs(key string) []doc {
	var out []doc
	for _, v := range d.list(key) {
		if m, ok := v.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func (d doc) texts(key string) []string {
	var out []string
	for _, v := range d.list(key) {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// link returns the @odata.id of a reference.
func (d doc) link(keys ...string) string { return d.sub(keys...).text("@odata.id") }

// links returns the @odata.id of each reference in a list.
func (d doc) links(key string) []string {
	var out []string
	for _, m := range d.docs(key) {
		if l := m.text("@odata.id"); l != "" {
			out = append(out, l)
		}
	}
	return out
}

// has reports whether any key starts with prefix.
func (d doc) has(prefix string) bool {
	for k := range d {
		if strings.HasPrefix(k, prefix) {
			return true
		}
	}
	return false
}

func baseName(uri string) string {
	uri = strings.TrimRight(uri, "/")
	return uri[strings.LastIndexByte(uri, '/')+1:]
}
