package lifecycle

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
)

// Estimate is the working time from now to the end of a job, in seconds. P50 and P90 are absent
// when it is not known; then Reason says why.
type Estimate struct {
	P50     float64 `json:"p50_seconds,omitempty" doc:"Half of such jobs end within this time"`
	P90     float64 `json:"p90_seconds,omitempty" doc:"Nine of ten such jobs end within this time"`
	Samples int     `json:"samples" doc:"Comparable past jobs"`
	Overdue bool    `json:"overdue" doc:"The current stage takes longer than in nine of ten of them"`
	Reason  string  `json:"reason,omitempty" doc:"Why no time is known"`
}

// StageTime is how many seconds one stage of a job has worked so far, all tries together.
type StageTime struct {
	Name    string
	State   StageState
	Seconds float64
}

// PastJob holds how many seconds each stage of a successful job took, all tries together. A skipped
// stage has 0; a stage that the job does not have is absent.
type PastJob map[string]float64

// MinSamples is the least number of comparable past jobs for an estimate.
const MinSamples = 10

const (
	// etaDraws is how often one estimate draws a past job.
	etaDraws = 1000
	// smoothing is how far a draw varies, in standard errors of the mean. The value comes from a
	// calibration.
	smoothing = 2.2
)

// EstimateRemaining draws whole past jobs at random. The stages of one past job stay together,
// since a slow machine is slow in all of them. A past job counts only if its time for the current
// stage was longer than this job's so far, and counts more if its stages before that took about as
// long as this job's. Each drawn time is varied by the spread of all, so that a few past jobs are
// enough for a fair 90th percentile. The job's id is the seed, so the same data give the same
// answer.
func EstimateRemaining(jobID string, stages []StageTime, past []PastJob) Estimate {
	at := slices.IndexFunc(stages, func(s StageTime) bool { return !s.State.Finished() })
	if at < 0 {
		return Estimate{Reason: "every stage is done"}
	}
	same, missing := comparableJobs(stages[at:], past)
	e := Estimate{Samples: len(same)}
	switch {
	case missing != "":
		e.Reason = "no past job has the stage " + missing
		return e
	case len(same) < MinSamples:
		e.Reason = fmt.Sprintf("%d comparable past jobs; at least %d are needed", len(same), MinSamples)
		return e
	}
	var remaining, weights []float64
	for _, p := range same {
		if p[stages[at].Name] > stages[at].Seconds {
			remaining = append(remaining, p.after(stages[at:]))
			weights = append(weights, p.likeness(stages[:at]))
		}
	}
	if len(remaining)*10 < len(same) {
		e.Overdue, e.Reason = true, "stage "+stages[at].Name+" takes longer than in nine of ten past jobs"
		return e
	}
	e.P50, e.P90 = resample(jobID, remaining, weights)
	return e
}

// NoEstimate returns why a job that is not running has no estimate.
func NoEstimate(s JobStatus) string {
	switch {
	case s == JobPending:
		return "the job has not started"
	case s == JobCompensating:
		return "the job is undoing its work"
	case s.Parked():
		return "the job waits for an operator"
	}
	return "the job has ended"
}

// comparableJobs returns the past jobs that have all the stages and have not skipped the first of
// them. It also returns the name of a stage that none of them has.
func comparableJobs(stages []StageTime, past []PastJob) (same []PastJob, missing string) {
	known := make(map[string]bool, len(stages))
	for _, p := range past {
		all := p[stages[0].Name] > 0
		for _, s := range stages {
			_, ok := p[s.Name]
			known[s.Name] = known[s.Name] || ok
			all = all && ok
		}
		if all {
			same = append(same, p)
		}
	}
	for _, s := range stages {
		if !known[s.Name] && len(past) > 0 {
			return same, s.Name
		}
	}
	return same, ""
}

// after returns how long the past job still took after its first of the stages had worked as long
// as this job's has.
func (p PastJob) after(stages []StageTime) float64 {
	sum := -stages[0].Seconds
	for _, s := range stages {
		sum += p[s.Name]
	}
	return sum
}

// likeness returns the weight of a past job. It compares the times for the stages that are done:
// the weight is 1 for the same time as this job's, and a half for a time that is e^0.35 times as
// long.
func (p PastJob) likeness(done []StageTime) float64 {
	var mine, its float64
	for _, s := range done {
		if s.State == StageSucceeded {
			mine, its = mine+s.Seconds, its+p[s.Name]
		}
	}
	if mine <= 0 || its <= 0 {
		return 1
	}
	d := math.Log(mine/its) / 0.35
	return 1 / (1 + d*d)
}

// resample draws past jobs by their weights and returns the median and the 90th percentile of the
// drawn times, each varied by a part of the spread of their logarithms.
func resample(seed string, remaining, weights []float64) (p50, p90 float64) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed))
	random := rand.New(rand.NewPCG(h.Sum64(), 0)) //nolint:gosec // not for secrets: the same seed must give the same draws
	upTo := make([]float64, len(weights))
	var total, squares, mean, spread float64
	for i, w := range weights {
		total += w
		squares += w * w
		upTo[i] = total
		mean += w * math.Log1p(remaining[i])
	}
	mean /= total
	for i, w := range weights {
		d := math.Log1p(remaining[i]) - mean
		spread += w * d * d / total
	}
	jitter := smoothing * math.Sqrt(spread*squares) / total // total²/squares is how many past jobs the weights are worth
	draws := make([]float64, etaDraws)
	for i := range draws {
		at, _ := slices.BinarySearch(upTo, random.Float64()*total)
		draws[i] = remaining[min(at, len(remaining)-1)] * math.Exp(jitter*random.NormFloat64())
	}
	slices.Sort(draws)
	return draws[etaDraws/2], draws[etaDraws*9/10]
}
