package db

import (
	"bytes"
	"encoding/json"
	"strings"
)

// ClipText makes a text that comes from outside fit to be stored: valid UTF-8, no
// zero byte (PostgreSQL has none), at most limit characters. A job must not
// hang because a machine's error message held a stray byte.
func ClipText(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
	runes := 0
	for i := range s {
		if runes == limit {
			return s[:i] + "…"
		}
		runes++
	}
	return s
}

// CleanJSON makes a JSON document fit to be stored: its strings hold no zero byte afterwards. It
// returns what is no JSON unchanged, and the database refuses that.
func CleanJSON(doc json.RawMessage) json.RawMessage {
	if !bytes.Contains(doc, []byte(`\u0000`)) {
		return doc
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber() // a large integer must not become a float
	var v any
	if err := d.Decode(&v); err != nil {
		return doc
	}
	clean, err := json.Marshal(withoutZero(v))
	if err != nil {
		return doc
	}
	return clean
}

func withoutZero(v any) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "\x00", "\ufffd")
	case []any:
		for i := range v {
			v[i] = withoutZero(v[i])
		}
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, inner := range v {
			out[strings.ReplaceAll(k, "\x00", "\ufffd")] = withoutZero(inner)
		}
		return out
	}
	return v
}
