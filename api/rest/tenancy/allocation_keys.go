package tenancy

import (
	"context"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/tenancy"
)

// AllocationKeysRequest names the keys that may log in from now on.
type AllocationKeysRequest struct {
	SSHKeyIDs []string `json:"ssh_key_ids" required:"true" nullable:"false" minItems:"1" maxItems:"20" itemMaxLength:"200" doc:"Of the project's SSH keys; all others are withdrawn"`
}

const setKeysDoc = "The keys that are left out are withdrawn. The answer is 202: a job brings the keys to the node, and proves from outside that the node refuses the former " +
	"ones. In ssh_keys a key with withdrawn_at and without refused_at is not proven to be refused yet. It can be repeated. Sessions that are open stay open."

func (s *allocationServer) setKeys(ctx context.Context, in *struct {
	AllocationPath
	Body AllocationKeysRequest
}) (*op.Versioned[Allocation], error) {
	return s.setKeysOf(ctx, in.AllocationID, in.Body)
}

func (s *allocationServer) setKeysOwn(ctx context.Context, in *struct {
	OwnAllocationPath
	Body AllocationKeysRequest
}) (*op.Versioned[Allocation], error) {
	ctx, err := s.enterOf(ctx, in.OwnAllocationPath, op.RoleProjectMember)
	if err != nil {
		return nil, err
	}
	return s.setKeysOf(ctx, in.AllocationID, in.Body)
}

// setKeysOf replaces the keys of an allocation of the project of the request.
func (s *allocationServer) setKeysOf(ctx context.Context, id string, body AllocationKeysRequest) (*op.Versioned[Allocation], error) {
	if err := refuseProjectToken(ctx); err != nil {
		return nil, err
	}
	found, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	err = s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		p, err := tenancydb.LockProject(ctx, tx, found.ProjectID)
		if err != nil {
			return err
		}
		if err := tenancy.RequireActive(p); err != nil {
			return err
		}
		set, err := allocation.SetKeys(ctx, tx, id, body.SSHKeyIDs, op.ProjectActor(ctx))
		if err != nil || !set.Changed {
			return err // a repetition changes nothing
		}
		return s.auditAllocation(ctx, tx, found.ProjectID, "set_allocation_keys", map[string]any{"allocation": id, "ssh_keys": body.SSHKeyIDs})
	})
	if err != nil {
		return nil, err
	}
	return s.show(ctx, id)
}

// maxKeyJobs bounds the jobs that one request starts; the sweeper starts the rest.
const maxKeyJobs = 50

// startKeyJobs has the keys that have ended in the project of the request taken off its nodes. They
// are withdrawn already, and the sweeper looks for them too, so that nothing is lost when it fails.
func (s *server) startKeyJobs(ctx context.Context) {
	project := op.ProjectAccessOf(ctx).Project
	if _, err := allocation.StartKeyJobs(ctx, s.api.Store(), project, op.ProjectActor(ctx), maxKeyJobs); err != nil {
		s.api.Log().WarnContext(ctx, "jobs that withdraw keys were not started; the sweeper starts them", "project", project, "error", err)
	}
}
