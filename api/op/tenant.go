package op

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The roles of customers' routes. RoleSignedIn includes every authenticated caller. The other roles
// apply to the project with the {id} of the path.
const (
	RoleSignedIn       Role = "signed_in"
	RoleProjectAny     Role = "project_any" // every role in the project
	RoleProjectViewer  Role = "project_viewer"
	RoleProjectMember  Role = "project_member"
	RoleProjectBilling Role = "project_billing"
	RoleProjectOwner   Role = "project_owner"
)

const (
	projectRolePrefix = "project_"
	// ProjectTokenPrefix is the prefix of the tokens of projects.
	ProjectTokenPrefix = "slpp_"
	reasonHeader       = "Slipway-Reason"
)

// isOfTenant reports whether the role is for routes of customers.
func (r Role) isOfTenant() bool { return r == RoleSignedIn || r.inProject() != "" }

// inProject returns the role in a project, or "" for other roles.
func (r Role) inProject() lifecycle.ProjectRole {
	name, _ := strings.CutPrefix(string(r), projectRolePrefix)
	if role := lifecycle.ProjectRole(name); (role.IsKnown() || role == lifecycle.RoleProjectAny) && name != string(r) {
		return role
	}
	return ""
}

// Identity is a user who signed in with OIDC.
type Identity struct {
	Subject string   `json:"subject,omitempty" doc:"oidc: and the subject of the sign-in"`
	Email   string   `json:"email,omitempty" doc:"Only when the identity provider has verified it"`
	Groups  []string `json:"groups,omitempty"`
	// Kept says that a session keeps it since its sign-in. A bearer token may know a newer address.
	Kept bool `json:"-"`
}

// Bounds of the groups of one sign-in, and of a group's name in characters.
const (
	maxGroups    = 200
	maxGroupName = 200
)

func identityOf(who Principal, claims map[string]any, groupsClaim string) Identity {
	i := Identity{Subject: who.ID}
	if verified, _ := claims["email_verified"].(bool); verified {
		// The lower case of some letters outside ASCII is an ASCII letter, so that two addresses of
		// different users could become equal.
		claim, _ := claims["email"].(string)
		if email, err := tenancy.ParseEmail(claim); err == nil {
			i.Email = email
		}
	}
	i.Groups = groupsOf(claims[groupsClaim])
	return i
}

// groupsOf returns at most maxGroups groups of a claim. It ignores names that cannot have a role in
// a project.
func groupsOf(claim any) []string {
	var groups []string
	for _, g := range texts(claim) {
		if g == "" || utf8.RuneCountInString(g) > maxGroupName || strings.ContainsRune(g, 0) || slices.Contains(groups, g) {
			continue
		}
		if groups = append(groups, g); len(groups) == maxGroups {
			break
		}
	}
	return groups
}

// projectToken is the project token of a principal.
type projectToken struct {
	memberID, subject string
	role, memberRole  lifecycle.ProjectRole
}

func (a *API) byProjectToken(ctx context.Context, text string) (Principal, error) {
	t, err := tenancydb.TokenByHash(ctx, a.store, TokenHash(text))
	if errors.Is(err, db.ErrNotFound) {
		return Principal{}, rejected()
	}
	if err != nil {
		return Principal{}, err
	}
	if t.Expired {
		return Principal{}, expired(t.ExpiresAt)
	}
	a.uses.note(ctx, TokenHash(text), t.LastUsedAt)
	return Principal{
		ID: "project_token:" + t.Name + ":" + t.ID, Name: t.Name, Roles: []string{}, Project: t.ProjectID,
		token: &projectToken{t.MemberID, t.Subject, t.Role, t.MemberRole},
	}, nil
}

// ProjectAccess is the access of a request to a project.
type ProjectAccess struct {
	Project  string
	MemberID string // "" for operators and for roles of groups
	Operator bool
	Reason   string // of an operator
	grants   []lifecycle.ProjectRole
}

// Allows reports whether the access includes a role.
func (p ProjectAccess) Allows(role lifecycle.ProjectRole) bool {
	return p.Operator || slices.ContainsFunc(p.grants, func(r lifecycle.ProjectRole) bool { return r.Includes(role) })
}

// ReadsMoney reports whether the caller may read what a project is charged and what is left.
func ReadsMoney(ctx context.Context) bool {
	return ProjectAccessOf(ctx).Allows(lifecycle.RoleProjectBilling)
}

// ProjectAccessOf returns the access of the request to the project in its path.
func ProjectAccessOf(ctx context.Context) ProjectAccess {
	p, _ := ctx.Value(projectKey).(ProjectAccess)
	return p
}

// AccessAgain checks the access of a long request to its project again. It returns a context with
// the current access for ProjectAccessOf, or a problem when the access has ended.
func AccessAgain(ctx context.Context) (context.Context, ProjectAccess, error) {
	again, ok := ctx.Value(accessKey).(func(context.Context) (ProjectAccess, error))
	if !ok {
		return ctx, ProjectAccess{}, problem.New(problem.Forbidden, "the route names no project")
	}
	access, err := again(ctx)
	return context.WithValue(ctx, projectKey, access), access, err
}

// requireTenant declares and enforces the role of a customer's route.
func (a *API) requireTenant(op *huma.Operation, role Role) {
	op.Security = []map[string][]string{{"bearer": {}}, {"session": {}}}
	if role == RoleSignedIn {
		op.Description = strings.TrimSpace(op.Description + "\n\nNeeds a sign-in and no role.")
		op.Middlewares = append(op.Middlewares, a.requiresSignIn(op.Method+" "+op.Path))
		return
	}
	needs := "role " + string(role.inProject())
	if role == RoleProjectAny {
		needs = "any role"
	}
	op.Description = strings.TrimSpace(op.Description + "\n\nNeeds " + needs +
		" in the project. An operator needs " + reasonHeader + ", which is audited.")
	length := 500
	op.Parameters = append(op.Parameters, &huma.Param{
		Name: reasonHeader, In: "header", Description: "Why an operator acts on a customer's project; members leave it out",
		Schema: &huma.Schema{Type: huma.TypeString, MaxLength: &length},
	})
	route, write := op.Method+" "+op.Path, op.Method != http.MethodGet
	op.Middlewares = append(op.Middlewares, func(c huma.Context, next func(huma.Context)) {
		r, w := humachi.Unwrap(c)
		who, session, err := a.authenticate(w, r)
		id, reason := c.Param("id"), r.Header.Get(reasonHeader)
		var access ProjectAccess
		if err == nil {
			access, err = a.projectAccess(r.Context(), who, id, role.inProject(), write, reason)
		}
		if err == nil {
			err = a.limitChanges(access, write)
		}
		if err != nil {
			a.WriteError(w, r, err)
			return
		}
		if p := a.checkStepUp(r, route, session); p != nil {
			a.WriteError(w, r, p)
			return
		}
		identify := a.identifyAgain(r, session)
		again := func(ctx context.Context) (ProjectAccess, error) {
			who, err := identify(ctx)
			if err != nil {
				return ProjectAccess{}, err
			}
			return a.projectAccess(ctx, who, id, role.inProject(), write, reason)
		}
		recheck := func(ctx context.Context) error { _, err := again(ctx); return err }
		c = huma.WithValue(huma.WithValue(c, principalKey, who), projectKey, access)
		c = huma.WithValue(c, accessKey, again)
		next(huma.WithValue(c, recheckKey, recheck))
	})
}

// checkAgain checks that the caller still has the access with which the request began. Otherwise a
// client that sends its body slowly could make a change after its access has ended.
func (a *API) checkAgain(ctx context.Context) error {
	if recheck, ok := ctx.Value(recheckKey).(func(context.Context) error); ok {
		return recheck(ctx)
	}
	return nil
}

func (a *API) requiresSignIn(route string) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		r, w := humachi.Unwrap(c)
		who, session, err := a.authenticate(w, r)
		if err != nil {
			a.WriteError(w, r, err)
			return
		}
		if p := a.checkStepUp(r, route, session); p != nil {
			a.WriteError(w, r, p)
			return
		}
		identify := a.identifyAgain(r, session)
		recheck := func(ctx context.Context) error {
			_, err := identify(ctx)
			return err
		}
		next(huma.WithValue(huma.WithValue(c, principalKey, who), recheckKey, recheck))
	}
}

// EnterProject checks that the caller has the role in a project that is not in the path, and
// returns a context in this project. reason is required of operators. Callers without a role in the
// project get "not found". The role of the route must be RoleSignedIn.
func EnterProject(ctx context.Context, a *API, id string, role Role, write bool, reason string) (context.Context, error) {
	access, err := a.projectAccess(ctx, PrincipalOf(ctx), id, role.inProject(), write, reason)
	if err == nil {
		err = a.limitChanges(access, write)
	}
	if err != nil {
		return ctx, err
	}
	return context.WithValue(ctx, projectKey, access), nil
}

var reasonPattern = regexp.MustCompile(`^[^\p{C}]{3,500}$`)

// CheckReason returns the reason of an operator without surrounding blanks, or a problem with the
// location of the reason.
func CheckReason(location, reason string) (string, error) {
	reason = strings.TrimSpace(reason)
	if !reasonPattern.MatchString(reason) {
		return "", problem.NewInvalid(problem.Field{Location: location,
			Message: "must say in 3 to 500 characters why an operator acts on a customer's project; its owners see it"})
	}
	return reason, nil
}

// projectAccess returns the access of a principal to a project. reason is required of operators.
// Callers without a role in the project get "not found".
func (a *API) projectAccess(ctx context.Context, who Principal, id string, need lifecycle.ProjectRole, write bool, reason string) (ProjectAccess, error) {
	access, err := a.grantsOf(ctx, who, id)
	if err != nil {
		return ProjectAccess{}, err
	}
	least := RoleViewer
	if write {
		least = RoleOperator
	}
	// An owner may give a role to a group with operators. This must not reduce the rights of an
	// operator.
	if len(access.grants) > 0 && (reason == "" || !who.May(least)) {
		if access.Allows(need) {
			return access, nil
		}
		if !who.May(least) {
			return ProjectAccess{}, problem.New(problem.Forbidden,
				fmt.Sprintf("this call needs role %s in the project and %s has %s; ask an owner of the project", need, who.Name, joinRoles(access.grants)))
		}
	}
	if !who.May(RoleViewer) {
		return ProjectAccess{}, db.NotFound("project " + id)
	}
	if !who.May(least) {
		return ProjectAccess{}, problem.New(problem.Forbidden,
			fmt.Sprintf("this call needs role %s and %s has %s; ask an admin for a token with that role", least, who.Name, orNone(who.Roles)))
	}
	if reason, err = CheckReason("header."+reasonHeader, reason); err != nil {
		return ProjectAccess{}, err
	}
	return ProjectAccess{Project: id, Operator: true, Reason: reason}, nil
}

func joinRoles(roles []lifecycle.ProjectRole) string {
	names := make([]string, 0, len(roles))
	for _, r := range roles {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// grantsOf returns the roles of a principal in a project. A token has only roles that its member
// also has.
func (a *API) grantsOf(ctx context.Context, who Principal, id string) (ProjectAccess, error) {
	access := ProjectAccess{Project: id}
	if t := who.token; t != nil {
		if who.Project != id {
			return ProjectAccess{}, db.NotFound("project " + id)
		}
		access.MemberID = t.memberID
		switch {
		case t.memberRole.Includes(t.role):
			access.grants = append(access.grants, t.role)
		case t.role.Includes(t.memberRole):
			access.grants = append(access.grants, t.memberRole)
		default: // neither viewer nor billing includes the other
			access.grants = append(access.grants, lifecycle.RoleProjectAny)
		}
		return access, nil
	}
	if who.Identity.Subject == "" {
		return access, nil
	}
	grants, err := tenancydb.RolesIn(ctx, a.store, id, who.Identity.Subject, who.Identity.Groups)
	if err != nil {
		return ProjectAccess{}, err
	}
	for _, g := range grants {
		if g.MemberID != "" {
			access.MemberID = g.MemberID
			a.keepAddress(ctx, who, id, g)
		}
		access.grants = append(access.grants, g.Role)
	}
	return access, nil
}

// keepAddress stores the verified address of a member if it has changed. So notices reach members
// who changed their address, or who joined without one. The request continues if this fails.
func (a *API) keepAddress(ctx context.Context, who Principal, project string, g tenancydb.Grant) {
	email := who.Identity.Email
	if email == "" || email == g.Email || who.Identity.Kept {
		return
	}
	if err := tenancydb.SetMemberEmail(ctx, a.store, project, g.MemberID, email); err != nil {
		a.log.WarnContext(ctx, "the address of a member was not stored", "member", g.MemberID, "error", err)
	}
}

// AuditAccess writes the access of an operator to the project of the request into the audit log of
// the project, with the call and the reason. It commits the row, so that the row stays when the
// call fails. It writes nothing for members. A project that does not exist is "not found".
func AuditAccess(ctx context.Context, a *API) error {
	access := ProjectAccessOf(ctx)
	if !access.Operator {
		return nil
	}
	return a.store.ForProject(ctx, access.Project, func(tx *db.ProjectTx) error {
		if _, err := tenancydb.ReadProject(ctx, tx, access.Project); err != nil {
			return err
		}
		return AuditProject(ctx, tx, "operator_access", map[string]any{"call": Route(ctx)})
	})
}

// InProject runs fn in a transaction that sees only the project of the request. It audits the
// access of an operator first, and does not run fn without the audit row.
func InProject(ctx context.Context, a *API, fn func(*db.ProjectTx) error) error {
	if err := AuditAccess(ctx, a); err != nil {
		return err
	}
	return a.store.ForProject(ctx, ProjectAccessOf(ctx).Project, fn)
}

// CreateInProject is Create in a transaction that sees only the project of the request.
func CreateInProject[T any](
	ctx context.Context, a *API, k Key, body any, stored func(T) T, do func(*db.ProjectTx) (*Created[T], error),
) (out *Created[T], err error) {
	key, err := k.Required()
	if err != nil {
		return nil, err
	}
	err = InProject(ctx, a, func(tx *db.ProjectTx) error {
		out, err = answerOnce(ctx, tx, key, body, stored, func() (*Created[T], error) { return do(tx) })
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ProjectActor returns the actor of a request to a project, for an audit row.
func ProjectActor(ctx context.Context) db.Actor {
	if access := ProjectAccessOf(ctx); access.Operator {
		return db.Actor{Owner: lifecycle.OwnerAdmin, ID: PrincipalOf(ctx).ID, Comment: access.Reason}
	}
	return db.Actor{Owner: lifecycle.OwnerCustomer, ID: PrincipalOf(ctx).ID}
}

// ActorOf returns the actor of a request, which may be to a project or to the platform.
func ActorOf(ctx context.Context) db.Actor {
	if ProjectAccessOf(ctx).Project != "" {
		return ProjectActor(ctx)
	}
	return Actor(ctx)
}

// AuditProject writes an audit row to the audit log of the project of the transaction.
func AuditProject(ctx context.Context, tx *db.ProjectTx, name string, meta map[string]any) error {
	actor := ProjectActor(ctx)
	actor.Metadata = meta
	return tenancydb.AppendAudit(ctx, tx, name, actor)
}

// The interval at which a stream checks the access of its reader, the deadline of a check, and how
// long the stream continues while the check fails.
const (
	recheckEvery    = 20 * time.Second
	recheckDeadline = 5 * time.Second
	recheckLimit    = 35 * time.Second
)

// errAccessEnded is the cause of the end of a stream whose reader lost the access.
var errAccessEnded = errors.New("the access of the reader has ended")

// whileAllowed returns a context for a stream. The context ends within a minute after the reader
// has lost the access: by a removed member, a deleted or expired token, an ended session, or a
// changed role.
func whileAllowed(ctx context.Context, every, deadline, limit time.Duration) (context.Context, context.CancelFunc) {
	recheck, _ := ctx.Value(recheckKey).(func(context.Context) error)
	out, cancel := context.WithCancelCause(ctx)
	if recheck == nil { // a route without a check must not serve streams
		cancel(errAccessEnded)
		return out, func() {}
	}
	go func() {
		sure := time.Now()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-out.Done():
				return
			case <-tick.C:
			}
			bounded, stop := context.WithTimeout(out, deadline)
			err := recheck(bounded)
			late := bounded.Err() != nil // after its deadline a check may fail without a loss of access
			stop()
			refused := err != nil && !late && problem.From(err).Status < http.StatusInternalServerError
			if err == nil {
				sure = time.Now()
			} else if refused || time.Since(sure) >= limit {
				cancel(errAccessEnded)
				return
			}
		}
	}()
	return out, func() { cancel(context.Canceled) }
}
