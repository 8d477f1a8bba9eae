package providers_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/providers"
)

const value = "hunter2-hunter2"

// holder has a secret where package fmt calls no method of it.
type holder struct {
	Name   string
	Public providers.Secret
	inner  providers.Secret
	list   []providers.Secret
}

func TestSecret_NeverPrints(t *testing.T) {
	t.Parallel()
	s := providers.NewSecret(value)
	in := holder{"bmc", s, s, []providers.Secret{s}}
	var out strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X", "%T %v", "%w"} {
		args := []any{s}
		if verb == "%T %v" {
			args = []any{s, s}
		}
		say(verb, args...)
		require.NotContains(t, fmt.Errorf(verb, args...).Error(), value, verb) //nolint:err113 // the point of the test
		say(strings.TrimPrefix(verb, "%T "), in)
		say(strings.TrimPrefix(verb, "%T "), &in)
		say(strings.TrimPrefix(verb, "%T "), map[string]any{"a": in})
	}
	say("%v", errors.Join(fmt.Errorf("login with %v", s)))
	require.Contains(t, out.String(), providers.Hidden)

	encoders := map[string]func() ([]byte, error){
		"json": func() ([]byte, error) { return json.Marshal(in) },
		"key":  func() ([]byte, error) { return json.Marshal(map[providers.Secret]int{s: 1}) },
		"yaml": func() ([]byte, error) { return yaml.Marshal(in) },
		"xml":  func() ([]byte, error) { return xml.Marshal(in) },
		"gob": func() ([]byte, error) {
			var b bytes.Buffer
			err := gob.NewEncoder(&b).Encode(in)
			return b.Bytes(), err
		},
		"template": func() ([]byte, error) {
			var b bytes.Buffer
			err := template.Must(template.New("").Parse(`{{.}} {{.Public}} {{printf "%d" .Public}}`)).Execute(&b, in)
			return b.Bytes(), err
		},
		"slog": func() ([]byte, error) {
			var b bytes.Buffer
			slog.New(slog.NewTextHandler(&b, nil)).Info("m", "secret", s, "holder", in)
			slog.New(slog.NewJSONHandler(&b, nil)).Info("m", "secret", s, "holder", in)
			return b.Bytes(), nil
		},
	}
	for name, encode := range encoders {
		raw, err := encode()
		require.NoError(t, err, name)
		require.Contains(t, string(raw), providers.Hidden, name)
		out.Write(raw)
	}
	redaction := providers.NewRedaction(s)
	require.False(t, redaction.Found(out.String()), "a spelling of the value came out:\n%s", out.String())
	require.Equal(t, value, s.Reveal())
	require.True(t, providers.Secret{}.IsZero())
}

func TestRedaction(t *testing.T) {
	t.Parallel()
	creds := "reporting:\n  consumer_key: SxxVN2vSdJNyp5Kqyv\n  token_secret: mHnt<bzmZxq88eZY&p\n"
	r := providers.NewRedaction(providers.NewSecret(value), providers.NewSecret("ok"), providers.NewSecret(creds), providers.Secret{})
	for in, want := range map[string]string{
		"login hunter2-hunter2 failed":     "login [secret] failed",
		"base64 aHVudGVyMi1odW50ZXIy":      "base64 [secret]",
		"not ok":                           "not ok",
		"line 2: token SxxVN2vSdJNyp5Kqyv": "line 2: token [secret]",
		"all of it: " + creds:              "all of it: [secret]",
	} {
		require.Equal(t, want, r.Clean(in), in)
	}
	err := r.Error(&providers.Error{Kind: providers.KindInvalid, Op: "o", Message: "got " + value, Err: errors.New(value)})
	require.NotContains(t, fmt.Sprintf("%v %v", err, errors.Unwrap(err)), value)
	require.True(t, providers.IsKind(err, providers.KindInvalid))

	got := struct {
		Serial string
		Lists  []struct{ Names []string }
	}{value, []struct{ Names []string }{{[]string{"ok", "x " + value}}}}
	r.Scrub(&got)
	require.Equal(t, "[secret]", got.Serial)
	require.Equal(t, []string{"ok", "x [secret]"}, got.Lists[0].Names, "a short secret may be a word of the result by chance")
}
