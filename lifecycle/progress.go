package lifecycle

import "slices"

// Percent is the share of weight that is finished, 0 to 100. Both slices are
// in stage order; a missing or negative weight counts as 1.
func Percent(weights []int, finished []bool) int {
	total, done := 0, 0
	for i, w := range weights {
		if w <= 0 {
			w = 1
		}
		total += w
		if i < len(finished) && finished[i] {
			done += w
		}
	}
	if total == 0 {
		return 0
	}
	return done * 100 / total
}

// ShownPercent is progress_percent as seed 003 shows it: 0 in failure and
// terminal failure states, 100 in success, what was reached otherwise.
// reached_percent keeps how far it got.
func ShownPercent(s JobStatus, reached int) int {
	switch s {
	case JobCompleted, JobReconciled:
		return 100
	case JobFailedRetryable, JobFailedManual, JobCancelled, JobCompensating:
		return 0
	case JobPending, JobRunning:
		return reached
	}
	return reached
}

// Estimate is the time to the end in seconds, median and 90th percentile.
type Estimate struct {
	P50 float64 `json:"p50_seconds"`
	P90 float64 `json:"p90_seconds"`
	// Samples is how many past jobs stand behind it; 0 means unknown.
	Samples int `json:"samples"`
}

// EstimateRemaining resamples past durations (seconds) of the stages still to
// do: for each of n draws it adds one past duration of every stage. The draws
// walk the samples in a fixed stride, so equal input gives an equal answer.
// A stage without history contributes nothing and lowers Samples to 0.
func EstimateRemaining(past [][]float64) Estimate {
	const draws = 200
	least := -1
	for _, stage := range past {
		if least < 0 || len(stage) < least {
			least = len(stage)
		}
	}
	if least <= 0 {
		return Estimate{}
	}
	sums := make([]float64, draws)
	for i := range sums {
		for j, stage := range past {
			sums[i] += stage[(i*(2*j+7)+j*13)%len(stage)]
		}
	}
	slices.Sort(sums)
	return Estimate{P50: sums[draws/2], P90: sums[draws*9/10], Samples: least}
}
