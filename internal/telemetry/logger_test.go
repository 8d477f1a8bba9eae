package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// logged returns what write makes a logger of the given format print.
func logged(t *testing.T, format string, r *Redactor, write func(*slog.Logger)) string {
	t.Helper()
	var out bytes.Buffer
	l, err := NewLogger(&out, "info", format, r)
	require.NoError(t, err)
	write(l)
	return out.String()
}

var formats = []string{"json", "text"}

func TestLevelsAndFormats(t *testing.T) {
	t.Parallel()
	out := logged(t, "json", &Redactor{}, func(l *slog.Logger) {
		l.Debug("too quiet")
		l.With("node", "n1").WithGroup("job").Info("stage done", "stage", "deploy", "attempt", 2, "took", map[string]int{"s": 3})
	})
	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &line), "one line expected: %s", out)
	require.Equal(t, "stage done", line["msg"])
	require.Equal(t, "n1", line["node"])
	require.Equal(t, map[string]any{"stage": "deploy", "attempt": 2.0, "took": map[string]any{"s": 3.0}}, line["job"])

	_, err := NewLogger(&bytes.Buffer{}, "loud", "json", &Redactor{})
	require.ErrorContains(t, err, "loud")
	_, err = NewLogger(&bytes.Buffer{}, "info", "xml", &Redactor{})
	require.ErrorContains(t, err, "xml")
}

type login struct {
	User     string
	Password string
}

type nilStringer struct{ s *string }

func (n *nilStringer) String() string { return *n.s }

func TestSecretKeysAreHiddenAtAnyDepth(t *testing.T) {
	t.Parallel()
	const s = "hunter2-hunter2"
	for name, write := range map[string]func(*slog.Logger){
		"attribute":   func(l *slog.Logger) { l.Info("m", "password", s) },
		"spelling":    func(l *slog.Logger) { l.Info("m", "X-Auth-Token", s, "apiKey", s, "api_key", s, "Authorization", s) },
		"with":        func(l *slog.Logger) { l.With("token", s).Info("m") },
		"group":       func(l *slog.Logger) { l.Info("m", slog.Group("bmc", "user", "u", slog.Group("x", "passwd", s))) },
		"with group":  func(l *slog.Logger) { l.WithGroup("bmc").Info("m", "password", s) },
		"struct":      func(l *slog.Logger) { l.Info("m", "login", login{"u", s}) },
		"pointer":     func(l *slog.Logger) { l.Info("m", "login", &login{"u", s}) },
		"nested list": func(l *slog.Logger) { l.Info("m", "logins", []map[string]any{{"a": []login{{"u", s}}}}) },
		"header":      func(l *slog.Logger) { l.Info("m", "header", http.Header{"Authorization": {"Bearer " + s}}) },
		"bytes":       func(l *slog.Logger) { l.Info("m", "client_secret", []byte(s)) },
	} {
		for _, format := range formats {
			t.Run(name+" "+format, func(t *testing.T) {
				t.Parallel()
				out := logged(t, format, &Redactor{}, write)
				require.NotContains(t, out, s)
				require.Contains(t, out, Hidden)
			})
		}
	}
}

func TestHarmlessKeysStay(t *testing.T) {
	t.Parallel()
	out := logged(t, "text", &Redactor{}, func(l *slog.Logger) {
		l.Info("Basic authentication failed; bearer authentication too", "secret_ref", "bmc/a@1", "token_id", "t1", "key_file", "/k",
			"idempotency_key", "i1", "passwordFile", "/p", "error", errors.New("boom"), "nil", nil, "bad", &nilStringer{}, "func", func() {})
	})
	for _, want := range []string{"Basic authentication failed; bearer authentication too", "bmc/a@1", "t1", "/k", "i1", "/p", "boom", "cannot be printed", "cannot be logged"} {
		require.Contains(t, out, want)
	}
	require.NotContains(t, out, Hidden)
}

func TestKnownValuesAreHiddenWhereverTheyStand(t *testing.T) {
	t.Parallel()
	const s = "p\"w<\\d\n&€ x"
	r := &Redactor{}
	r.Use(t.Context(), s)
	r.Use(t.Context(), s)
	for name, write := range map[string]func(*slog.Logger){
		"message":   func(l *slog.Logger) { l.Info("login with " + s + " failed") },
		"attribute": func(l *slog.Logger) { l.Info("m", "output", "it said "+s) },
		"key":       func(l *slog.Logger) { l.Info("m", s, "v") },
		"error":     func(l *slog.Logger) { l.Info("m", "error", fmt.Errorf("wrapped: %w", errors.New(s))) },
		"struct":    func(l *slog.Logger) { l.Info("m", "v", struct{ Note string }{s}) },
		"list":      func(l *slog.Logger) { l.Info("m", "v", []string{"a", s}) },
	} {
		for _, format := range formats {
			t.Run(name+" "+format, func(t *testing.T) {
				t.Parallel()
				out := logged(t, format, r, write)
				require.Contains(t, out, Hidden)
				for _, part := range []string{`\d`, "€", "&"} {
					require.NotContains(t, out, part)
				}
			})
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	r := &Redactor{}
	for _, v := range []string{"a+b c/d", "hunter2", "hunter2-long", "ok", "", `{"username":"operator","password":"from-json","port":1}`} {
		r.Use(t.Context(), v)
	}
	for in, want := range map[string]string{
		"x hunter2-long y":                    "x [secret] y",
		"x=a%2Bb+c%2Fd":                       "x=[secret]",
		"base64 aHVudGVyMg==":                 "base64 [secret]",
		"operator used from-json":             "operator used [secret]",
		"that is ok":                          "that is ok",
		"postgres://u:pw@h/db and redis://h":  "postgres://u:[secret]@h/db and redis://h",
		"Authorization: Basic dTpw":           "Authorization: Basic [secret]",
		`"Authorization":["Bearer abc"]`:      `"Authorization":["Bearer [secret]"]`,
		"sent bearer eyJhbGciOi.eyJzdWIi.abc": "sent bearer [secret]",
		"http://127.0.0.1:8080/a@b":           "http://127.0.0.1:8080/a@b",
	} {
		require.Equal(t, want, r.Redact(in), in)
	}
}

func TestUseWhileLogging(t *testing.T) {
	t.Parallel()
	r := &Redactor{}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s := fmt.Sprintf("secret-value-%d", i)
			r.Use(t.Context(), s)
			if got := r.Redact(s); got != Hidden {
				t.Errorf("registered value came through as %q", got)
			}
		})
	}
	wg.Wait()
}

func TestTemporalLogsThroughTheSameRedaction(t *testing.T) {
	t.Parallel()
	r := &Redactor{}
	r.Use(t.Context(), "hunter2")
	out := logged(t, "json", r, func(l *slog.Logger) {
		TemporalLogger(l).Error("Activity error.", "WorkflowID", "onboard-n1", "Error", errors.New("got hunter2"), "Token", "abc")
	})
	require.Contains(t, out, "onboard-n1")
	require.Contains(t, out, "got "+Hidden)
	require.NotContains(t, out, "abc")
}
