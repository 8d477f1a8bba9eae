package maassim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// reply is one HTTP answer, rendered inside the transaction.
type reply struct {
	code   int
	header http.Header
	body   []byte
	wire   wireAct
}

// wireAct is something that a body cannot say.
type wireAct struct {
	reset bool          // cut the connection
	delay time.Duration // wall time before the answer
}

func text(code int, format string, args ...any) *reply {
	return raw(code, "text/plain; charset=utf-8", []byte(fmt.Sprintf(format, args...)))
}

func raw(code int, ctype string, body []byte) *reply {
	return &reply{code: code, header: http.Header{"Content-Type": {ctype}}, body: body}
}

func jsonReply(v any) *reply { return jsonCode(http.StatusOK, v) }

func jsonCode(code int, v any) *reply {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return text(500, "%s", err)
	}
	return raw(code, "application/json; charset=utf-8", bytes.TrimRight(b.Bytes(), "\n"))
}

// field is MAAS's form error: 400 with {"field": ["message"]}.
func field(name, format string, args ...any) *reply {
	return jsonCode(400, map[string][]string{name: {fmt.Sprintf(format, args...)}})
}

func (r *reply) with(key, value string) *reply { r.header.Set(key, value); return r }

func notFound(kind string) *reply { return text(404, "No %s matches the given query.", kind) }

// stateConflict is the final kind of 409: plain text, no Retry-After.
func stateConflict(format string, args ...any) *reply { return text(409, format, args...) }

// serialization is the passing kind of 409, after MAAS's own attempts.
func serialization() *reply {
	return raw(409, "text/html; charset=utf-8", []byte("<html><head><title>Conflict error. Try your request again, as it will most likely succeed.</title></head>"+
		"<body><h1>Conflict error. Try your request again, as it will most likely succeed.</h1></body></html>")).with("Retry-After", "5")
}

// millis is the stamp of last_sync and next_sync.
func millis(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// eventStamp is the stamp of events.
func eventStamp(t time.Time) string { return t.UTC().Format("Mon, 02 Jan. 2006 15:04:05") }

// resultStamp is the stamp of script results.
func resultStamp(t time.Time) any {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("Mon, 02 Jan 2006 15:04:05 -0000")
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func intOrNull(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

func list[T any](in []T) []T {
	if in == nil {
		return []T{}
	}
	return in
}

func splitList(s string) []string {
	var out []string
	for _, p := range strings.Split(s, ",") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}
