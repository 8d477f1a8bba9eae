package tenancy

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// AdminAllocation is an allocation as operators see it. Name, tags, keys and connection are the
// customer's: an operator reads them in the project, with a reason.
type AdminAllocation struct {
	ID              string                        `json:"id"`
	ProjectID       string                        `json:"project_id"`
	SKUID           string                        `json:"sku_id"`
	SKU             string                        `json:"sku"`
	Status          lifecycle.AllocationStatus    `json:"status"`
	Condition       lifecycle.AllocationCondition `json:"condition"`
	ConditionReason string                        `json:"condition_reason,omitempty"`
	State           string                        `json:"state"`
	NodeID          string                        `json:"node_id,omitempty"`
	Hostname        string                        `json:"hostname,omitempty"`
	NodeStatus      lifecycle.NodeStatus          `json:"node_status,omitempty"`
	Topology        AllocationTopology            `json:"topology"`
	FailureCode     string                        `json:"failure_code,omitempty"`
	FailureMessage  string                        `json:"failure_message,omitempty"`
	Outcome         string                        `json:"outcome,omitempty"`
	Access          string                        `json:"access,omitempty" doc:"revoked or unconfirmed; unconfirmed means that the tenant may still be logged in"`
	ReleaseAttempts int                           `json:"release_attempts"`
	CertificateID   string                        `json:"certificate_id,omitempty"`
	JobID           string                        `json:"job_id,omitempty" doc:"Of the live job"`
	JobStatus       lifecycle.JobStatus           `json:"job_status,omitempty"`
	Progress        *AllocationProgress           `json:"progress,omitempty" doc:"Of the live job"`
	AllowedActions  []string                      `json:"allowed_actions" nullable:"false" doc:"force_release and remove_assignment, where an operator may ask for them now"`
	RequestedAt     time.Time                     `json:"requested_at"`
	StartTime       *time.Time                    `json:"start_time,omitempty"`
	ReleasingAt     *time.Time                    `json:"releasing_at,omitempty"`
	AccessEndedAt   *time.Time                    `json:"access_ended_at,omitempty"`
	NodeReleasedAt  *time.Time                    `json:"node_released_at,omitempty"`
	ReleasedAt      *time.Time                    `json:"released_at,omitempty"`
	Version         int64                         `json:"version"`
}

// AdminAllocationPath is the path of an allocation for operators.
type AdminAllocationPath struct {
	AllocationID string `path:"allocation_id" maxLength:"200" doc:"alc_..."`
}

// AdminAllocationQuery narrows the list of all allocations.
type AdminAllocationQuery struct {
	op.Page
	Status    []string `query:"status,explode" maxItems:"7" itemMaxLength:"50" nullable:"false" doc:"Only those in this status; may be repeated"`
	ProjectID string   `query:"project_id" maxLength:"200"`
	SKUID     string   `query:"sku_id" maxLength:"200"`
	SiteID    string   `query:"site_id" maxLength:"200"`
	NodeID    string   `query:"node_id" maxLength:"200"`
}

func (s *allocationServer) registerAdmin() {
	const base, one = "/admin/allocations", "/admin/allocations/{allocation_id}"
	allocationRoute(s, "list-all-allocations", http.MethodGet, base, "List the allocations of all customers, newest first",
		"status=release_failed lists those whose node is still held after a release that failed.", s.listAll)
	allocationRoute(s, "get-allocation-of", http.MethodGet, one, "Read an allocation of a customer with its job", "", s.getAny)
	allocationRoute(s, "force-release", http.MethodPost, one+"/force-release", "Try the release of an allocation once more",
		"Of one whose release failed or is under way. It starts an attempt and skips nothing. The job is the one that stands still; never a second one.", s.forceRelease)
	allocationRoute(s, "remove-assignment", http.MethodPost, one+"/remove-assignment", "Take the node from an allocation that cannot be released",
		"It needs a node that its BMC and MAAS both read as off, just now, or that is quarantined. The allocation is released with outcome assignment_removed and "+
			"access unconfirmed; the node stays quarantined and has to be cleaned.", s.removeAssignment)
}

func (s *allocationServer) listAll(ctx context.Context, in *AdminAllocationQuery) (*op.Listed[AdminAllocation], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	f := allocationdb.Filter{ProjectID: in.ProjectID, SKUID: in.SKUID, SiteID: in.SiteID, NodeID: in.NodeID}
	if f.Statuses, err = statuses(in.Status); err != nil {
		return nil, err
	}
	var views []AdminAllocation
	err = s.api.Store().ReadTx(ctx, func(tx *db.Tx) error {
		rows, err := allocationdb.List(ctx, tx, f, after, in.Limit+1)
		if err != nil {
			return err
		}
		views, err = s.adminViews(ctx, tx, rows)
		return err
	})
	if err != nil {
		return nil, err
	}
	return op.Paged(views, in.Limit, func(v AdminAllocation) string { return v.ID }, func(v AdminAllocation) AdminAllocation { return v }), nil
}

func (s *allocationServer) getAny(ctx context.Context, in *AdminAllocationPath) (*op.Versioned[AdminAllocation], error) {
	var view AdminAllocation
	err := s.api.Store().ReadTx(ctx, func(tx *db.Tx) error {
		row, err := allocationdb.Get(ctx, tx, in.AllocationID)
		if err != nil {
			return err
		}
		views, err := s.adminViews(ctx, tx, []allocationdb.Allocation{row})
		if err == nil {
			view = views[0]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(view.Version, view), nil
}

// adminViews shows allocations to operators, each with its node and its live job.
func (s *allocationServer) adminViews(ctx context.Context, r reader, rows []allocationdb.Allocation) ([]AdminAllocation, error) {
	n := newNames(r)
	if err := n.readNodes(ctx, rows); err != nil {
		return nil, err
	}
	jobs, err := s.liveJobs(ctx, r, rows)
	if err != nil {
		return nil, err
	}
	var out []AdminAllocation
	for _, row := range rows {
		v, err := n.adminView(ctx, row)
		if err != nil {
			return nil, err
		}
		job := jobs[row.ID]
		v.JobID, v.JobStatus, v.Progress = job.id, job.status, job.progress
		out = append(out, v)
	}
	return out, nil
}

func (n *names) adminView(ctx context.Context, a allocationdb.Allocation) (AdminAllocation, error) {
	sku, err := n.sku(ctx, a.SKUID)
	if err != nil {
		return AdminAllocation{}, err
	}
	at, err := n.topology(ctx, a)
	if err != nil {
		return AdminAllocation{}, err
	}
	out := AdminAllocation{
		ID: a.ID, ProjectID: a.ProjectID, SKUID: a.SKUID, SKU: sku, Status: a.Status, Condition: a.Condition, ConditionReason: a.ConditionReason,
		State: lifecycle.AllocationState(a.Status, a.Condition), Topology: at, FailureCode: a.FailureCode, FailureMessage: a.FailureMessage,
		Outcome: a.Outcome, Access: a.Access, ReleaseAttempts: a.ReleaseAttempts, AllowedActions: lifecycle.AllocationOperatorActions(a.Status), RequestedAt: a.RequestedAt.UTC(), StartTime: utc(a.StartTime),
		ReleasingAt: utc(a.ReleasingAt), AccessEndedAt: utc(a.AccessEndedAt), NodeReleasedAt: utc(a.NodeReleasedAt), ReleasedAt: utc(a.ReleasedAt), Version: a.Version,
	}
	if a.CertificateID != nil {
		out.CertificateID = *a.CertificateID
	}
	if a.NodeID != nil {
		node := n.nodes[*a.NodeID]
		out.NodeID, out.Hostname, out.NodeStatus = *a.NodeID, node.Hostname, node.Status
	}
	return out, nil
}

// changeAllocation runs an operator's change of an allocation under the lock of its project, with a
// row in the project's log, and tells the job.
func (s *allocationServer) changeAllocation(
	ctx context.Context, a allocationdb.Allocation, name, reason string, do func(*db.Tx, db.Actor) (allocation.Released, error),
) (*op.Versioned[AdminAllocation], error) {
	actor, err := operator(ctx, "body.reason", reason)
	if err != nil {
		return nil, err
	}
	var out allocation.Released
	err = s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		if _, err := tenancydb.LockProject(ctx, tx, a.ProjectID); err != nil {
			return err
		}
		if out, err = do(tx, actor); err != nil {
			return err
		}
		actor.Metadata = map[string]any{"allocation": a.ID}
		return tx.AppendAudit(ctx, db.Entry{ResourceKind: lifecycle.Project.Resource, ResourceID: a.ProjectID, Kind: db.EntryAction, Name: name, Actor: actor})
	})
	if err != nil {
		return nil, err
	}
	if err := s.askJob(ctx, out, actor.Comment); err != nil {
		return nil, err
	}
	return s.getAny(ctx, &AdminAllocationPath{a.ID})
}

func (s *allocationServer) forceRelease(ctx context.Context, in *struct {
	AdminAllocationPath
	Body ReasonRequest
}) (*op.Versioned[AdminAllocation], error) {
	a, err := allocationdb.Get(ctx, s.api.Store(), in.AllocationID)
	if err != nil {
		return nil, err
	}
	return s.changeAllocation(ctx, a, "force_release", in.Body.Reason, func(tx *db.Tx, actor db.Actor) (allocation.Released, error) {
		return allocation.ForceRelease(ctx, tx, a.ID, actor.Comment, actor)
	})
}

func (s *allocationServer) removeAssignment(ctx context.Context, in *struct {
	AdminAllocationPath
	op.Match
	Body ReasonRequest
}) (*op.Versioned[AdminAllocation], error) {
	a, err := allocationdb.Get(ctx, s.api.Store(), in.AllocationID)
	if err != nil {
		return nil, err
	}
	v, err := in.Version(func() (int64, error) { return a.Version, nil })
	if err != nil {
		return nil, err
	}
	power, err := s.readPower(ctx, a)
	if err != nil {
		return nil, err
	}
	return s.changeAllocation(ctx, a, "remove_assignment", in.Body.Reason, func(tx *db.Tx, actor db.Actor) (allocation.Released, error) {
		return allocation.RemoveAssignment(ctx, tx, a.ID, actor.Comment, v, power, actor)
	})
}

// readPower reads the power of the node of an allocation, before the transaction. A quarantined
// node needs no reading, and neither does an allocation that is refused anyway.
func (s *allocationServer) readPower(ctx context.Context, a allocationdb.Allocation) (allocation.PowerProof, error) {
	if a.NodeID == nil || !a.Status.Releasing() {
		return allocation.PowerProof{}, nil
	}
	node, err := s.api.Store().Node(ctx, *a.NodeID)
	if err != nil || node.Status == lifecycle.NodeQuarantined {
		return allocation.PowerProof{}, err
	}
	power, err := s.cfg.ReadPower(ctx, node.ID)
	if err != nil {
		return power, fmt.Errorf("the power of node %s was not read; ask again, or quarantine the node first: %w", node.Hostname, err)
	}
	return power, nil
}
