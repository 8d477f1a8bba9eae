package tenancydb

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/tenancy/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// NewMember is who becomes a member. Email is where notices go, "" when no address is verified.
type NewMember struct {
	Subject, Name, Email string
	Role                 lifecycle.ProjectRole
}

// AddMember makes an identity a member. It returns a *db.ConflictError when it is one.
func AddMember(ctx context.Context, tx *db.Tx, projectID string, m NewMember) (Member, error) {
	row, err := queries(tx).InsertMember(ctx, gen.InsertMemberParams{
		ProjectID: projectID, ID: db.NewID("mem"), Subject: m.Subject, Name: db.ClipText(m.Name, maxMemberName), Email: m.Email, Role: m.Role,
	})
	return row, db.MapError("member of project "+projectID, err)
}

const maxMemberName = 200

// SetMemberEmail stores where notices for a member go.
func SetMemberEmail(ctx context.Context, c Conn, projectID, id, email string) error {
	return db.MapError("address of member "+id, queries(c).SetMemberEmail(ctx, gen.SetMemberEmailParams{ProjectID: projectID, ID: id, Email: email}))
}

// ReadMember returns one member, or db.ErrNotFound.
func ReadMember(ctx context.Context, tx *db.ProjectTx, id string) (Member, error) {
	row, err := queries(tx).Member(ctx, gen.MemberParams{ProjectID: tx.Project(), ID: id})
	return row, db.MapError("member "+id, err)
}

// ListMembers lists members by id, from the one after the id given.
func ListMembers(ctx context.Context, tx *db.ProjectTx, after string, limit int) ([]Member, error) {
	rows, err := queries(tx).ListMembers(ctx, gen.ListMembersParams{ProjectID: tx.Project(), After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list members", err)
}

// ChangeRole changes the role of the version given, or returns db.ErrStale. The commit fails with
// db.ErrLastOwner when the project would have no owner.
func ChangeRole(ctx context.Context, tx *db.ProjectTx, id string, version int64, role lifecycle.ProjectRole) (Member, error) {
	row, err := queries(tx).UpdateMember(ctx, gen.UpdateMemberParams{ProjectID: tx.Project(), ID: id, Version: version, Role: role})
	return db.CheckUpdate("member "+id, row, err, func() error { _, err := ReadMember(ctx, tx, id); return err })
}

// RemoveMember deletes the version given with the member's keys and tokens. The commit fails with
// db.ErrLastOwner when the project would have no owner.
func RemoveMember(ctx context.Context, tx *db.ProjectTx, id string, version int64) error {
	// Not by the cascade: the owner of the tables would run it, who sees no allocation from which a
	// key could be withdrawn.
	if err := queries(tx).DeleteMemberKeys(ctx, gen.DeleteMemberKeysParams{ProjectID: tx.Project(), MemberID: id}); err != nil {
		return db.MapError("delete SSH keys of member "+id, err)
	}
	n, err := queries(tx).DeleteMember(ctx, gen.DeleteMemberParams{ProjectID: tx.Project(), ID: id, Version: version})
	return db.CheckDelete("member "+id, n, err, func() error { _, err := ReadMember(ctx, tx, id); return err })
}

// Grant is a role of an identity in a project. MemberID is "" for the role of a group.
type Grant = gen.RolesInRow

// RolesIn lists the roles of an identity in a project. It is how a request gets access to the
// project, so it runs for the platform.
func RolesIn(ctx context.Context, c Conn, projectID, subject string, groups []string) ([]Grant, error) {
	rows, err := queries(c).RolesIn(ctx, gen.RolesInParams{ProjectID: projectID, Subject: subject, Groups: db.EmptyIfNil(groups)})
	return rows, db.MapError("roles in project "+projectID, err)
}

// ListGroupRoles lists the roles that groups of the identity provider have.
func ListGroupRoles(ctx context.Context, tx *db.ProjectTx) ([]GroupRole, error) {
	rows, err := queries(tx).ListGroupRoles(ctx, tx.Project())
	return rows, db.MapError("list group roles", err)
}

// PutGroupRole gives a group a role, in place of the one it has.
func PutGroupRole(ctx context.Context, tx *db.ProjectTx, group string, role lifecycle.ProjectRole) (GroupRole, error) {
	row, err := queries(tx).PutGroupRole(ctx, gen.PutGroupRoleParams{ProjectID: tx.Project(), GroupName: group, Role: role})
	return row, db.MapError("role of a group", err)
}

// DeleteGroupRole takes a group's role, or returns db.ErrNotFound.
func DeleteGroupRole(ctx context.Context, tx *db.ProjectTx, group string) error {
	n, err := queries(tx).DeleteGroupRole(ctx, gen.DeleteGroupRoleParams{ProjectID: tx.Project(), GroupName: group})
	return deleted("role of a group", n, err)
}

func deleted(what string, rows int64, err error) error {
	return db.CheckRepeatable(what, rows, err, func() error { return db.NotFound(what) })
}

// CreateInvitation adds a pending invitation, or returns a *db.ConflictError when the identity has
// one.
func CreateInvitation(ctx context.Context, c Conn, i Invitation) (Invitation, error) {
	row, err := queries(c).InsertInvitation(ctx, gen.InsertInvitationParams{
		ProjectID: i.ProjectID, ID: db.NewID("inv"), Email: i.Email, Subject: i.Subject, Role: i.Role, InvitedBy: i.InvitedBy, ExpiresAt: i.ExpiresAt,
	})
	return row, db.MapError("invitation", err)
}

// ReadInvitation returns one invitation, or db.ErrNotFound.
func ReadInvitation(ctx context.Context, tx *db.ProjectTx, id string) (Invitation, error) {
	row, err := queries(tx).Invitation(ctx, gen.InvitationParams{ProjectID: tx.Project(), ID: id})
	return row, db.MapError("invitation "+id, err)
}

// ListInvitations lists invitations by id, from the one after the id given.
func ListInvitations(ctx context.Context, tx *db.ProjectTx, after string, limit int) ([]Invitation, error) {
	rows, err := queries(tx).ListInvitations(ctx, gen.ListInvitationsParams{ProjectID: tx.Project(), After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list invitations", err)
}

// CountPending expires overdue invitations of the locked project and counts the pending ones.
func CountPending(ctx context.Context, c Conn, projectID string) (int64, error) {
	q := queries(c)
	if _, err := q.ExpireInvitations(ctx, projectID); err != nil {
		return 0, db.MapError("expire invitations", err)
	}
	n, err := q.CountPending(ctx, projectID)
	return n, db.MapError("count invitations", err)
}

// RevokeInvitation ends a pending invitation; db.ErrStale when it is not pending.
func RevokeInvitation(ctx context.Context, tx *db.ProjectTx, id string) error {
	n, err := queries(tx).RevokeInvitation(ctx, gen.RevokeInvitationParams{ProjectID: tx.Project(), ID: id})
	return db.CheckGuarded("invitation "+id, n, err)
}

// RevokeInvitationsOf ends the pending invitations that an identity has made or could accept, so
// that one who is removed does not come back by them. email is the identity's verified address, or
// "".
func RevokeInvitationsOf(ctx context.Context, tx *db.ProjectTx, subject, email string) error {
	return db.MapError("revoke invitations", queries(tx).RevokeInvitationsOf(ctx, gen.RevokeInvitationsOfParams{
		ProjectID: tx.Project(), Subject: subject, Email: email,
	}))
}

// InvitationFor is an invitation with the name of its project.
type InvitationFor = gen.InvitationsForRow

// InvitationsFor lists what an identity can accept, oldest first, at most 100.
func InvitationsFor(ctx context.Context, c Conn, subject, email string) ([]InvitationFor, error) {
	rows, err := queries(c).InvitationsFor(ctx, gen.InvitationsForParams{Subject: subject, Email: email, MaxRows: 100})
	return rows, db.MapError("list invitations", err)
}

// LockInvitation locks an invitation of any project, or returns db.ErrNotFound.
func LockInvitation(ctx context.Context, tx *db.Tx, id string) (Invitation, error) {
	row, err := queries(tx).LockInvitation(ctx, id)
	return row, db.MapError("invitation "+id, err)
}

// AcceptInvitation ends a locked invitation that is pending and not overdue; db.ErrStale otherwise.
func AcceptInvitation(ctx context.Context, tx *db.Tx, id, subject string) error {
	n, err := queries(tx).AcceptInvitation(ctx, gen.AcceptInvitationParams{ID: id, AcceptedBy: subject})
	return db.CheckGuarded("invitation "+id, n, err)
}

// PruneInvitations deletes a batch of invitations that ended before a time, also pending ones that
// could not be accepted any more by then. It keeps those that a present member has accepted.
func PruneInvitations(ctx context.Context, c Conn, before time.Time) (int64, error) {
	n, err := queries(c).PruneInvitations(ctx, gen.PruneInvitationsParams{Before: before, MaxRows: db.PruneBatch})
	return n, db.MapError("prune invitations", err)
}

// AddSSHKey adds a key of a member. It returns a *db.ConflictError when name or key are there.
func AddSSHKey(ctx context.Context, tx *db.ProjectTx, k SSHKey) (SSHKey, error) {
	row, err := queries(tx).InsertSSHKey(ctx, gen.InsertSSHKeyParams{
		ProjectID: tx.Project(), ID: db.NewID("key"), MemberID: k.MemberID, Name: k.Name, Type: k.Type, PublicKey: k.PublicKey, Fingerprint: k.Fingerprint,
	})
	return row, db.MapError("SSH key", err)
}

// ReadSSHKey returns one key, or db.ErrNotFound.
func ReadSSHKey(ctx context.Context, tx *db.ProjectTx, id string) (SSHKey, error) {
	row, err := queries(tx).SSHKey(ctx, gen.SSHKeyParams{ProjectID: tx.Project(), ID: id})
	return row, db.MapError("SSH key "+id, err)
}

// ListSSHKeys lists keys by id, from the one after the id given.
func ListSSHKeys(ctx context.Context, tx *db.ProjectTx, after string, limit int) ([]SSHKey, error) {
	rows, err := queries(tx).ListSSHKeys(ctx, gen.ListSSHKeysParams{ProjectID: tx.Project(), After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list SSH keys", err)
}

// ListKeysOf lists the keys of a project for the platform, by id.
func ListKeysOf(ctx context.Context, c Conn, projectID string) ([]SSHKey, error) {
	rows, err := queries(c).ListSSHKeys(ctx, gen.ListSSHKeysParams{ProjectID: projectID, MaxRows: db.PageLimit(maxKeys)})
	return rows, db.MapError("list SSH keys", err)
}

const maxKeys = 100

// CountSSHKeys counts the keys of the project.
func CountSSHKeys(ctx context.Context, tx *db.ProjectTx) (int64, error) {
	n, err := queries(tx).CountSSHKeys(ctx, tx.Project())
	return n, db.MapError("count SSH keys", err)
}

// DeleteSSHKey deletes a key, or returns db.ErrNotFound.
func DeleteSSHKey(ctx context.Context, tx *db.ProjectTx, id string) error {
	n, err := queries(tx).DeleteSSHKey(ctx, gen.DeleteSSHKeyParams{ProjectID: tx.Project(), ID: id})
	return deleted("SSH key "+id, n, err)
}

// DeleteKeysAbove deletes the SSH keys of a member, and its tokens of roles that its role does not
// include.
func DeleteKeysAbove(ctx context.Context, tx *db.ProjectTx, memberID string, role lifecycle.ProjectRole) error {
	q := queries(tx)
	if err := q.DeleteMemberKeys(ctx, gen.DeleteMemberKeysParams{ProjectID: tx.Project(), MemberID: memberID}); err != nil {
		return db.MapError("delete SSH keys of member "+memberID, err)
	}
	kept := []string{string(role)}
	if role.Includes(lifecycle.RoleProjectViewer) {
		kept = append(kept, string(lifecycle.RoleProjectViewer))
	}
	err := q.DeleteMemberTokens(ctx, gen.DeleteMemberTokensParams{ProjectID: tx.Project(), MemberID: memberID, Kept: kept})
	return db.MapError("delete tokens of member "+memberID, err)
}

// AddToken stores the hash of a token of a member.
func AddToken(ctx context.Context, tx *db.ProjectTx, memberID, name string, hash []byte, role lifecycle.ProjectRole, expires time.Time) (Token, error) {
	row, err := queries(tx).InsertToken(ctx, gen.InsertTokenParams{
		ProjectID: tx.Project(), ID: db.NewID("tok"), MemberID: memberID, Name: name, Hash: hash, Role: role, ExpiresAt: expires,
	})
	return Token(row), db.MapError("token "+name, err)
}

// ReadToken returns one token, or db.ErrNotFound.
func ReadToken(ctx context.Context, tx *db.ProjectTx, id string) (Token, error) {
	row, err := queries(tx).Token(ctx, gen.TokenParams{ProjectID: tx.Project(), ID: id})
	return Token(row), db.MapError("token "+id, err)
}

// ListTokens lists tokens by id, from the one after the id given.
func ListTokens(ctx context.Context, tx *db.ProjectTx, after string, limit int) ([]Token, error) {
	return listTokens(ctx, tx, "", after, limit)
}

// ListTokensOf lists the tokens of one member as ListTokens does. Without a member there are none.
func ListTokensOf(ctx context.Context, tx *db.ProjectTx, memberID, after string, limit int) ([]Token, error) {
	if memberID == "" {
		return []Token{}, nil
	}
	return listTokens(ctx, tx, memberID, after, limit)
}

func listTokens(ctx context.Context, tx *db.ProjectTx, memberID, after string, limit int) ([]Token, error) {
	rows, err := queries(tx).ListTokens(ctx, gen.ListTokensParams{ProjectID: tx.Project(), MemberID: memberID, After: after, MaxRows: db.PageLimit(limit)})
	out := make([]Token, 0, len(rows))
	for _, r := range rows {
		out = append(out, Token(r))
	}
	return out, db.MapError("list tokens", err)
}

// CountTokens deletes expired tokens of the locked project and counts the others.
func CountTokens(ctx context.Context, tx *db.ProjectTx) (int64, error) {
	q := queries(tx)
	if err := q.PruneTokens(ctx, tx.Project()); err != nil {
		return 0, db.MapError("prune tokens", err)
	}
	n, err := q.CountTokens(ctx, tx.Project())
	return n, db.MapError("count tokens", err)
}

// DeleteToken deletes a token, or returns db.ErrNotFound.
func DeleteToken(ctx context.Context, tx *db.ProjectTx, id string) error {
	n, err := queries(tx).DeleteToken(ctx, gen.DeleteTokenParams{ProjectID: tx.Project(), ID: id})
	return deleted("token "+id, n, err)
}

// TokenHolder is a token with the member that it belongs to.
type TokenHolder = gen.TokenByHashRow

// TokenByHash finds a token, also one that has expired, or db.ErrNotFound. It is how a request
// proves who it is, so it runs for the platform.
func TokenByHash(ctx context.Context, c Conn, hash []byte) (TokenHolder, error) {
	row, err := queries(c).TokenByHash(ctx, hash)
	return row, db.MapError("token", err)
}
