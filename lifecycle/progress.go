package lifecycle

// StageShare is what a stage declares of its job's progress, with the state that it is in. A stage
// declares either a weight or the percent that its job has reached when the stage is done.
type StageShare struct {
	State   StageState
	Weight  int // beside the other stages; 0 or less counts as 1
	Percent int // 1 to 100; 0 declares none
}

// Progress returns progress_percent and reached_percent of a job of any kind. Stages between two
// declared percents share what lies between them by weight. Skipped and adopted stages count as
// done. before is what the same attempt had reached, which the result does not go below; a new
// attempt, from the top, begins with 0.
func Progress(s JobStatus, before int, stages []StageShare) (shown, reached int) {
	from, weight, done := 0, 0, 0
	for i, st := range stages {
		w := max(st.Weight, 1)
		weight += w
		if st.State.Finished() {
			done += w
		}
		to := min(max(st.Percent, from), 100)
		if i == len(stages)-1 {
			to = 100
		} else if st.Percent <= 0 {
			continue
		}
		reached += (to - from) * done / weight
		from, weight, done = to, 0, 0
	}
	reached = max(reached, before)
	if s == JobCompleted || s == JobReconciled {
		reached = 100
	}
	return ShownPercent(s, reached), reached
}

// ShownPercent is progress_percent of a job that has reached a percent: 0 in failure and terminal
// failure states, 100 in success, what was reached otherwise.
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
