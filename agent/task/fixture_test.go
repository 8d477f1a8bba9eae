package task

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/lifecycle"
)

const (
	nodeID = "node-1"
	boot1  = "boot-1"
)

// plane signs tasks as the control plane does.
type plane struct {
	key  ed25519.PrivateKey
	keys []protocol.TaskKey
}

func newPlane(t testing.TB) *plane {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	return &plane{key, []protocol.TaskKey{{KeyID: "k1", Public: pub}}}
}

func (p *plane) sign(t protocol.Task) protocol.SignedTask {
	raw, err := json.Marshal(t)
	if err != nil {
		panic(err)
	}
	return protocol.SignedTask{Payload: raw, KeyID: "k1", Signature: ed25519.Sign(p.key, append([]byte(protocol.TaskContext), raw...))}
}

func args(kind lifecycle.TaskKind) json.RawMessage {
	known := map[lifecycle.TaskKind]string{
		lifecycle.TaskKindDrain: `{"grace_seconds":1}`, lifecycle.TaskKindScrub: `{"run_id":"r1"}`, lifecycle.TaskKindUninstall: `{}`,
		lifecycle.TaskKindRevokeUser: `{"user":"tenant1","remove_home":true}`,
		lifecycle.TaskKindUpdate:     `{"manifest":"eA==","manifest_signature":"eA==","binary_url":"https://x"}`,
	}
	if raw, ok := known[kind]; ok {
		return json.RawMessage(raw)
	}
	return json.RawMessage(`{}`)
}

func someTask(id string, kind lifecycle.TaskKind) protocol.Task {
	return protocol.Task{ID: id, Kind: kind, SchemaVersion: 1, Args: args(kind), NodeID: nodeID, BootID: boot1, Generation: 3, Attempt: 1,
		LeaseID: "lease-" + id + "-1", LeaseSeconds: 60, Deadline: time.Now().Add(time.Hour)}
}

func attempt(t protocol.Task, n int) protocol.Task {
	t.Attempt, t.LeaseID = n, fmt.Sprintf("lease-%s-%d", t.ID, n)
	return t
}

// agentSide is one process of the executor over a directory.
type agentSide struct {
	*Local
	boot string
}

func newSide(t testing.TB, p *plane, dir string, h Registry) *agentSide {
	t.Helper()
	j, err := OpenJournal(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	s := &agentSide{boot: boot1}
	s.Local = NewLocal(LocalConfig{NodeID: nodeID, Journal: j, Handlers: h, Log: slog.New(slog.DiscardHandler),
		Keys:      func() ([]protocol.TaskKey, error) { return p.keys, nil },
		OnTrust:   func([]protocol.TaskKey) error { return nil },
		OnHealthy: func(string) error { return nil },
		BootID:    func() (string, error) { return s.boot, nil }})
	return s
}

func (s *agentSide) do(t testing.TB, signed protocol.SignedTask) lifecycle.TaskResult {
	t.Helper()
	res, err := s.Execute(t.Context(), signed, 3, Control{})
	require.NoError(t, err)
	return res
}

// fixed is a handler that counts its runs.
type fixed struct {
	mu   sync.Mutex
	runs int
	res  func(context.Context, Request, *Recorder) lifecycle.TaskResult
}

func (f *fixed) Run(ctx context.Context, r Request, steps *Recorder) lifecycle.TaskResult {
	f.mu.Lock()
	f.runs++
	f.mu.Unlock()
	if f.res == nil {
		return steps.End(steps.Do(ctx, "work", func(context.Context) (string, error) { return "did it", nil }))
	}
	return f.res(ctx, r, steps)
}

func (f *fixed) count() int { f.mu.Lock(); defer f.mu.Unlock(); return f.runs }
