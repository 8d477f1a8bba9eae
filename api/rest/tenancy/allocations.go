package tenancy

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// AllocationsConfig is what allocations need besides the API. The area holds no connection to the
// engine of jobs, to a BMC or to a region.
type AllocationsConfig struct {
	// AskJob asks a live job for an action and waits for its answer.
	AskJob func(ctx context.Context, jobID string, action lifecycle.Action, reason string) error
	// ReadPower reads the power of a node from its BMC and from MAAS now.
	ReadPower func(ctx context.Context, nodeID string) (allocation.PowerProof, error)
	// Policy limits how fast a billing account takes and gives back nodes; the zero value is the
	// default.
	Policy allocation.Policy
}

// AllocationRequest asks for one node.
type AllocationRequest struct {
	SKUID       string            `json:"sku_id" required:"true" maxLength:"200" doc:"sku_... of the catalogue"`
	SiteID      string            `json:"site_id,omitempty" maxLength:"200" doc:"Only a node of this site"`
	Name        string            `json:"name,omitempty" maxLength:"100"`
	Tags        map[string]string `json:"tags,omitempty" maxProperties:"50" itemMaxLength:"200" doc:"Keys keep their case"`
	SSHKeyIDs   []string          `json:"ssh_key_ids,omitempty" nullable:"false" maxItems:"20" itemMaxLength:"200" doc:"Of the project's SSH keys; left out, all of them, where the request or its token names the project"`
	WaitSeconds int               `json:"wait_seconds,omitempty" minimum:"0" maximum:"86400" doc:"How long it may wait for a node; 0 refuses at once when none is free"`
	ExpiresAt   *time.Time        `json:"expires_at,omitempty" doc:"When it is released by itself"`
	MaxSpend    *int64            `json:"max_spend_minor,omitempty" minimum:"1" maximum:"1000000000000000" doc:"It is released when it has cost this, in minor units of the currency of the billing account; what it costs until the release ends is charged too"`
}

// AllocationPatch changes name and tags.
type AllocationPatch struct {
	Name *string           `json:"name,omitempty" maxLength:"100"`
	Tags map[string]string `json:"tags,omitempty" maxProperties:"50" itemMaxLength:"200" doc:"Replaces all tags"`
}

// ReleaseRequest says why.
type ReleaseRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"500"`
}

// AllocationPath is the path of an allocation.
type AllocationPath struct {
	ProjectPath
	AllocationID string `path:"allocation_id" maxLength:"200" doc:"alc_..."`
}

// AllocationQuery narrows a list of a project's allocations.
type AllocationQuery struct {
	op.Page
	Status []string `query:"status,explode" maxItems:"7" itemMaxLength:"50" nullable:"false" doc:"Only those in this status; may be repeated"`
	Tag    []string `query:"tag,explode" maxItems:"50" itemMaxLength:"330" nullable:"false" doc:"Only those with this tag, as KEY=VALUE; may be repeated, and all must be there"`
}

// keptFor is how long an allocation that has ended is listed. Its retention may be longer.
const keptFor = 90 * day

func allocationAccess() op.Access {
	return op.Access{
		op.RoleProjectAny:    {"GET /projects/{id}/allocations"},
		op.RoleProjectViewer: {"GET /projects/{id}/allocations/{allocation_id}"},
		op.RoleProjectMember: {
			"POST /projects/{id}/allocations", "POST /projects/{id}/allocations/plan", "PATCH /projects/{id}/allocations/{allocation_id}",
			"POST /projects/{id}/allocations/{allocation_id}/release", "PUT /projects/{id}/allocations/{allocation_id}/keys",
		},
		// The paths below need a role in the project of the allocation, which they find themselves.
		op.RoleSignedIn: {
			"GET /allocations", "POST /allocations", "POST /allocations/plan", "GET /allocations/{allocation_id}", "POST /allocations/{allocation_id}/release",
			"PUT /allocations/{allocation_id}/keys",
		},
		op.RoleViewer:   {"GET /admin/allocations", "GET /admin/allocations/{allocation_id}"},
		op.RoleOperator: {"POST /admin/allocations/{allocation_id}/force-release", "POST /admin/allocations/{allocation_id}/remove-assignment"},
	}
}

type allocationServer struct {
	*server
	cfg AllocationsConfig
	eta *db.Estimator
}

// RegisterAllocations declares the operations of allocations.
func RegisterAllocations(api *op.API, cfg AllocationsConfig) {
	api.Grant(allocationAccess())
	// A released node is erased, and who takes an assignment away says that nobody is logged in.
	api.RequireStepUp(
		op.StepUp{Route: "POST /projects/{id}/allocations/{allocation_id}/release"}, op.StepUp{Route: "POST /allocations/{allocation_id}/release"},
		op.StepUp{Route: "POST /admin/allocations/{allocation_id}/remove-assignment"},
	)
	s := &allocationServer{&server{api}, cfg, &db.Estimator{}}
	const base, one = "/projects/{id}/allocations", "/projects/{id}/allocations/{allocation_id}"
	allocationRoute(s, "list-allocations", http.MethodGet, base, "List the allocations of a project, newest first",
		"Those that ended more than 90 days ago are left out. For members with role billing connection and network.cidr are left out.", s.list)
	allocationRoute(s, "create-allocation", http.MethodPost, base, "Ask for a node", createDoc, s.create)
	allocationRoute(s, "get-allocation", http.MethodGet, one, "Read an allocation with its keys and its progress", "", s.get)
	allocationRoute(s, "update-allocation", http.MethodPatch, one, "Change name and tags of an allocation", "", s.update)
	allocationRoute(s, "release-allocation", http.MethodPost, one+"/release", "Give a node back; everything on it is erased", releaseDoc, s.release)
	allocationRoute(s, "set-allocation-keys", http.MethodPut, one+"/keys", "Replace the keys that may log in to an active allocation", setKeysDoc, s.setKeys)
	s.registerPlans()
	s.registerOwn()
	s.registerAdmin()
}

const (
	createDoc = "POST .../plan says before what it would cost. The answer is 202, with the node claimed or, with wait_seconds, with the request in line. Without a free node the answer is 409 no-capacity, and " +
		"nothing is written. A quota that is used up, or too many nodes in releasing, answers 409 with the numbers; too many requests within a minute answer 429. " +
		"Without enough money the answer is 409; for an owner or a member with role billing, shortfall has the amount that is missing."
	releaseDoc = "It can be repeated, and then answers the same. An allocation that is still requested is cancelled; one that is provisioning stops at its next safe " +
		"point; one whose release has failed is tried once more. No new access is given from the answer on."
)

// allocationRoute declares one operation. An operation that changes an allocation answers 202: a
// job does the work.
func allocationRoute[I, O any](s *allocationServer, id, method, path, summary, description string, handler func(context.Context, *I) (*O, error)) {
	status := 0
	if method == http.MethodPost || method == http.MethodPut {
		status = http.StatusAccepted
	}
	op.Add(s.api, huma.Operation{
		OperationID: id, Method: method, Path: path, Tags: []string{"allocations"}, Summary: summary, Description: description, DefaultStatus: status,
	}, handler)
}

func (s *allocationServer) list(ctx context.Context, in *struct {
	ProjectPath
	AllocationQuery
}) (*op.Listed[Allocation], error) {
	return s.listOf(ctx, in.AllocationQuery)
}

// listOf lists the allocations of the project of the request.
func (s *allocationServer) listOf(ctx context.Context, q AllocationQuery) (*op.Listed[Allocation], error) {
	after, err := q.After()
	if err != nil {
		return nil, err
	}
	f := allocationdb.Filter{ProjectID: op.ProjectAccessOf(ctx).Project, Tags: map[string]string{}, ReleasedAfter: time.Now().Add(-keptFor)}
	if f.Statuses, err = statuses(q.Status); err != nil {
		return nil, err
	}
	for _, tag := range q.Tag {
		key, value, ok := strings.Cut(tag, "=")
		if !ok || key == "" {
			return nil, problem.NewInvalid(problem.Field{Location: "query.tag", Message: "must be KEY=VALUE"})
		}
		f.Tags[key] = value
	}
	var rows []allocationdb.Allocation
	err = op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		if _, err := tenancydb.ReadProject(ctx, tx, tx.Project()); err != nil {
			return err
		}
		rows, err = allocationdb.List(ctx, tx, f, after, q.Limit+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	views, err := s.views(ctx, s.api.Store(), rows)
	if err != nil {
		return nil, err
	}
	if !op.ProjectAccessOf(ctx).Allows(lifecycle.RoleProjectViewer) {
		for i := range views {
			views[i].hideAddress()
		}
	}
	return op.Paged(views, q.Limit, func(v Allocation) string { return v.ID }, func(v Allocation) Allocation { return v }), nil
}

func statuses(names []string) ([]lifecycle.AllocationStatus, error) {
	var out []lifecycle.AllocationStatus
	for _, name := range names {
		st := lifecycle.AllocationStatus(name)
		if !lifecycle.Allocation.Has(st) {
			return nil, problem.NewInvalid(problem.Field{Location: "query.status", Message: "must be one of " + statusNames()})
		}
		out = append(out, st)
	}
	return out, nil
}

func statusNames() string {
	var names []string
	for _, st := range lifecycle.Allocation.States {
		names = append(names, string(st.State))
	}
	return strings.Join(names, ", ")
}

func (s *allocationServer) create(ctx context.Context, in *struct {
	ProjectPath
	op.Key
	Body AllocationRequest
}) (*op.Created[Allocation], error) {
	return s.createIn(ctx, in.Key, in.Body)
}

// createIn asks for a node for the project of the request. A claim sees nodes, which the role of
// customers does not, so the transaction is the platform's and names the project itself.
func (s *allocationServer) createIn(ctx context.Context, k op.Key, body AllocationRequest) (*op.Created[Allocation], error) {
	key, err := k.Required()
	if err != nil {
		return nil, err
	}
	project := op.ProjectAccessOf(ctx).Project
	if err := op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		_, err := tenancydb.ReadProject(ctx, tx, project)
		return err
	}); err != nil {
		return nil, err
	}
	// The key belongs to the project: one user's key in two projects is two requests.
	return op.WithIdempotency(ctx, s.api, project+" "+key, body, nil, func(tx *db.Tx) (*op.Created[Allocation], error) {
		made, err := allocation.Create(ctx, tx, s.requestOf(ctx, body))
		if err != nil {
			return nil, err
		}
		a := made.Allocation
		views, err := s.views(ctx, tx, []allocationdb.Allocation{a})
		if err != nil {
			return nil, err
		}
		return &op.Created[Allocation]{
			Status: http.StatusAccepted, Location: op.Prefix + "/projects/" + project + "/allocations/" + a.ID, ETag: op.ETag(a.Version), Body: views[0],
		}, s.auditAllocation(ctx, tx, project, "create_allocation", map[string]any{"allocation": a.ID, "sku": a.SKUID})
	})
}

// requestOf returns the request of a body for the project of the request.
func (s *allocationServer) requestOf(ctx context.Context, body AllocationRequest) allocation.Request {
	return allocation.Request{
		ProjectID: op.ProjectAccessOf(ctx).Project, SKUID: body.SKUID, SiteID: body.SiteID, Name: body.Name, Tags: body.Tags, KeyIDs: body.SSHKeyIDs,
		WaitSeconds: body.WaitSeconds, ExpiresAt: body.ExpiresAt, MaxSpendMinor: body.MaxSpend, ReadsMoney: op.ReadsMoney(ctx), Policy: s.cfg.Policy,
		Actor: op.ProjectActor(ctx),
	}
}

// auditAllocation writes what a customer did, or an operator for him, into the log of the project.
func (s *allocationServer) auditAllocation(ctx context.Context, tx *db.Tx, project, name string, meta map[string]any) error {
	a := op.ProjectActor(ctx)
	a.Metadata = meta
	return tx.AppendAudit(ctx, db.Entry{ResourceKind: lifecycle.Project.Resource, ResourceID: project, Kind: db.EntryAction, Name: name, Actor: a})
}

// find reads an allocation of the project of the request. To everybody else, and once it is pruned,
// it does not exist.
func (s *allocationServer) find(ctx context.Context, id string) (a allocationdb.Allocation, err error) {
	err = op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		if a, err = allocationdb.Get(ctx, tx, id); err == nil && a.PrunedAt != nil {
			err = db.NotFound(allocationdb.Resource + " " + id)
		}
		return err
	})
	return a, err
}

func (s *allocationServer) get(ctx context.Context, in *AllocationPath) (*op.Versioned[Allocation], error) {
	return s.show(ctx, in.AllocationID)
}

func (s *allocationServer) update(ctx context.Context, in *struct {
	AllocationPath
	op.Match
	Body AllocationPatch
}) (*op.Versioned[Allocation], error) {
	if why := tenancy.CheckTags(in.Body.Tags); why != "" {
		return nil, invalid("tags", why)
	}
	if _, err := s.find(ctx, in.AllocationID); err != nil {
		return nil, err
	}
	err := s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		p, err := tenancydb.LockProject(ctx, tx, in.ID)
		if err != nil {
			return err
		}
		if err := tenancy.RequireActive(p); err != nil {
			return err
		}
		a, err := allocationdb.Lock(ctx, tx, in.AllocationID)
		if err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return a.Version, nil })
		if err != nil {
			return err
		}
		if in.Body.Name != nil {
			a.Name = *in.Body.Name
		}
		if in.Body.Tags != nil {
			a.Tags = in.Body.Tags
		}
		if _, err := allocationdb.SetTags(ctx, tx, a.ID, v, a.Name, a.Tags); err != nil {
			return err
		}
		return s.auditAllocation(ctx, tx, in.ID, "update_allocation", map[string]any{"allocation": a.ID, "name": a.Name, "tags": a.Tags})
	})
	if err != nil {
		return nil, err
	}
	return s.show(ctx, in.AllocationID)
}

func (s *allocationServer) release(ctx context.Context, in *struct {
	AllocationPath
	Body *ReleaseRequest
}) (*op.Versioned[Allocation], error) {
	return s.releaseOf(ctx, in.AllocationID, in.Body)
}

// releaseOf releases an allocation of the project of the request.
func (s *allocationServer) releaseOf(ctx context.Context, id string, body *ReleaseRequest) (*op.Versioned[Allocation], error) {
	found, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	reason := "released by the customer"
	if body != nil && body.Reason != "" {
		reason = body.Reason
	}
	var out allocation.Released
	err = s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		if _, err := tenancydb.LockProject(ctx, tx, found.ProjectID); err != nil {
			return err
		}
		if out, err = allocation.Release(ctx, tx, id, reason, op.ProjectActor(ctx)); err != nil {
			return err
		}
		if out.Allocation.Version == found.Version && out.Action != lifecycle.ActionRetryStage {
			return nil // a repetition changes nothing
		}
		return s.auditAllocation(ctx, tx, found.ProjectID, "release_allocation", map[string]any{"allocation": id, "reason": reason})
	})
	if err != nil {
		return nil, err
	}
	if err := s.askJob(ctx, out, reason); err != nil {
		s.api.Log().WarnContext(ctx, "the job of a release was not reached", "allocation", id, "error", err)
		var refused *lifecycle.ActionRefusedError
		if errors.As(err, &refused) { // it names actions of operators
			return nil, problem.New(problem.Conflict, "the release waits for an operator, who sees it in the attention list; nothing is charged meanwhile")
		}
		return nil, err
	}
	return s.show(ctx, id)
}

// askJob asks the job of an allocation for what follows from a release. A job that is to stop reads
// that from the allocation too, so that nothing is lost when it is not reached. A job that stands
// still after a failure has to be asked; so a repetition asks it again.
func (s *allocationServer) askJob(ctx context.Context, r allocation.Released, reason string) error {
	if r.Job == nil {
		return nil
	}
	action := r.Action
	if action == "" && r.Allocation.Status == lifecycle.AllocationReleasing && r.Job.Status.Parked() {
		action = lifecycle.ActionRetryStage
	}
	if action == "" {
		return nil
	}
	err := s.cfg.AskJob(ctx, r.Job.ID, action, reason)
	if err != nil && action == lifecycle.ActionCancel {
		s.api.Log().WarnContext(ctx, "a job was not told to stop; it finds out by itself", "job", r.Job.ID, "error", err)
		return nil
	}
	return err
}
