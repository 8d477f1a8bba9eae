package replay_test

import (
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
)

// counts is what a history shows the engine to have been asked for. Workflow
// tasks are not counted: how many there are depends on the timing.
type counts struct {
	Activities int // remote ones
	Local      int // local ones: projections, and the load at the start
	Timers     int
	Upserts    int // of search attributes
	Updates    int
	Signals    int
}

func count(h *historypb.History) (c counts) {
	for _, e := range h.Events {
		switch e.EventType {
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
			c.Activities++
		case enumspb.EVENT_TYPE_MARKER_RECORDED:
			if e.GetMarkerRecordedEventAttributes().MarkerName == "LocalActivity" {
				c.Local++
			}
		case enumspb.EVENT_TYPE_TIMER_STARTED:
			c.Timers++
		case enumspb.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
			c.Upserts++
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
			c.Updates++
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
			c.Signals++
		default:
		}
	}
	return c
}

// expected is how much each scenario asks of the engine. A change that starts
// more executions, or fewer, has to say so here.
func expected() map[string]counts {
	return map[string]counts{
		"completed":             {Activities: 17, Local: 17, Timers: 14, Upserts: 6},
		"failed_retry_stage":    {Activities: 18, Local: 20, Timers: 15, Upserts: 8, Updates: 1},
		"failed_rerun":          {Activities: 28, Local: 24, Timers: 19, Upserts: 8, Updates: 1},
		"adopted":               {Activities: 19, Local: 19, Timers: 14, Upserts: 7, Updates: 1},
		"cancelled":             {Activities: 24, Local: 19, Timers: 11, Upserts: 5, Updates: 1},
		"cancelled_in_temporal": {Activities: 12, Local: 11, Timers: 5, Upserts: 4},
		"restart_clean":         {Activities: 41, Local: 35, Timers: 26, Upserts: 10, Updates: 1},
		"datasource_recovered":  {Activities: 25, Local: 26, Timers: 22, Upserts: 8},
		"frozen_resumed":        {Activities: 22, Local: 20, Timers: 15, Upserts: 8, Updates: 1, Signals: 1},
		"manual_bootstrap":      {Activities: 3, Local: 5, Timers: 2, Upserts: 3},
	}
}
