package secretscan

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"
)

const (
	secret = "correct horse/battery+staple=\"7\""
	other  = "something else that nobody planted"
	token  = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"
)

func find(data []byte, secrets ...Secret) []Finding {
	s := New(secrets, []Hash{{"boot token", sha256.Sum256([]byte("pxe_" + token))}})
	s.Search("here", data)
	return s.Findings()
}

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func quote(text string) string {
	raw, _ := json.Marshal(text) // a string always can be written
	return string(raw)
}

// wrapped is base64 in lines of 64, indented, as in YAML.
func wrapped(text string) string {
	raw := pem.EncodeToMemory(&pem.Block{Type: "X", Bytes: []byte(text)})
	return strings.ReplaceAll(string(raw), "\n", "\n    ")
}

// TestSearch_Encodings also is its own negative control: no encoding of another text is found.
func TestSearch_Encodings(t *testing.T) {
	t.Parallel()
	for name, encode := range map[string]func(string) string{
		"plain":            func(v string) string { return v },
		"inside text":      func(v string) string { return "password is " + v + ", it says" },
		"JSON":             func(v string) string { return `{"a": [{"b": ` + quote(v) + `}]}` },
		"JSON in a string": func(v string) string { return quote(`{"a": ` + quote(quote(v)) + `}`) },
		"base64":           b64,
		"base64, 1 before": func(v string) string { return b64("x" + v) },
		"base64, 2 before": func(v string) string { return b64("xy" + v + "z") },
		"URL base64":       func(v string) string { return base64.RawURLEncoding.EncodeToString([]byte(v)) },
		"base64 in a path": func(v string) string { return "/boot/" + b64(v) + "/image" },
		"nested base64":    func(v string) string { return `{"a": "` + b64(b64(`{"b": `+quote(v)+`}`)) + `"}` },
		"wrapped base64":   func(v string) string { return wrapped(strings.Repeat("-", 60) + quote(v)) },
		"quoted, wrapped":  func(v string) string { return quote(wrapped(strings.Repeat("-", 60) + v)) },
		"hex":              func(v string) string { return hex.EncodeToString([]byte(v)) },
		"upper hex":        func(v string) string { return "0x" + strings.ToUpper(hex.EncodeToString([]byte(v))) },
		"hex of base64":    func(v string) string { return hex.EncodeToString([]byte(b64(v))) },
		"query":            func(v string) string { return "https://x/?p=" + url.QueryEscape(v) },
		"path":             func(v string) string { return "https://x/" + url.PathEscape(v) + "/y" },
		"base64 in query":  func(v string) string { return "p=" + url.QueryEscape(b64(quote(v))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := find([]byte(encode(secret)), Secret{"password", secret}, Secret{"password", other[:20]})
			require.NotEmpty(t, found)
			for _, f := range found {
				require.Equal(t, "password", f.Kind)
				require.NotContains(t, f.String(), secret)
			}
			require.Empty(t, find([]byte(encode(other)), Secret{"password", secret}))
			require.NotEmpty(t, find([]byte(encode("pxe_"+token))), "by its hash")
			require.Empty(t, find([]byte(encode("pxe_"+strings.ToUpper(token)))), "by its hash")
		})
	}
}

func TestSearch_ShortValuesAreLeftOut(t *testing.T) {
	t.Parallel()
	require.Empty(t, find([]byte("root sim root"), Secret{"user", "sim"}, Secret{"user", "root"}))
	short := []Secret{{"user", "sim"}, {"PIN", "1234567"}, {"none", ""}}
	s := New(append(short, Secret{"password", "12345678"}), nil)
	require.Equal(t, short, s.LeftOut)
	require.Equal(t, 1, s.Counts.Secrets)
	require.Positive(t, s.Counts.Forms)
}

func TestRuns_Missing(t *testing.T) {
	t.Parallel()
	r := Runs{}
	r.Add(Run{"onboard/1", "a"})
	r.Add(Run{"onboard/1", "b"})
	want := []Run{{"onboard/1", "b"}, {"onboard/1", "c"}, {"onboard/1", ""}, {"onboard/2", ""}}
	require.Equal(t, []Run{{"onboard/1", "c"}, {"onboard/2", ""}}, r.Missing(want))
}

func TestExpand(t *testing.T) {
	t.Parallel()
	key := pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: []byte(strings.Repeat("k3y", 50))})
	for name, c := range map[string]struct {
		value string
		parts []string
	}{
		"login":       {`{"username": "root", "password": "of the BMC"}`, []string{"of the BMC"}},
		"API key":     {"sim:0123456789ab:fedcba9876543210", []string{"sim", "0123456789ab", "fedcba9876543210"}},
		"private key": {string(key), strings.Split(string(key), "\n")[1:4]},
		"user-data":   {"#cloud-config\n" + wrapped("write_files: "+b64(token+"\n")+"\n"+string(key)), append([]string{token}, strings.Split(string(key), "\n")[1:4]...)},
		"text":        {"a few words: of no shape", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var values []string
			for _, s := range Expand(Secret{"x", c.value})[1:] {
				values = append(values, s.Value)
			}
			for _, part := range c.parts {
				require.Contains(t, values, part)
			}
			require.Equal(t, c.parts == nil, values == nil)
		})
	}
}

// TestHistory_EveryField plants the secret in one field after the other.
func TestHistory_EveryField(t *testing.T) {
	t.Parallel()
	payload := func(v string) *commonpb.Payload {
		return &commonpb.Payload{Data: []byte(`{"a": "` + b64(b64(v)) + `"}`)}
	}
	payloads := func(v string) *commonpb.Payloads {
		return &commonpb.Payloads{Payloads: []*commonpb.Payload{payload(other), payload(v)}}
	}
	started := func(a *historypb.WorkflowExecutionStartedEventAttributes) *historypb.HistoryEvent {
		return &historypb.HistoryEvent{EventId: 7, Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{WorkflowExecutionStartedEventAttributes: a}}
	}
	fields := map[string]func(v string) *historypb.HistoryEvent{
		"input": func(v string) *historypb.HistoryEvent {
			return started(&historypb.WorkflowExecutionStartedEventAttributes{Input: payloads(v)})
		},
		"memo": func(v string) *historypb.HistoryEvent {
			return started(&historypb.WorkflowExecutionStartedEventAttributes{Memo: &commonpb.Memo{Fields: map[string]*commonpb.Payload{"m": payload(v)}}})
		},
		"key of a memo": func(v string) *historypb.HistoryEvent {
			return started(&historypb.WorkflowExecutionStartedEventAttributes{Memo: &commonpb.Memo{Fields: map[string]*commonpb.Payload{v: nil}}})
		},
		"search attribute": func(v string) *historypb.HistoryEvent {
			return started(&historypb.WorkflowExecutionStartedEventAttributes{SearchAttributes: &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{"s": payload(v)}}})
		},
		"header": func(v string) *historypb.HistoryEvent {
			return started(&historypb.WorkflowExecutionStartedEventAttributes{Header: &commonpb.Header{Fields: map[string]*commonpb.Payload{"h": payload(v)}}})
		},
		"failure": func(v string) *historypb.HistoryEvent {
			cause := &failurepb.Failure{Message: "x", Cause: &failurepb.Failure{Message: "because " + v}}
			return started(&historypb.WorkflowExecutionStartedEventAttributes{ContinuedFailure: cause})
		},
		"details": func(v string) *historypb.HistoryEvent {
			info := &failurepb.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Details: payloads(v)}}
			return started(&historypb.WorkflowExecutionStartedEventAttributes{ContinuedFailure: &failurepb.Failure{FailureInfo: info}})
		},
		"encoded attributes": func(v string) *historypb.HistoryEvent {
			return started(&historypb.WorkflowExecutionStartedEventAttributes{ContinuedFailure: &failurepb.Failure{EncodedAttributes: payload(v)}})
		},
		"metadata": func(v string) *historypb.HistoryEvent {
			p := &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte(v)}}
			return started(&historypb.WorkflowExecutionStartedEventAttributes{Input: &commonpb.Payloads{Payloads: []*commonpb.Payload{p}}})
		},
	}
	for name, event := range fields {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range []struct {
				value string
				found int
			}{{other, 0}, {secret, 1}} {
				s := New([]Secret{{"password", secret}}, nil)
				s.History("workflow w", &historypb.History{Events: []*historypb.HistoryEvent{{EventId: 1}, proto.CloneOf(event(c.value))}})
				places := map[string]bool{}
				for _, f := range s.Findings() {
					places[f.Place] = true
				}
				require.Len(t, places, c.found)
				for place := range places {
					require.Contains(t, place, "workflow w, event 7")
				}
				require.Equal(t, 2, s.Counts.Events)
			}
		})
	}
}

// TestHistory_EncryptedPayloads uses a codec that compresses: the search cannot look through it.
func TestHistory_EncryptedPayloads(t *testing.T) {
	t.Parallel()
	codec := converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true})
	sealed, err := codec.Encode([]*commonpb.Payload{{Metadata: map[string][]byte{"m": []byte(other)}, Data: []byte(b64(secret))}})
	require.NoError(t, err)
	s := New([]Secret{{"password", secret}, {"canary", other}}, nil)
	s.Message("input", sealed[0])
	require.Empty(t, s.Findings())
	s.Payloads = codec
	s.Message("input", sealed[0])
	require.Len(t, s.Findings(), 3, "the password is there in two forms")
	require.NoError(t, s.unread)
	sealed[0].Data = nil
	s.Message("input", sealed[0])
	require.Error(t, s.unread, "what cannot be decrypted was not searched")
}

func TestLog_LongLinesAndNumbers(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("a ", maxLine/2-10) // the secret lies across the end of the first part
	text := "first\n" + line + secret + line + "\nlast " + other
	s := New([]Secret{{"password", secret}, {"canary", other}}, nil)
	require.NoError(t, s.Log("the log", bytes.NewBufferString(text)))
	require.Equal(t, []Finding{{"the log, line 2", "password", "plain"}, {"the log, line 3", "canary", "plain"}}, s.Findings())
	require.Equal(t, len(text), s.Counts.LogBytes)
	require.Equal(t, 3, s.Counts.LogLines)
}
