package dbtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Key is a public key of no use.
const (
	Key            = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
	KeyFingerprint = "SHA256:dbtest"
)

// Project makes a project of a billing account of its own, which may have any number of nodes.
func Project(t testing.TB, s *db.Store) tenancydb.Project {
	t.Helper()
	var p tenancydb.Project
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) (err error) {
		p, err = project(t.Context(), tx)
		return err
	}))
	return p
}

func project(ctx context.Context, tx *db.Tx) (tenancydb.Project, error) {
	account, err := tenancydb.CreateAccount(ctx, tx, db.NewID("account"), 10)
	if err != nil {
		return tenancydb.Project{}, err
	}
	p, err := tenancydb.CreateProject(ctx, tx, account.ID, "project", nil, actor(lifecycle.OwnerAdmin))
	if err != nil {
		return p, err
	}
	return p, tenancydb.PutQuota(ctx, tx, p.ID, "", 10000)
}

func actor(o lifecycle.Owner) db.Actor { return db.Actor{Owner: o, ID: "dbtest"} }

// Occupy gives a node to a tenant of a project of its own: the allocation is active.
func Occupy(t testing.TB, s *db.Store, nodeID string) allocationdb.Allocation {
	t.Helper()
	a, err := OccupyNode(t.Context(), s, nodeID)
	require.NoError(t, err)
	return a
}

// SetTenantRoot says of every SKU whether its tenants are root on their nodes.
func SetTenantRoot(ctx context.Context, s *db.Store, root bool) error {
	_, err := s.DBTX().Exec(ctx, "UPDATE skus SET tenant_root = $1", root)
	return err
}

// SetTenantRootOf says of one SKU whether its tenants are root on their nodes.
func SetTenantRootOf(ctx context.Context, s *db.Store, skuID string, root bool) error {
	_, err := s.DBTX().Exec(ctx, "UPDATE skus SET tenant_root = $2 WHERE id = $1", skuID, root)
	return err
}

// SetNodeSKU gives a node another SKU, as an operator would who classifies it again.
func SetNodeSKU(ctx context.Context, s *db.Store, nodeID, skuID string) error {
	_, err := s.DBTX().Exec(ctx, "UPDATE nodes SET sku_id = $2 WHERE id = $1", nodeID, skuID)
	return err
}

// claimSQL is the claim of one node, whatever its health.
const claimSQL = `
WITH moved AS (
    UPDATE allocations SET status = 'provisioning', node_id = $2, site_id = (SELECT nullif(n.site_id, '') FROM nodes n WHERE n.id = $2),
        provisioning_at = now(), version = version + 1, updated_at = now()
    WHERE id = $1 RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, node_id, kind, name, from_state, to_state, triggered_by, owner, version, metadata)
    SELECT $3, 'allocation', id, node_id, 'transition', 'claim', 'requested', status, 'admin', 'admin', version, '{}' FROM moved
)
UPDATE nodes SET allocation_id = $1, version = version + 1 WHERE id = $2 AND allocation_id IS NULL`

// keySQL gives a project an owner with Key, so that allocations of it may have that key.
const keySQL = `
WITH owner AS (
    INSERT INTO project_members (project_id, id, subject, name, email, role) VALUES ($1, $2, 'oidc:' || $2, 'owner', '', 'owner') RETURNING project_id, id
)
INSERT INTO project_ssh_keys (project_id, id, member_id, name, type, public_key, fingerprint)
SELECT project_id, $3, id, 'key', 'ssh-ed25519', $4, $5 FROM owner`

// ProjectKey gives a project an owner with Key. It returns the ids of both.
func ProjectKey(ctx context.Context, tx *db.Tx, projectID string) (memberID, keyID string, err error) {
	memberID, keyID = db.NewID("mem"), db.NewID("key")
	_, err = tx.DBTX().Exec(ctx, keySQL, projectID, memberID, keyID, Key, KeyFingerprint)
	return memberID, keyID, err
}

// OccupyNode is Occupy outside of a test of package testing.
func OccupyNode(ctx context.Context, s *db.Store, nodeID string) (allocationdb.Allocation, error) {
	var a allocationdb.Allocation
	err := s.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Node(ctx, nodeID)
		if err != nil {
			return err
		}
		p, err := project(ctx, tx)
		if err != nil {
			return err
		}
		if _, _, err := ProjectKey(ctx, tx, p.ID); err != nil {
			return err
		}
		if n.SKUID == nil {
			sku, err := tx.CreateSKU(ctx, db.NewID("name"), spec.SKUSpec{})
			if err != nil {
				return err
			}
			n.SKUID = &sku.ID
		}
		a, err = allocationdb.Create(ctx, tx, allocationdb.New{
			ProjectID: p.ID, SKUID: *n.SKUID, RequestedBy: "dbtest", Actor: actor(lifecycle.OwnerAdmin),
			Keys: []allocationdb.PublicKey{{Fingerprint: KeyFingerprint, PublicKey: Key}},
		})
		if err != nil {
			return err
		}
		tag, err := tx.DBTX().Exec(ctx, claimSQL, a.ID, nodeID, db.NewID("evt"))
		if err != nil {
			return err
		}
		if tag.RowsAffected() != 1 {
			return db.NotFound("free node " + nodeID)
		}
		if err := allocationdb.EnterOccupancy(ctx, tx, nodeID, lifecycle.OccupancyAllocated, a.ID, ""); err != nil {
			return err
		}
		if err := allocationdb.RecordKey(ctx, tx, a.ID, KeyFingerprint, true); err != nil {
			return err
		}
		a, err = allocationdb.Activate(ctx, tx, a.ID, allocationdb.Connection{Host: "127.0.0.1", Port: 22, User: lifecycle.TenantAccount(a.ID)},
			allocationdb.Image{ID: "image", Name: "image"}, actor(lifecycle.OwnerJob))
		return err
	})
	return a, err
}

// EndTenancy ends what Occupy began: a tenant left the node, and nothing proves it clean.
func EndTenancy(t testing.TB, s *db.Store, allocationID string) allocationdb.Allocation {
	t.Helper()
	a, err := EndTenancyOf(t.Context(), s, allocationID)
	require.NoError(t, err)
	return a
}

// EndTenancyOf is EndTenancy outside of a test of package testing.
func EndTenancyOf(ctx context.Context, s *db.Store, allocationID string) (allocationdb.Allocation, error) {
	var a allocationdb.Allocation
	err := s.Tx(ctx, func(tx *db.Tx) error {
		var err error
		if a, err = allocationdb.Get(ctx, tx, allocationID); err != nil {
			return err
		}
		if a.Status == lifecycle.AllocationActive {
			release := allocationdb.Move{ID: allocationID, To: lifecycle.AllocationRelease, Actor: actor(lifecycle.OwnerAdmin)}
			if _, err = allocationdb.MoveTo(ctx, tx, release); err != nil {
				return err
			}
		}
		if err := allocationdb.EndAccess(ctx, tx, allocationID, lifecycle.AccessRevoked); err != nil {
			return err
		}
		a, err = allocationdb.Free(ctx, tx, allocationID, lifecycle.OutcomeReleased, "", actor(lifecycle.OwnerJob))
		return err
	})
	return a, err
}

// FreeNode makes a node that a claim may take: in service, with a healthy report of just now.
func FreeNode(t testing.TB, s *db.Store, opts ...Option) db.Node {
	t.Helper()
	n := Node(t, s, append(opts, Active())...)
	require.NoError(t, s.RecordHeartbeats(t.Context(), []db.Heartbeat{
		{NodeID: n.ID, BootID: "boot-1", Generation: 1, ReceivedAt: time.Now(), Report: &spec.HealthReport{}},
	}))
	return n
}

// Certificate stores a certificate of a node that was issued at a moment, and returns its id. It
// may prove that nothing of who left before another is there. Its signature is of no use.
func Certificate(t testing.TB, s *db.Store, nodeID, verdict string, at time.Time, sanitizedSince ...time.Time) string {
	t.Helper()
	id := db.NewID("cert")
	var since *time.Time
	if len(sanitizedSince) > 0 {
		since = &sanitizedSince[0]
	}
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.DBTX().Exec(t.Context(), signerSQL, db.NewID("key"))
		if err != nil {
			return err
		}
		_, err = tx.DBTX().Exec(t.Context(), certificateSQL, id, nodeID, verdict, at, since)
		return err
	}))
	return id
}

const signerSQL = `
INSERT INTO signing_keys (id, purpose, public, secret_ref) VALUES ($1, 'certificate', decode(repeat('00', 32), 'hex'), 'x')
ON CONFLICT (purpose) WHERE retired_at IS NULL DO NOTHING`

const certificateSQL = `
INSERT INTO certificates (id, node_id, run_id, sequence, verdict, simulated, payload, hash, previous_hash, key_id, signature, issued_at, sanitized_since)
SELECT $1::text, $2::text, 'r', c.length + 1, $3::text, true, '', encode(sha256($1::text::bytea), 'hex'),
    CASE WHEN c.length = 0 THEN '' ELSE repeat('0', 64) END, k.id, decode(repeat('00', 64), 'hex'), $4::timestamptz, $5::timestamptz
FROM (SELECT count(*) AS length FROM certificates WHERE node_id = $2::text) c, (SELECT id FROM signing_keys WHERE retired_at IS NULL) k`
