package intent

import (
	"encoding/json"

	"github.com/slipway-cloud/slipway/db"
)

// JobMode returns the mode of a decommission or node operation; "" of other jobs.
func JobMode(j db.Job) string {
	var in struct{ Mode string }
	if json.Unmarshal(j.Input, &in) != nil {
		return ""
	}
	return in.Mode
}

// JobLabel returns the usual name of a job: its mode, or else its kind.
func JobLabel(j db.Job) string {
	if mode := JobMode(j); mode != "" {
		return mode
	}
	return j.Kind
}
