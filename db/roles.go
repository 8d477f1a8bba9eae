package db

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/internal/poll"
)

// The roles of Slipway in a PostgreSQL cluster. None of them can log in: the users that log in are
// members of one. Databases of the same cluster share them.
const (
	RoleOwner    = "slipway_owner"    // owns every object; migrations run as it
	RoleApp      = "slipway_app"      // what a serving process may do
	RoleCustomer = "slipway_customer" // what a request of a customer may do in one project
	RoleRead     = "slipway_read"     // what people and dashboards may read: no secrets, no hashes
)

func roles() []string { return []string{RoleOwner, RoleApp, RoleCustomer, RoleRead} }

const (
	statePermission = "42501"
	stateDuplicate  = "42710"
	// stateLockTimeout is that of a lock that another session holds for too long.
	stateLockTimeout = "55P03"

	// ownerPause is the least time between two tries to take the ownership of the tables.
	ownerPause = 200 * time.Millisecond
	// ownerAttempts bounds the tries: the processes that serve do not wait for a migration.
	ownerAttempts = 20
)

// superuserAdvice says how to go on when the user of the migration lacks a right.
func superuserAdvice(statement string) string {
	return "migrate once as a superuser, or have a superuser run this in the database: " + statement
}

// prepareOwner creates the roles that are missing, gives the objects of the schema public to
// RoleOwner, and makes sure that the user of conn can act as RoleOwner. It changes nothing that is
// right already, so that later it needs no right but the membership in RoleOwner. Processes of the
// version before may hold tables for long, or in another order: after five seconds, or a deadlock,
// it lets go of what it holds and tries again.
func prepareOwner(ctx context.Context, conn *pgx.Conn) error {
	for attempt := 1; ; attempt++ {
		err := prepareOwnerOnce(ctx, conn)
		if err == nil || !retryable(err) && sqlState(err) != stateLockTimeout || attempt == ownerAttempts {
			return err
		}
		if err := poll.Sleep(ctx, ownerPause+rand.N(ownerPause)); err != nil {
			return err
		}
	}
}

func prepareOwnerOnce(ctx context.Context, conn *pgx.Conn) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('slipway:roles', 0)); SET LOCAL lock_timeout = '5s'"); err != nil {
			return fmt.Errorf("lock the roles: %w", err)
		}
		if err := createRoles(ctx, tx); err != nil {
			return err
		}
		if err := checkRoles(ctx, tx); err != nil {
			return err
		}
		if err := joinOwner(ctx, tx); err != nil {
			return err
		}
		return takeOwnership(ctx, tx)
	})
}

// try runs one statement that may be refused and leaves tx usable.
func try(ctx context.Context, tx pgx.Tx, statement string) error {
	return pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
		_, err := inner.Exec(ctx, statement)
		return err
	})
}

// createRoles creates what is missing. The lock of the caller is one database's: a migration of
// another database of the cluster may create the same role at the same time.
func createRoles(ctx context.Context, tx pgx.Tx) error {
	for _, role := range roles() {
		var there bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role).Scan(&there); err != nil {
			return fmt.Errorf("look for role %s: %w", role, err)
		}
		if there {
			continue
		}
		create := "CREATE ROLE " + role + " NOLOGIN"
		err := try(ctx, tx, create)
		switch sqlState(err) {
		case stateDuplicate, stateUnique:
		case statePermission:
			return fmt.Errorf("role %s is missing and this user may not create it: %s", role, superuserAdvice(create))
		default:
			if err != nil {
				return fmt.Errorf("create role %s: %w", role, err)
			}
		}
	}
	return nil
}

// checkRoles refuses roles that somebody has given a right that they must not have.
func checkRoles(ctx context.Context, tx pgx.Tx) error {
	const query = `SELECT rolname FROM pg_roles WHERE rolname = ANY ($1)
		AND (rolsuper OR rolbypassrls OR rolcreatedb OR rolcreaterole OR rolreplication OR rolcanlogin)`
	var bad string
	err := tx.QueryRow(ctx, query, roles()).Scan(&bad)
	if err == nil {
		return fmt.Errorf("role %s has a right that it must not have; have a superuser run: "+
			"ALTER ROLE %s NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION", bad, bad)
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read the roles: %w", err)
	}
	for _, role := range []string{RoleApp, RoleCustomer, RoleRead} {
		var member bool
		if err := tx.QueryRow(ctx, "SELECT pg_has_role($1, $2, 'MEMBER')", role, RoleOwner).Scan(&member); err != nil {
			return fmt.Errorf("read the members of %s: %w", RoleOwner, err)
		}
		if member {
			return fmt.Errorf("role %s is a member of %s, so that nothing is forbidden to it; have a superuser run: REVOKE %s FROM %s",
				role, RoleOwner, RoleOwner, role)
		}
	}
	return nil
}

// joinOwner makes the user a member of RoleOwner where it is none and may become one.
func joinOwner(ctx context.Context, tx pgx.Tx) error {
	var user string
	if err := tx.QueryRow(ctx, "SELECT quote_ident(current_user)").Scan(&user); err != nil {
		return fmt.Errorf("read the user of the migration: %w", err)
	}
	const become = "SET LOCAL ROLE " + RoleOwner + "; RESET ROLE"
	err := try(ctx, tx, become)
	if sqlState(err) == statePermission {
		grant := "GRANT " + RoleOwner + " TO " + user
		if err = try(ctx, tx, grant); sqlState(err) == statePermission {
			return fmt.Errorf("user %s is no member of %s: %s", user, RoleOwner, superuserAdvice(grant))
		}
	}
	if err != nil {
		return fmt.Errorf("act as role %s: %w", RoleOwner, err)
	}
	return nil
}

// foreignSQL lists the objects in the schema public that do not belong to RoleOwner, as statements
// that give them to RoleOwner. Objects that follow their table, such as the sequence of an identity
// column, and objects of an extension are left out.
const foreignSQL = `
SELECT format('ALTER SCHEMA public OWNER TO %I', $1::text) FROM pg_namespace
    WHERE nspname = 'public' AND NOT pg_has_role($1::text::name, nspowner, 'USAGE')
UNION ALL
SELECT format('ALTER %s public.%I OWNER TO %I', CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE'
        ELSE 'TABLE' END, c.relname, $1::text)
    FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
        AND c.relowner <> $1::text::regrole AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
            AND (d.deptype = 'e' OR (c.relkind = 'S' AND d.deptype IN ('a', 'i'))))
UNION ALL
SELECT format('ALTER ROUTINE %s OWNER TO %I', p.oid::regprocedure, $1::text)
    FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proowner <> $1::text::regrole
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
UNION ALL
SELECT format('ALTER TYPE public.%I OWNER TO %I', t.typname, $1::text)
    FROM pg_type t WHERE t.typnamespace = 'public'::regnamespace AND t.typowner <> $1::text::regrole AND t.typelem = 0
        AND (t.typrelid = 0 OR EXISTS (SELECT FROM pg_class c WHERE c.oid = t.typrelid AND c.relkind = 'c'))
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype IN ('e', 'i'))`

// publicTempSQL gives the statement that keeps temporary tables from everybody, where it is needed
// and this user may run it.
const publicTempSQL = `
SELECT format('REVOKE TEMPORARY, CREATE ON DATABASE %I FROM PUBLIC', d.datname) FROM pg_database d
    WHERE d.datname = current_database() AND pg_has_role(d.datdba, 'USAGE')
        AND EXISTS (SELECT FROM aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a WHERE a.grantee = 0 AND a.privilege_type IN ('TEMPORARY', 'CREATE'))`

// interimSQL keeps the processes working that served as the owner, as members of RoleApp, until
// applyGrants takes what is too much. It does nothing where RoleApp has its rights already.
const interimSQL = `
DO $$
DECLARE statement text;
BEGIN
    IF coalesce(has_table_privilege('` + RoleApp + `', to_regclass('public.audit_log'), 'SELECT'), false) THEN
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA public TO ` + RoleApp + `;
    FOR statement IN
        SELECT format('GRANT %s ON %s TO ` + RoleApp + `',
            CASE kind WHEN 'TABLE' THEN 'SELECT, INSERT, UPDATE, DELETE' WHEN 'SEQUENCE' THEN 'USAGE' ELSE 'EXECUTE' END, kind || ' ' || name)
        FROM (` + ownedSQL + `) AS owned
    LOOP
        EXECUTE statement;
    END LOOP;
END $$`

// ownedSQL lists the objects of RoleOwner in the schema public, as GRANT and REVOKE name them. The
// objects of an extension belong to another role.
const ownedSQL = `
SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind, 'public.' || quote_ident(relname) AS name
    FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S') AND relowner = '` + RoleOwner + `'::regrole
UNION ALL
SELECT 'ROUTINE', oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proowner = '` + RoleOwner + `'::regrole`

// takeOwnership gives to RoleOwner what an earlier version made as another user.
func takeOwnership(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, foreignSQL, RoleOwner)
	if err != nil {
		return fmt.Errorf("read the owners: %w", err)
	}
	foreign, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read the owners: %w", err)
	}
	for _, statement := range foreign {
		err := try(ctx, tx, statement)
		if sqlState(err) == statePermission {
			return fmt.Errorf("%d objects belong to another role than %s and this user may not change that: %s", len(foreign), RoleOwner,
				superuserAdvice(strings.Join(foreign, "; ")))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	if len(foreign) > 0 {
		if _, err := tx.Exec(ctx, "SET LOCAL ROLE "+RoleOwner+";"+interimSQL+"; RESET ROLE"); err != nil {
			return fmt.Errorf("grant %s its rights until the migrations have run: %w", RoleApp, err)
		}
	}
	var revoke string
	err = tx.QueryRow(ctx, publicTempSQL).Scan(&revoke)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil {
		_, err = tx.Exec(ctx, revoke)
	}
	if err != nil {
		return fmt.Errorf("take rights on the database from everybody: %w", err)
	}
	return nil
}

const userSQL = `
SELECT quote_ident(r.rolname), r.rolsuper, r.rolbypassrls, r.rolcreaterole,
    EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND pg_has_role(c.relowner, 'MEMBER')),
    has_schema_privilege('public', 'CREATE'),
    coalesce((SELECT has_table_privilege(c.oid, 'SELECT') FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relname = 'audit_log'), true)
FROM pg_roles r WHERE r.rolname = current_user`

// ErrPrivilegedUser is returned for a database user that could change what no serving process may.
var ErrPrivilegedUser = errors.New("the database user has too many rights")

// CheckUser returns ErrPrivilegedUser when the user of the connection is not bound by the rights of
// RoleApp, and another error when it has too few of them.
func (s *Store) CheckUser(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var user string
	var super, bypass, createRole, owner, create, member bool
	if err := s.pool.QueryRow(ctx, userSQL).Scan(&user, &super, &bypass, &createRole, &owner, &create, &member); err != nil {
		return MapError("read the rights of the database user", err)
	}
	for _, r := range []struct {
		has  bool
		text string
	}{
		{super, "is a superuser"},
		{bypass, "has BYPASSRLS"},
		{createRole, "has CREATEROLE"},
		{owner, "owns the tables, or is a member of the role that does"},
		{create, "may create objects in the schema public"},
	} {
		if r.has {
			return fmt.Errorf("%w: %s %s, so it could rewrite the audit log; use a login of its own that is a member of %s only: "+
				"CREATE ROLE slipway LOGIN PASSWORD '...' IN ROLE %s", ErrPrivilegedUser, user, r.text, RoleApp, RoleApp)
		}
	}
	if !member {
		return fmt.Errorf("the database user %s may not read the tables; have a superuser run: GRANT %s TO %s", user, RoleApp, user)
	}
	return nil
}
