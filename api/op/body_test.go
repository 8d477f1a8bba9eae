package op

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
)

// A body that would take a hundred times its size in memory is refused while it is read.
func TestBodies_HoldFewValues(t *testing.T) { //nolint:paralleltest // it measures what is allocated
	api, err := New(Config{Store: &db.Store{}})
	require.NoError(t, err)
	api.Grant(Access{RoleNone: {"POST /things"}})
	got := 0
	Add(api, huma.Operation{OperationID: "things", Method: http.MethodPost, Path: "/things"}, func(_ context.Context, in *struct {
		Body struct {
			Things []struct{} `json:"things" maxItems:"40000"`
			Text   string     `json:"text" maxLength:"1000000"`
		}
	},
	) (*struct{}, error) {
		got = len(in.Body.Things)
		return &struct{}{}, nil
	})
	send := func(body string) (status int, allocated uint64) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Prefix+"/things", iotest.HalfReader(strings.NewReader(body)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		api.Handler().ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		return w.Code, after.TotalAlloc - before.TotalAlloc
	}
	things := func(n int, text string) string {
		return `{"text":"` + text + `","things":[` + strings.TrimSuffix(strings.Repeat("{},", n), ",") + `]}`
	}
	status, _ := send(things(1000, strings.Repeat(`,[{\"\\`, 60_000)))
	require.Equal(t, http.StatusNoContent, status)
	require.Equal(t, 1000, got)
	status, allocated := send(things(300_000, ""))
	require.Equal(t, http.StatusBadRequest, status)
	require.Less(t, allocated, uint64(12<<20))
}

// What is cut off is never valid JSON, wherever the reads end.
func TestValueCounter_EndsBehindTheLast(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[1,2]`: `[1,2]`, `[1,2,3]`: `[1,2,`, `{"a,b":[{}]}`: `{"a,b":[{`, `["\",\\",1]`: `["\",\\",1]`, `[]` + `,,,`: `[],,`, `"\`: `"\`,
	} {
		for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
			got, err := io.ReadAll(&valueCounter{ReadCloser: io.NopCloser(r), left: 3})
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
	}
}
