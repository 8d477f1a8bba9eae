package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"unicode"

	"github.com/slipway-cloud/slipway/providers"
)

// Hidden stands where a secret was.
const Hidden = providers.Hidden

// redactingHandler hides the values of attributes whose key says that they are
// secret, at any depth, before the next handler formats them. Known secret
// values are the redactingWriter's business.
type redactingHandler struct{ next slog.Handler }

// Enabled implements slog.Handler.
func (h *redactingHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.next.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h *redactingHandler) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(cleanAttr(a))
		return true
	})
	return h.next.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (h *redactingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = cleanAttr(a)
	}
	return &redactingHandler{next: h.next.WithAttrs(clean)}
}

// WithGroup implements slog.Handler.
func (h *redactingHandler) WithGroup(name string) slog.Handler {
	return &redactingHandler{next: h.next.WithGroup(name)}
}

func cleanAttr(a slog.Attr) slog.Attr {
	if secretKey(a.Key) {
		return slog.String(a.Key, Hidden)
	}
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		group := v.Group()
		clean := make([]slog.Attr, len(group))
		for i, g := range group {
			clean[i] = cleanAttr(g)
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(clean...)}
	case slog.KindAny:
		return slog.Attr{Key: a.Key, Value: cleanAny(v.Any())}
	default:
		return slog.Attr{Key: a.Key, Value: v}
	}
}

// cleanAny takes a value to the plain form in which its keys can be seen.
// Errors and values that print themselves become their text.
func cleanAny(v any) slog.Value {
	switch t := v.(type) {
	case nil:
		return slog.AnyValue(nil)
	case error:
		return slog.StringValue(textOf(t.Error))
	case fmt.Stringer:
		return slog.StringValue(textOf(t.String))
	case []byte:
		return slog.StringValue(string(t))
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return slog.StringValue(fmt.Sprintf("%T that cannot be logged", v))
	}
	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return slog.StringValue(fmt.Sprintf("%T that cannot be logged", v))
	}
	return slog.AnyValue(cleanPlain(plain))
}

// textOf survives a method on a nil pointer, as slog's own handlers do: a log
// line must not end the program.
func textOf(text func() string) (s string) {
	defer func() {
		if recover() != nil {
			s = "value that cannot be printed"
		}
	}()
	return text()
}

func cleanPlain(v any) any {
	switch t := v.(type) {
	case map[string]any:
		for k, inner := range t {
			if secretKey(k) {
				t[k] = Hidden
			} else {
				t[k] = cleanPlain(inner)
			}
		}
	case []any:
		for i, inner := range t {
			t[i] = cleanPlain(inner)
		}
	}
	return v
}

// secretKey says whether a key names a secret, whatever its spelling: api_key, API-Key, apiKey,
// x-auth-token. A key that only refers to a secret, by its last word, names none: token_id,
// password_file, secret_ref.
func secretKey(key string) bool {
	words := wordsOf(key)
	if len(words) == 0 {
		return false
	}
	switch words[len(words)-1] {
	case "ref", "file", "path", "id", "name", "ttl", "hash", "count", "version":
		return false
	}
	joined := strings.Join(words, "")
	for _, part := range []string{"password", "passwd", "passphrase", "secret", "token", "apikey", "privatekey", "authorization", "cookie", "credential"} {
		if strings.Contains(joined, part) {
			return true
		}
	}
	return false
}

// wordsOf splits at everything but letters and digits, and where a lower-case
// letter meets an upper-case one.
func wordsOf(key string) []string {
	split := camel.ReplaceAllString(key, "${1} ${2}")
	return strings.FieldsFunc(strings.ToLower(split), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

var camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// Secrets that stand in running text: the password of a URL, the credential of
// an Authorization header, and a bearer token alone when it is long enough to be
// told from a word.
var (
	urlPassword   = regexp.MustCompile(`(://[^\s:/@"'\\]*):[^\s/@"'\\]+@`)
	authorization = regexp.MustCompile(`(?i)(authorization\W{1,6}(?:bearer|basic)\s+)[^\s"'\\]+`)
	bearer        = regexp.MustCompile(`(?i)(\bbearer\s+)[A-Za-z0-9+/=._~-]{20,}`)
)

func cleanText(line string) string {
	line = urlPassword.ReplaceAllString(line, "${1}:"+Hidden+"@")
	line = authorization.ReplaceAllString(line, "${1}"+Hidden)
	return bearer.ReplaceAllString(line, "${1}"+Hidden)
}
