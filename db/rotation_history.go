package db

import (
	"context"

	"github.com/slipway-cloud/slipway/db/gen"
)

// BMCRotationsOfJobs is the last rotation that each job began or took over, by
// job id; a job that ended before it began one has none.
func (s statements) BMCRotationsOfJobs(ctx context.Context, bmcID string, jobIDs []string) (map[string]BMCRotation, error) {
	if len(jobIDs) == 0 {
		return map[string]BMCRotation{}, nil
	}
	rows, err := s.q.BMCRotationsOfJobs(ctx, gen.BMCRotationsOfJobsParams{BMCID: bmcID, JobIds: jobIDs})
	if err != nil {
		return nil, MapError("rotations of BMC "+bmcID, err)
	}
	out := make(map[string]BMCRotation, len(rows))
	for _, r := range rows {
		out[r.JobID] = r
	}
	return out, nil
}
