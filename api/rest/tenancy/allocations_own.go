package tenancy

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
)

// OwnProject says which project a call without a project in its path is about.
type OwnProject struct {
	ProjectID string `query:"project_id" maxLength:"200" doc:"prj_...; left out, the project of the token, or the only one that you are a member of"`
	OperatorReason
}

// OperatorReason is why an operator acts on a customer's project.
type OperatorReason struct {
	Reason string `header:"Slipway-Reason" maxLength:"500" doc:"Why an operator acts on a customer's project; members leave it out"`
}

// OwnAllocationPath is the path of an allocation without its project.
type OwnAllocationPath struct {
	AllocationID string `path:"allocation_id" maxLength:"200" doc:"alc_..."`
	OperatorReason
}

// registerOwn declares the paths without a project. They do what those of a project do, with the
// same roles in it.
func (s *allocationServer) registerOwn() {
	const base, one = "/allocations", "/allocations/{allocation_id}"
	allocationRoute(s, "list-own-allocations", http.MethodGet, base, "List allocations of your project", "As list-allocations, which those may call who have role viewer in the project.", s.listOwn)
	allocationRoute(s, "create-own-allocation", http.MethodPost, base, "Ask for a node for your project", "As create-allocation, which those may call who have role member in the project.", s.createOwn)
	allocationRoute(s, "get-own-allocation", http.MethodGet, one, "Read an allocation by its id alone", "As get-allocation, which those may call who have role viewer in its project.", s.getOwn)
	allocationRoute(s, "release-own-allocation", http.MethodPost, one+"/release", "Give a node back by the allocation's id alone", "As release-allocation, which those may call who have role member in its project.", s.releaseOwn)
	allocationRoute(s, "set-own-allocation-keys", http.MethodPut, one+"/keys", "Replace the keys that may log in, by the allocation's id alone", "As set-allocation-keys, which those may call who have role member in its project.", s.setKeysOwn)
}

// maxNamed is how many projects an error names.
const maxNamed = 20

// enter returns the context of a request in the project that it names, or in the only one that the
// caller is a member of. guessed says the second. A role of a group is not enough for that: others
// gave it.
func (s *allocationServer) enter(ctx context.Context, p OwnProject, role op.Role) (in context.Context, guessed bool, err error) {
	id, who := cmp.Or(p.ProjectID, op.PrincipalOf(ctx).Project), op.PrincipalOf(ctx)
	if id == "" && who.Identity.Subject != "" {
		rows, err := tenancydb.ListProjectsOf(ctx, s.api.Store(), "", who.Identity.Subject, nil, 2)
		if err != nil {
			return ctx, false, err
		}
		if guessed = len(rows) == 1; guessed {
			id = rows[0].ID
		}
	}
	if id == "" {
		return ctx, false, s.nameProject(ctx, who.Identity)
	}
	in, err = op.EnterProject(ctx, s.api, id, role, role == op.RoleProjectMember, p.Reason)
	return in, guessed, err
}

// nameProject refuses a call that names no project, with those that it may name.
func (s *allocationServer) nameProject(ctx context.Context, who op.Identity) error {
	message := "must say which project is meant; GET /projects lists those that you have a role in"
	if who.Subject != "" {
		rows, err := tenancydb.ListProjectsOf(ctx, s.api.Store(), "", who.Subject, who.Groups, maxNamed)
		if err != nil {
			return err
		}
		ids := make([]string, 0, len(rows))
		for _, p := range rows {
			ids = append(ids, p.ID)
		}
		if len(ids) > 0 {
			message = "must say which project is meant: " + strings.Join(ids, ", ")
		}
	}
	return problem.NewInvalid(problem.Field{Location: "query.project_id", Message: message})
}

// enterOf is enter for the project of an allocation. To those who have no role in it the allocation
// does not exist.
func (s *allocationServer) enterOf(ctx context.Context, in OwnAllocationPath, role op.Role) (context.Context, error) {
	a, err := allocationdb.Get(ctx, s.api.Store(), in.AllocationID)
	if err != nil {
		return ctx, err
	}
	inside, err := op.EnterProject(ctx, s.api, a.ProjectID, role, role == op.RoleProjectMember, in.Reason)
	if errors.Is(err, db.ErrNotFound) {
		return ctx, db.NotFound(allocationdb.Resource + " " + in.AllocationID) // as Get says it of one that is not there
	}
	return inside, err
}

func (s *allocationServer) listOwn(ctx context.Context, in *struct {
	OwnProject
	AllocationQuery
}) (*op.Listed[Allocation], error) {
	ctx, _, err := s.enter(ctx, in.OwnProject, op.RoleProjectAny)
	if err != nil {
		return nil, err
	}
	return s.listOf(ctx, in.AllocationQuery)
}

func (s *allocationServer) createOwn(ctx context.Context, in *struct {
	OwnProject
	op.Key
	Body AllocationRequest
}) (*op.Created[Allocation], error) {
	ctx, err := s.enterToCreate(ctx, in.OwnProject, in.Body)
	if err != nil {
		return nil, err
	}
	return s.createIn(ctx, in.Key, in.Body)
}

// enterToCreate is enter for a request for a node.
func (s *allocationServer) enterToCreate(ctx context.Context, p OwnProject, body AllocationRequest) (context.Context, error) {
	ctx, guessed, err := s.enter(ctx, p, op.RoleProjectMember)
	if err == nil && guessed && len(body.SSHKeyIDs) == 0 {
		err = invalid("ssh_key_ids", "must name the keys that may log in, or project_id must name project "+op.ProjectAccessOf(ctx).Project+
			": all keys of a project are meant only where the request names it")
	}
	return ctx, err
}

func (s *allocationServer) getOwn(ctx context.Context, in *OwnAllocationPath) (*op.Versioned[Allocation], error) {
	ctx, err := s.enterOf(ctx, *in, op.RoleProjectViewer)
	if err != nil {
		return nil, err
	}
	return s.show(ctx, in.AllocationID)
}

func (s *allocationServer) releaseOwn(ctx context.Context, in *struct {
	OwnAllocationPath
	Body *ReleaseRequest
}) (*op.Versioned[Allocation], error) {
	ctx, err := s.enterOf(ctx, in.OwnAllocationPath, op.RoleProjectMember)
	if err != nil {
		return nil, err
	}
	return s.releaseOf(ctx, in.AllocationID, in.Body)
}
