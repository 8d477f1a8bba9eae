package op

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/bounds"
)

// A body that would take a hundred times its size in memory is refused while it is read, and the
// answer says why.
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
	send := func(body string) (answer *httptest.ResponseRecorder, allocated uint64) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Prefix+"/things", iotest.HalfReader(strings.NewReader(body)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		api.Handler().ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		return w, after.TotalAlloc - before.TotalAlloc
	}
	things := func(n int, text string) string {
		return `{"text":"` + text + `","things":[` + strings.TrimSuffix(strings.Repeat("{},", n), ",") + `]}`
	}
	answer, _ := send(things(1000, strings.Repeat(`,[{\"\\`, 60_000)))
	require.Equal(t, http.StatusNoContent, answer.Code)
	require.Equal(t, 1000, got)
	answer, allocated := send(things(300_000, ""))
	require.Equal(t, http.StatusBadRequest, answer.Code)
	require.Contains(t, answer.Body.String(), bounds.TooManyValues)
	require.Less(t, allocated, uint64(12<<20))
}
