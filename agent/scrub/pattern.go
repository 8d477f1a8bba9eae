package scrub

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/agent/task"
)

// leastChecked is the part of a GPU's memory that must have been looked at, in
// percent; the driver keeps the rest for itself.
const leastChecked = 97

// pattern is what slipway-gpu-pattern says of one GPU: it takes all free
// memory, looks for what is not zero, fills it with a pattern and reads it back.
type pattern struct {
	UUID    string `json:"uuid"`
	Total   int64  `json:"bytes_total"`
	Checked int64  `json:"bytes_checked"`
	Residue *bool  `json:"residue"` // something was there before
	Match   *bool  `json:"match"`   // the pattern was read back whole
	Error   string `json:"error"`
}

// parsePattern reads the output of `slipway-gpu-pattern --json`, by UUID.
func parsePattern(raw []byte) (map[string]pattern, string, error) {
	var doc struct {
		Version string    `json:"version"`
		GPUs    []pattern `json:"gpus"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil || doc.Version == "" {
		return nil, "", errors.New("slipway-gpu-pattern wrote something that cannot be read")
	}
	out := map[string]pattern{}
	for _, p := range doc.GPUs {
		if _, twice := out[p.UUID]; twice {
			return nil, "", fmt.Errorf("slipway-gpu-pattern tells twice of GPU %q", task.Clip(p.UUID, 60))
		}
		out[p.UUID] = p
	}
	return out, task.Clip(doc.Version, 40), nil
}

func (p pattern) check(uuid string) error {
	switch {
	case p.UUID == "":
		return fmt.Errorf("GPU %s: slipway-gpu-pattern does not tell of it", uuid)
	case p.Error != "":
		return fmt.Errorf("GPU %s: %s", uuid, task.Clip(p.Error, 200))
	case p.Residue == nil || p.Match == nil || p.Total <= 0:
		return fmt.Errorf("GPU %s: what is in its memory is unknown", uuid)
	case *p.Residue:
		return fmt.Errorf("GPU %s: something was left in its memory", uuid)
	case !*p.Match:
		return fmt.Errorf("GPU %s: its memory does not hold what was written", uuid)
	case p.Checked < p.Total/100*leastChecked:
		return fmt.Errorf("GPU %s: only %d of %d bytes were looked at", uuid, p.Checked, p.Total)
	}
	return nil
}
