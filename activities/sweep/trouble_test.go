package sweep

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestTroubleInWords(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	past := ago(2 * time.Minute)
	soon := now.Add(time.Minute)
	at := func(j db.LiveJob) db.LiveJob {
		j.Stage, j.StartedOrCreated = "wait_for_ready", ago(time.Hour)
		if j.Status == "" {
			j.Status = lifecycle.JobRunning
		}
		return j
	}
	for name, tc := range map[string]struct {
		job   db.LiveJob
		e     temporalx.Execution
		words string // "" when all is well
		fails bool
	}{
		"well": {e: temporalx.Execution{Activities: []temporalx.PendingActivity{{Name: "WaitReady", Attempt: 1, Taken: true, Heartbeat: ago(time.Second)}}}},
		"a task that is being worked on": {
			e: temporalx.Execution{Task: &temporalx.PendingTask{Attempt: 1, Taken: true, Scheduled: ago(time.Minute)}},
		},
		"a task that has just come": {e: temporalx.Execution{Task: &temporalx.PendingTask{Attempt: 1, Scheduled: ago(10 * time.Second)}}},
		"a task that nobody takes": {
			e:     temporalx.Execution{Build: "b7", Task: &temporalx.PendingTask{Attempt: 1, Scheduled: ago(time.Minute)}},
			words: "no worker has taken its workflow task since 2026-03-04 11:59:00Z (it is pinned to build b7)",
		},
		"code that panics": {
			e:     temporalx.Execution{Task: &temporalx.PendingTask{Attempt: 9, Scheduled: ago(time.Second)}},
			words: "its workflow task failed 8 times", fails: true,
		},
		"paused": {e: temporalx.Execution{Paused: true}, words: "the workflow is paused in Temporal; unpause it there"},
		"an activity that nobody takes": {
			e:     temporalx.Execution{Activities: []temporalx.PendingActivity{{Name: "Deploy", Attempt: 1, Scheduled: ago(time.Minute)}}},
			words: "no worker has taken its activity Deploy since 2026-03-04 11:59:00Z",
		},
		"an activity that waits for its next try": {
			e: temporalx.Execution{Activities: []temporalx.PendingActivity{{Name: "Deploy", Attempt: 2, Scheduled: soon, Failure: "heartbeat timeout"}}},
		},
		"an activity whose workers die": {
			e:     temporalx.Execution{Activities: []temporalx.PendingActivity{{Name: "Deploy", Attempt: 4, Scheduled: soon, Failure: "heartbeat timeout"}}},
			words: "its activity Deploy was tried 3 times; the last time: heartbeat timeout",
		},
		"an activity that outlived three workers and is well": {
			e: temporalx.Execution{Activities: []temporalx.PendingActivity{
				{Name: "Deploy", Attempt: 4, Taken: true, Heartbeat: ago(time.Second), Failure: "heartbeat timeout"},
			}},
		},
		"a paused activity": {
			e:     temporalx.Execution{Activities: []temporalx.PendingActivity{{Name: "Deploy", Paused: true}}},
			words: "its activity Deploy is paused in Temporal; unpause it there",
		},
		"late": {
			job: db.LiveJob{StageDeadlineAt: &past}, e: temporalx.Execution{},
			words: "wait_for_ready should have ended at 2026-03-04 11:58:00Z; its workflow runs and waits for nothing outside",
		},
		"late with an activity": {
			job: db.LiveJob{StageDeadlineAt: &past},
			e:   temporalx.Execution{Activities: []temporalx.PendingActivity{{Name: "WaitReady", Attempt: 1, Taken: true, Heartbeat: ago(time.Minute)}}},
			words: "wait_for_ready should have ended at 2026-03-04 11:58:00Z; its workflow runs and waits for WaitReady (try 1, " +
				"last heartbeat at 2026-03-04 11:59:00Z)",
		},
		"in time":   {job: db.LiveJob{StageDeadlineAt: &soon}},
		"not begun": {job: db.LiveJob{Status: lifecycle.JobPending}, words: "its workflow runs and has not written its first step"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &pass{now: now}
			words, fails := p.trouble(at(tc.job), tc.e)
			require.Equal(t, tc.words, words)
			require.Equal(t, tc.fails, fails)
		})
	}
}

// TestEveryJobHasItsTurn: jobs that look well are looked at in turn, each once
// in a round.
func TestEveryJobHasItsTurn(t *testing.T) {
	t.Parallel()
	var well []db.LiveJob
	for i := range 2*maxRotation + 7 {
		well = append(well, db.LiveJob{ID: "job_" + string(rune('a'+i/26)) + string(rune('a'+i%26))})
	}
	p, seen := &pass{}, map[string]int{}
	for range 3 {
		for _, j := range p.turn(well) {
			seen[j.ID]++
		}
	}
	require.Len(t, seen, len(well))
	for id, n := range seen {
		require.Equal(t, 1, n, id)
	}
	require.Equal(t, well[:maxRotation], p.turn(well), "and again from the top")
	require.Empty(t, p.turn(nil))
	require.Empty(t, p.place)
}
