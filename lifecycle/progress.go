package lifecycle

// StageShare is the part of a stage in its job's progress, with the state of the stage. A stage
// declares either a weight, or the percent that its job has reached when the stage is done.
type StageShare struct {
	State   StageState
	Weight  int // relative to the other stages; 0 or less counts as 1
	Percent int // 1 to 100; 0 declares none
}

// Progress returns progress_percent and reached_percent of a job of any kind. Stages between two
// declared percents divide the difference by weight. Skipped and adopted stages count as done.
// before is the percent that the same attempt had reached; the result is never lower. A new
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

// ShownPercent returns progress_percent of a job that has reached a percent: 0 in failure states,
// also in terminal ones, 100 in success, and otherwise the reached percent.
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
