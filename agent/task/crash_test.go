package task

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// world is what outlives the agent's process: the disk, what tasks did to the
// machine, and what the server heard.
type world struct {
	t      *testing.T
	plane  *plane
	dir    string
	rng    *rand.Rand
	synced []byte // what of the journal is sure to be on disk

	did          map[string]bool          // effects that are looked at first
	unrepeatable map[string]int           // effects of a kind that nobody may repeat, by task and attempt
	heard        map[string]string        // result by task and attempt
	ended        map[string]bool          // tasks whose result the server has
	attempt      map[string]int           // deliveries of each task
	tasks        map[string]protocol.Task // by id
	crashes      map[string]int           // by point
	left         int                      // crash points until the next crash; <0 is none
	last         map[string]lifecycle.TaskResult
}

// crash ends the process, which is a goroutine, when its time has come.
func (w *world) crash(point string) {
	path := filepath.Join(w.dir, journalFile)
	if point == "after sync" {
		w.synced, _ = os.ReadFile(path)
	}
	if w.left < 0 {
		return
	}
	if w.left--; w.left >= 0 {
		return
	}
	w.crashes[point]++
	if now, err := os.ReadFile(path); err == nil && len(now) > len(w.synced) && (point == "torn" || point == "before sync") {
		// Data that was not synced is on disk, or not, or in part.
		keep := len(w.synced) + w.rng.IntN(len(now)-len(w.synced)+1)
		if err := os.WriteFile(path, now[:keep], 0o600); err != nil {
			w.t.Error(err)
		}
	}
	runtime.Goexit()
}

// life is one process from its start to its end or its crash. It does what the
// loop does: reports what is done, goes on with what was begun, takes a task.
func (w *world) life(ids []string) {
	j, err := openJournal(w.dir, w.crash)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer func() { _ = j.Close() }()
	w.synced, _ = os.ReadFile(filepath.Join(w.dir, journalFile))
	local := NewLocal(LocalConfig{NodeID: nodeID, Journal: j, Log: slog.New(slog.DiscardHandler),
		Keys: func() ([]protocol.TaskKey, error) { return w.plane.keys, nil }, BootID: func() (string, error) { return boot1, nil },
		Handlers: Registry{lifecycle.TaskKindDrain: Func(w.careful), lifecycle.TaskKindScrub: Func(w.reckless)}})
	report := func(t protocol.Task, res lifecycle.TaskResult) {
		w.crash("before report")
		raw, _ := json.Marshal(res)
		key := fmt.Sprintf("%s/%d", t.ID, t.Attempt)
		if before, ok := w.heard[key]; ok && before != string(raw) {
			w.t.Errorf("%s was reported as %s and then as %s", key, before, raw)
		}
		w.heard[key], w.last[t.ID] = string(raw), res
		w.ended[t.ID] = w.ended[t.ID] || res.Code != CodeUncertain
		w.crash("after report") // the answer is lost
		if err := local.Acknowledge(context.Background(), t.ID); err != nil {
			w.t.Error(err)
		}
	}
	pending, err := local.Pending(context.Background())
	if err != nil {
		w.t.Error(err)
	}
	for _, e := range pending {
		t, _ := peek(e.Signed)
		res, err := local.Execute(context.Background(), e.Signed, 3, Control{})
		if err != nil {
			w.t.Error(err)
			return
		}
		report(t, res)
	}
	for _, id := range ids {
		if w.ended[id] {
			continue
		}
		// A delivery that the agent never noted is given again under a new attempt;
		// an operator requests an uncertain one again.
		w.attempt[id]++
		t := attempt(w.tasks[id], w.attempt[id])
		res, err := local.Execute(context.Background(), w.plane.sign(t), 3, Control{})
		if err != nil {
			w.t.Error(err)
			return
		}
		report(t, res)
	}
}

func (w *world) careful(ctx context.Context, r Request, steps *Recorder) lifecycle.TaskResult {
	return steps.End(steps.Do(ctx, "work", func(context.Context) (string, error) {
		w.crash("before effect")
		w.did[r.Task.ID] = true
		w.crash("after effect")
		return "", nil
	}))
}

func (w *world) reckless(ctx context.Context, r Request, steps *Recorder) lifecycle.TaskResult {
	return steps.End(steps.Do(ctx, "erase", func(context.Context) (string, error) {
		w.crash("before effect")
		w.unrepeatable[fmt.Sprintf("%s/%d", r.Task.ID, r.Task.Attempt)]++
		w.crash("after effect")
		return "", nil
	}))
}

// A process that dies anywhere, again and again, does each effect once or looks
// first, loses no result, and never tells two stories about one delivery.
func TestAgentsThatDieAnywhere(t *testing.T) {
	t.Parallel()
	crashes := map[string]int{}
	for seed := range uint64(60) {
		p := newPlane(t)
		w := &world{t: t, plane: p, dir: t.TempDir(), rng: rand.New(rand.NewPCG(seed, 4)), did: map[string]bool{}, unrepeatable: map[string]int{}, heard: map[string]string{},
			ended: map[string]bool{}, attempt: map[string]int{}, tasks: map[string]protocol.Task{}, crashes: crashes, last: map[string]lifecycle.TaskResult{}}
		ids := []string{"drain", "scrub", "drain2"}
		for _, id := range ids {
			kind := lifecycle.TaskKindDrain
			if id == "scrub" {
				kind = lifecycle.TaskKindScrub
			}
			w.tasks[id] = someTask(id, kind)
		}
		deaths := 1 + w.rng.IntN(5)
		for range deaths {
			w.left = w.rng.IntN(30)
			w.process(ids)
		}
		w.left = -1
		for range 3 {
			w.process(ids)
		}
		for _, id := range ids {
			require.True(t, w.ended[id], "seed %d: the server never learnt the end of %s", seed, id)
			require.True(t, w.last[id].OK, "seed %d: %s ended as %+v", seed, id, w.last[id])
		}
		require.True(t, w.did["drain"] && w.did["drain2"])
		for key, n := range w.unrepeatable {
			require.Equal(t, 1, n, "seed %d: %s was erased more than once", seed, key)
		}
	}
	for _, point := range []string{"before write", "torn", "before sync", "after sync", "before compaction", "before rename", "before report", "after report", "before effect", "after effect"} {
		require.NotZero(t, crashes[point], "no process died at %q", point)
	}
}

func (w *world) process(ids []string) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.life(ids)
	}()
	<-over
}
