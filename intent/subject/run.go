package subject

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
)

var runs = Subject{
	Kind: contract.SubjectRun,
	Lock: func(ctx context.Context, tx *db.Tx, ref Ref) (Apply, error) {
		machine, run, err := machinesdb.LockForJob(ctx, tx, ref.JobID)
		return func(ctx context.Context, tx *db.Tx, p contract.Projection, data json.RawMessage) error {
			said, err := decode[contract.RunProgress](data)
			if err != nil {
				return err
			}
			return machinesdb.Project(ctx, tx, machine, run, runStep(p, said))
		}, err
	},
	Park: func(ctx context.Context, tx *db.Tx, job db.Job, class lifecycle.FailureClass, actor db.Actor) (bool, error) {
		return false, machines.ParkUnattended(ctx, tx, job, class, actor)
	},
	EndUnstarted: machines.EndUnstarted,
	Cancelled:    machines.AuditCancel,
}

// runStep returns what a projection says of the run that its job carries out.
func runStep(p contract.Projection, said contract.RunProgress) machinesdb.Step {
	s := machinesdb.Step{Status: p.Status, Current: p.Stage, Stages: p.Stages, Actor: by(p)}
	if p.Failure != nil {
		s.Parked = p.Failure.Class
	}
	if f := said.Failure; f != nil {
		s.Failed, s.Message = f.Class, fmt.Sprintf("step %s failed: %s", f.Stage, f.Message)
		s.Current = f.Stage
	}
	return s
}
