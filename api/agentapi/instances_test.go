package agentapi_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/record"
)

// workers is an InstanceStore with one instance.
type workers struct {
	key  []byte
	seq  int64
	last record.WorkerHeartbeat
}

func (w *workers) EnrollWorker(_ context.Context, token, key []byte) (string, error) {
	if !bytes.Equal(token, agentapi.HashOf("token-1")) || w.key != nil && !bytes.Equal(w.key, key) {
		return "", db.NotFound("enrolment")
	}
	w.key = key
	return "inst_1", nil
}

func (w *workers) StoreHeartbeat(_ context.Context, id string, key []byte, seq int64, h record.WorkerHeartbeat) error {
	if id != "inst_1" || !bytes.Equal(w.key, key) || seq <= w.seq {
		return db.NotFound("heartbeat")
	}
	w.seq, w.last = seq, h
	return nil
}

// TestInstances_EnrollAndHeartbeat: the token counts for one key, whose request may be repeated; a
// heartbeat needs that key, and no refusal says which part was wrong.
func TestInstances_EnrollAndHeartbeat(t *testing.T) {
	t.Parallel()
	store := &workers{}
	routes := agentapi.New(agentapi.Config{Instances: store}).Routes()
	ask := func(path, key, body string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		w := httptest.NewRecorder()
		routes.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	mine, other := strings.Repeat("k", 40), strings.Repeat("o", 40)
	enroll := func(token, key string) int {
		code, _ := ask(protocol.PathInstanceEnroll, "", `{"token": "`+token+`", "key": "`+key+`"}`)
		return code
	}
	require.Equal(t, http.StatusBadRequest, enroll("token-1", "short"))
	require.Equal(t, http.StatusUnauthorized, enroll("token-2", mine))
	require.Equal(t, http.StatusOK, enroll("token-1", mine))
	require.Equal(t, http.StatusOK, enroll("token-1", mine), "its answer may have been lost")
	require.Equal(t, http.StatusUnauthorized, enroll("token-1", other))

	const heartbeat = `{"instance_id": "inst_1", "sequence": 3, "ready": true, "model": "m", "checksum": "abc", "active": 2}`
	code, refused := ask(protocol.PathInstanceHeartbeat, other, heartbeat)
	require.Equal(t, http.StatusUnauthorized, code)
	for _, key := range []string{"", "short"} {
		code, text := ask(protocol.PathInstanceHeartbeat, key, heartbeat)
		require.Equal(t, http.StatusUnauthorized, code)
		require.Equal(t, refused, text)
	}
	code, _ = ask(protocol.PathInstanceHeartbeat, mine, heartbeat)
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, 2, store.last.Active)
	code, text := ask(protocol.PathInstanceHeartbeat, mine, heartbeat)
	require.Equal(t, http.StatusUnauthorized, code, "a repeated number")
	require.Equal(t, refused, text)
	code, _ = ask(protocol.PathInstanceHeartbeat, mine, `{"instance_id": "inst_1", "sequence": -1, "ready": true, "checksum": "abc"}`)
	require.Equal(t, http.StatusBadRequest, code)
}

// TestInstances_FloodOfHeartbeats: a worker that sends heartbeats as fast as it can is told to
// wait.
func TestInstances_FloodOfHeartbeats(t *testing.T) {
	t.Parallel()
	now := time.Now()
	routes := agentapi.New(agentapi.Config{Instances: &workers{}, Now: func() time.Time { return now }}).Routes()
	last := 0
	for range 51 {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, protocol.PathInstanceHeartbeat, strings.NewReader(`{"instance_id": "inst_1", "sequence": 1, "checksum": "abc"}`))
		w := httptest.NewRecorder()
		routes.ServeHTTP(w, r)
		last = w.Code
	}
	require.Equal(t, http.StatusTooManyRequests, last)
}

// TestInstances_WorkersBehindOneAddress: an unknown machine uses up the limit of an address. A
// worker behind the same address whose key was accepted has a limit of its own, and is still
// answered.
func TestInstances_WorkersBehindOneAddress(t *testing.T) {
	t.Parallel()
	now, mine := time.Now(), strings.Repeat("k", 40)
	routes := agentapi.New(agentapi.Config{Instances: &workers{key: agentapi.HashOf(mine)}, Now: func() time.Time { return now }}).Routes()
	heartbeat := func(key string, seq int) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, protocol.PathInstanceHeartbeat,
			strings.NewReader(fmt.Sprintf(`{"instance_id": "inst_1", "sequence": %d, "checksum": "abc"}`, seq)))
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		routes.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, http.StatusOK, heartbeat(mine, 1))
	for range 60 {
		heartbeat(strings.Repeat("o", 40), 1)
	}
	require.Equal(t, http.StatusTooManyRequests, heartbeat(strings.Repeat("o", 40), 1))
	require.Equal(t, http.StatusOK, heartbeat(mine, 2))
	last := 0
	for i := range 60 {
		last = heartbeat(mine, 3+i)
	}
	require.Equal(t, http.StatusTooManyRequests, last, "one worker has a limit too")
}
