package subject

import (
	"context"
	"encoding/json"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	instanceintent "github.com/slipway-cloud/slipway/intent/instance"
)

var instances = Subject{
	Kind: contract.SubjectInstance,
	Lock: func(ctx context.Context, tx *db.Tx, ref Ref) (Apply, error) {
		i, err := instancedb.Lock(ctx, tx, ref.ID)
		return func(ctx context.Context, tx *db.Tx, p contract.Projection, data json.RawMessage) error {
			said, err := decode[contract.InstanceProgress](data)
			if err == nil {
				_, err = instancedb.Project(ctx, tx, i, instanceStep(p, said))
			}
			return err
		}, err
	},
	Park: never,
	EndUnstarted: func(ctx context.Context, tx *db.Tx, job db.Job, actor db.Actor) error {
		if job.Kind != string(contract.KindInstanceCreate) {
			return nil
		}
		return instanceintent.EndUnstarted(ctx, tx, job, actor)
	},
}

// instanceStep returns what a projection says of the instance of its job.
func instanceStep(p contract.Projection, said contract.InstanceProgress) instancedb.JobStep {
	s := instancedb.JobStep{
		Creates: p.Kind == contract.KindInstanceCreate, Status: p.Status, Stage: p.Stage, Shown: p.Progress, Reached: p.Reached, Actor: by(p),
	}
	for _, f := range []*contract.Failure{p.Failure, said.GaveUp} {
		if f != nil {
			s.Class, s.Stage, s.Message = f.Class, f.Stage, f.Message
		}
	}
	return s
}
