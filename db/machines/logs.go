package machinesdb

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/machines/gen"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// The bounds of the output that is kept of one step: the first eighth, and the last bytes.
const (
	DefaultStepLog = 64 << 20
	firstShare     = 8
	// trimSlack is how much more is stored before it is dropped, so that few chunks cause that.
	trimSlack = 1 << 20
)

// LogPlace names one attempt of one step of a run.
type LogPlace struct {
	RunID, Step string
	Attempt     int
	Keep        int64 // bytes of the step; 0 is DefaultStepLog
}

// keptBytes returns how much of the step is kept.
func (p LogPlace) keptBytes() int64 { return cmp.Or(p.Keep, DefaultStepLog) }

// AppendLog stores a chunk of a stream of a step, in a transaction of its own. next is where the
// machine's stream goes on after it. A chunk that is stored already stays. Of a step that has
// written too much the middle is dropped.
func AppendLog(ctx context.Context, s *db.Store, at LogPlace, stream string, next int64, data []byte) error {
	return s.Tx(ctx, func(tx *db.Tx) error {
		q := queries(tx)
		seq, err := q.TakeLogSeq(ctx, at.RunID)
		if err != nil {
			return db.MapError("output of "+whatRun(at.RunID), err)
		}
		n, err := q.InsertLog(ctx, gen.InsertLogParams{
			RunID: at.RunID, Seq: seq, Step: at.Step, Attempt: at.Attempt, Stream: stream, Next: next, Data: data,
		})
		if err == nil && n == 1 {
			err = countLog(ctx, q, at, int64(len(data)))
		}
		return db.MapError("output of "+whatRun(at.RunID), err)
	})
}

// countLog counts a chunk that was stored, and drops what is too much.
func countLog(ctx context.Context, q *gen.Queries, at LogPlace, size int64) error {
	stored, err := q.CountLog(ctx, gen.CountLogParams{Step: at.Step, Size: size, RunID: at.RunID})
	if err != nil || stored <= at.keptBytes()+trimSlack {
		return err
	}
	step := gen.RecountLogsParams{Step: at.Step, RunID: at.RunID}
	if stored, err = q.RecountLogs(ctx, step); err != nil || stored <= at.keptBytes() {
		return err
	}
	if err := q.TrimLogs(ctx, gen.TrimLogsParams{RunID: at.RunID, Step: at.Step, Attempt: at.Attempt, First: at.keptBytes() / firstShare, Excess: stored - at.keptBytes()}); err != nil {
		return err
	}
	_, err = q.RecountLogs(ctx, step)
	return err
}

// quietKinds are the kinds of steps that run no command on the machine: what Slipway does for them
// is their output.
var quietKinds = []runplan.Kind{runplan.KindNetboot, runplan.KindRepave, runplan.KindReboot, runplan.KindRMA}

// NoteCall adds a line about what a job has done to the output of the step that its run carries
// out. A step whose command writes output of its own gets none.
func NoteCall(ctx context.Context, s *db.Store, jobID, text string, keep int64) error {
	run, err := FindRunOfJob(ctx, s, jobID)
	if err != nil {
		return err
	}
	at := LogPlace{RunID: run.ID, Step: run.CurrentStep, Attempt: 1, Keep: keep}
	i := slices.IndexFunc(run.Steps, func(step runplan.Step) bool { return step.Name == run.CurrentStep })
	if i < 0 || !slices.Contains(quietKinds, run.Steps[i].Kind()) {
		return nil
	}
	if i < len(run.Stages) {
		at.Attempt = max(run.Stages[i].Attempts, 1)
	}
	offsets, err := LogOffsets(ctx, s, at)
	if err != nil {
		return err
	}
	line := fmt.Sprintln(db.ClipText(text, db.MaxMessage))
	return AppendLog(ctx, s, at, "stdout", offsets["stdout"]+int64(len(line)), []byte(line))
}

// LogOffsets returns where each stream of an attempt goes on, by its name.
func LogOffsets(ctx context.Context, c Conn, at LogPlace) (map[string]int64, error) {
	rows, err := queries(c).LogOffsets(ctx, gen.LogOffsetsParams{RunID: at.RunID, Step: at.Step, Attempt: at.Attempt})
	out := map[string]int64{}
	for _, r := range rows {
		out[r.Stream] = r.Next
	}
	return out, db.MapError("output of "+whatRun(at.RunID), err)
}

// LogsAfter returns chunks of a run in order, those after a position.
func LogsAfter(ctx context.Context, c Conn, runID string, after int64, limit int) ([]Chunk, error) {
	rows, err := queries(c).LogsAfter(ctx, gen.LogsAfterParams{RunID: runID, After: after, MaxRows: int32(limit)}) //nolint:gosec // a constant
	return rows, db.MapError("output of "+whatRun(runID), err)
}

// LogHead says which chunks a run has had: Last is the position of the last one, and Pruned that of
// the last one that was deleted for its age, 0 for none.
type LogHead = gen.LogHeadRow

// ReadLogHead reads the positions of the output of a run.
func ReadLogHead(ctx context.Context, c Conn, runID string) (LogHead, error) {
	h, err := queries(c).LogHead(ctx, runID)
	return h, db.MapError("output of "+whatRun(runID), err)
}

// PruneLogs deletes a batch of chunks that were stored before a time, and returns how many there
// were.
func PruneLogs(ctx context.Context, c Conn, before time.Time) (int64, error) {
	n, err := queries(c).PruneLogs(ctx, gen.PruneLogsParams{Before: before, MaxRows: db.PruneBatch})
	return n, db.MapError("prune the output of runs", err)
}
