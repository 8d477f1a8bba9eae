package lifecycle_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// past makes jobs of the stages a, b and c.
func past(times ...[3]float64) (out []lifecycle.PastJob) {
	for _, t := range times {
		out = append(out, lifecycle.PastJob{"a": t[0], "b": t[1], "c": t[2]})
	}
	return out
}

// abc is a job that works in b for some seconds, after a took some.
func abc(a, b float64) []lifecycle.StageTime {
	return []lifecycle.StageTime{
		{Name: "a", State: lifecycle.StageSucceeded, Seconds: a}, {Name: "b", State: lifecycle.StageRunning, Seconds: b},
		{Name: "c", State: lifecycle.StagePending},
	}
}

func TestEstimate_LongTail(t *testing.T) {
	t.Parallel()
	one := []lifecycle.StageTime{{Name: "b", State: lifecycle.StageRunning}}
	seven := past([3]float64{1, 1, 1})
	for range 6 {
		seven = append(seven, lifecycle.PastJob{"b": 100})
	}
	e := lifecycle.EstimateRemaining("job_1", one, seven)
	require.Equal(t, lifecycle.Estimate{Samples: 7, Reason: "7 comparable past jobs; at least 10 are needed"}, e)
	ten := append(seven, lifecycle.PastJob{"b": 100}, lifecycle.PastJob{"b": 100}, lifecycle.PastJob{"b": 100})
	e = lifecycle.EstimateRemaining("job_1", one, ten)
	require.GreaterOrEqual(t, e.P90, 100.0)
	require.Greater(t, e.P50, 50.0)
	require.Equal(t, e, lifecycle.EstimateRemaining("job_1", one, ten), "the same data give the same answer")
}

func TestEstimate_NotKnown(t *testing.T) {
	t.Parallel()
	var many, recovered [][3]float64
	for i := range 20 {
		many = append(many, [3]float64{10, 100 + float64(i), 50})
		recovered = append(recovered, [3]float64{10, float64(i % 2 * 100), 50})
	}
	unknown := append(abc(10, 5), lifecycle.StageTime{Name: "new", State: lifecycle.StagePending})
	for reason, e := range map[string]lifecycle.Estimate{
		"0 comparable past jobs; at least 10 are needed":     lifecycle.EstimateRemaining("j", abc(10, 5), nil),
		"no past job has the stage new":                      lifecycle.EstimateRemaining("j", unknown, past(many...)),
		"9 comparable past jobs; at least 10 are needed":     lifecycle.EstimateRemaining("j", abc(10, 5), past(recovered[:18]...)),
		"stage b takes longer than in nine of ten past jobs": lifecycle.EstimateRemaining("j", abc(10, 118.5), past(many...)),
		"every stage is done":                                lifecycle.EstimateRemaining("j", abc(10, 5)[:1], past(many...)),
	} {
		require.Equal(t, reason, e.Reason)
		require.Zero(t, e.P50+e.P90, reason)
		require.Equal(t, reason[0] == 's', e.Overdue, reason)
	}
}

// TestEstimate_WhatIsKnown: an estimate follows the time that the job has taken so far.
func TestEstimate_WhatIsKnown(t *testing.T) {
	t.Parallel()
	var times [][3]float64
	for i := range 40 {
		speed := 1 + float64(i%4) // slow machines are slow in every stage
		times = append(times, [3]float64{10 * speed, 100*speed + float64(i), 50 * speed})
	}
	at := func(a, b float64) lifecycle.Estimate {
		return lifecycle.EstimateRemaining("j", abc(a, b), past(times...))
	}
	require.Greater(t, at(40, 0).P50, 2*at(10, 0).P50, "after a slow stage")
	require.Greater(t, at(10, 250).P50, at(10, 90).P50, "only the slow ones are left after so long")
	require.Less(t, at(10, 90).P50, at(10, 0).P50)
}

// TestEstimate_Calibration: over generated jobs whose stages are correlated (slow machines),
// repeated and sometimes very long, the 90th percentile holds in 85 to 95 of 100, however few past
// jobs there are and whenever one asks.
func TestEstimate_Calibration(t *testing.T) {
	t.Parallel()
	base := []float64{5, 20, 60, 600, 10, 15, 30, 900, 5, 300, 120}
	asks := []struct {
		stage int
		share float64 // of the usual time of the stage
	}{{0, 0}, {3, 0}, {3, 0.5}, {7, 0.5}, {9, 0.5}}
	jobs, low, high := runenv.Scale(t, "SLIPWAY_ETA_JOBS", 200, 5000), 80.0, 99.4 // 200 jobs leave an error of two percent
	if jobs >= 5000 {
		low, high = 85, 95
	}
	seed := runenv.Seed(t)
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	generate := func() lifecycle.PastJob {
		out, speed := lifecycle.PastJob{}, math.Exp(0.4*r.NormFloat64())
		for i, b := range base {
			for again := true; again; again = r.Float64() < 0.08 {
				took := b * speed * math.Exp(0.25*r.NormFloat64())
				if r.Float64() < 0.03 {
					took *= math.Pow(1-r.Float64(), -1/1.5)
				}
				out[fmt.Sprint(i)] += took
			}
		}
		return out
	}
	for _, n := range []int{10, 25, 100} {
		held, asked, overdue := make([]int, len(asks)), make([]int, len(asks)), 0
		for k := range jobs {
			var history []lifecycle.PastJob
			for range n {
				history = append(history, generate())
			}
			job := generate()
			for a, ask := range asks {
				stages, rest := stagesAt(job, len(base), ask.stage, ask.share*base[ask.stage])
				if job[fmt.Sprint(ask.stage)] <= ask.share*base[ask.stage] {
					continue // the stage has ended by then
				}
				e := lifecycle.EstimateRemaining(fmt.Sprint("job_", k), stages, history)
				asked[a]++
				switch {
				case e.Overdue:
					overdue++
				case rest <= e.P90:
					held[a]++
				}
			}
		}
		for a, ask := range asks {
			covered := 100 * float64(held[a]) / float64(asked[a])
			t.Logf("%d past jobs, stage %d at %.1f: %.1f%% of %d", n, ask.stage, ask.share, covered, asked[a])
			require.GreaterOrEqual(t, covered, low)
			require.LessOrEqual(t, covered, high)
		}
		require.Less(t, overdue, jobs*len(asks)/100)
	}
}

// stagesAt is a job that has worked in a stage for some seconds, and how long it still takes.
func stagesAt(job lifecycle.PastJob, n, stage int, worked float64) (stages []lifecycle.StageTime, rest float64) {
	for i := range n {
		s := lifecycle.StageTime{Name: fmt.Sprint(i), State: lifecycle.StagePending}
		switch {
		case i < stage:
			s.State, s.Seconds = lifecycle.StageSucceeded, job[s.Name]
		case i == stage:
			s.State, s.Seconds = lifecycle.StageRunning, worked
			rest += job[s.Name] - worked
		default:
			rest += job[s.Name]
		}
		stages = append(stages, s)
	}
	return stages, rest
}
