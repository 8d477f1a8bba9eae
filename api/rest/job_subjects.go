package rest

import (
	"context"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// subjectReader reads the subjects of jobs: a *db.Store or a *db.Tx.
type subjectReader interface {
	JobSubjects(ctx context.Context, ids []string) (map[string]db.JobSubject, error)
}

// subjectsOf returns the facts about the subjects of live jobs, by the id of the job.
func subjectsOf(ctx context.Context, r subjectReader, jobs []db.Job) (map[string]contract.SubjectFacts, error) {
	var ids []string
	for _, j := range jobs {
		if j.ResourceKind != "" && !lifecycle.Job.Terminal(j.Status) {
			ids = append(ids, j.ID)
		}
	}
	return readSubjects(ctx, r, ids)
}

func readSubjects(ctx context.Context, r subjectReader, ids []string) (map[string]contract.SubjectFacts, error) {
	out := map[string]contract.SubjectFacts{}
	if len(ids) == 0 {
		return out, nil
	}
	rows, err := r.JobSubjects(ctx, ids)
	for id, row := range rows {
		out[id] = contract.SubjectFacts{Ended: row.Ended, HasServer: row.HasServer}
	}
	return out, err
}

func subjectOf(ctx context.Context, r subjectReader, j db.Job) (contract.SubjectFacts, error) {
	out, err := subjectsOf(ctx, r, []db.Job{j})
	return out[j.ID], err
}
