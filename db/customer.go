package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
)

// CustomerLogin gives a Store a second pool for ForProject. The user of dsn is a member of
// RoleCustomer and of nothing else.
func CustomerLogin(dsn string) Option { return func(s *Store) { s.customerDSN = dsn } }

// ErrNoCustomerLogin: the Store was opened without CustomerLogin.
var ErrNoCustomerLogin = errors.New("this process has no database login for customers")

// ProjectTx is one transaction that sees one project, as RoleCustomer. It belongs to one goroutine.
type ProjectTx struct {
	project string
	q       *gen.Queries
	dbtx    DBTX
}

// Project returns the id of the project that the transaction sees.
func (tx *ProjectTx) Project() string { return tx.project }

// DBTX returns the transaction. The New function of every package that sqlc generates takes it.
func (tx *ProjectTx) DBTX() DBTX { return tx.dbtx }

const projectPrefix = "prj_"

// ForProject runs fn in a transaction that sees the rows of one project and commits it when fn
// returns nil. All queries of customers run in it. Conflicts are repeated as by Tx. A project that
// does not exist has no rows. ForProject returns ErrNotFound for a text that is no project's id,
// and ErrLastOwner when the project would have no owner.
func (s *Store) ForProject(ctx context.Context, project string, fn func(*ProjectTx) error) error {
	if s.customers == nil {
		return ErrNoCustomerLogin
	}
	if len(project) <= len(projectPrefix) || !strings.HasPrefix(project, projectPrefix) || ClipText(project, maxProjectID) != project {
		return fmt.Errorf("project: %w", ErrNotFound)
	}
	err := repeat(ctx, func() error {
		return transact(ctx, s.customers, beginWrite, func(tx DBTX) error {
			const bind = "SELECT set_config('role', '" + RoleCustomer + "', true), set_config('app.project', $1, true)"
			if _, err := tx.Exec(ctx, bind, project); err != nil {
				return MapError("bind the transaction to a project", err)
			}
			return fn(&ProjectTx{project, gen.New(tx), tx})
		})
	})
	if sqlState(err) == stateLastOwner { // raised by the commit
		return ErrLastOwner
	}
	return err
}

const maxProjectID = 100

// openCustomers opens the pool of ForProject.
func (s *Store) openCustomers(ctx context.Context) error {
	if s.customerDSN == "" {
		return nil
	}
	pool, _, err := openPool(ctx, s.customerDSN, s.primary.checkPeriods)
	if err != nil {
		return fmt.Errorf("the login for customers: %w", err)
	}
	s.customers = pool
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := pool.Ping(ctx); err != nil {
		return fmt.Errorf("the database does not answer the login for customers: %w", err)
	}
	return nil
}

const customerUserSQL = `
SELECT quote_ident(r.rolname), r.rolsuper OR r.rolbypassrls OR r.rolcreaterole,
    pg_has_role('` + RoleCustomer + `', 'MEMBER'),
    EXISTS (SELECT FROM pg_roles o WHERE o.oid <> r.oid AND o.rolname <> '` + RoleCustomer + `' AND pg_has_role(o.oid, 'MEMBER')),
    EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND pg_has_role(c.relowner, 'MEMBER'))
FROM pg_roles r WHERE r.rolname = session_user`

// CheckCustomerUser returns ErrPrivilegedUser when the login for customers is not bound by the
// rights of RoleCustomer, and another error when it lacks them. It returns nil without a login.
func (s *Store) CheckCustomerUser(ctx context.Context) error {
	if s.customers == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var user string
	var super, member, more, owner bool
	if err := s.customers.QueryRow(ctx, customerUserSQL).Scan(&user, &super, &member, &more, &owner); err != nil {
		return MapError("read the rights of the database login for customers", err)
	}
	advice := "use a login of its own: CREATE ROLE slipway_api LOGIN NOINHERIT PASSWORD '...' IN ROLE " + RoleCustomer
	switch {
	case super || owner || more:
		return fmt.Errorf("%w: %s is the login for customers and can do more than %s, so that one customer could reach another; %s",
			ErrPrivilegedUser, user, RoleCustomer, advice)
	case !member:
		return fmt.Errorf("the database login for customers, %s, is no member of %s; have a superuser run: GRANT %s TO %s",
			user, RoleCustomer, RoleCustomer, user)
	}
	return nil
}

// BeginIdempotent is Tx.BeginIdempotent for the keys of one project.
func (tx *ProjectTx) BeginIdempotent(ctx context.Context, principal, route, key string, requestHash []byte) (IdempotencyState, IdempotencyRecord, error) {
	return beginIdempotent(ctx, tx.q, projectKeys{tx}, tx.project, principal, route, key, requestHash)
}

// FinishIdempotent stores the answer that a replay gets.
func (tx *ProjectTx) FinishIdempotent(ctx context.Context, principal, route, key string, status int, headers map[string]string, body []byte) error {
	if headers == nil {
		headers = map[string]string{}
	}
	n, err := tx.q.FinishProjectIdempotency(ctx, gen.FinishProjectIdempotencyParams{
		ProjectID: tx.project, Principal: principal, Route: route, Key: key, Status: status, Headers: headers, Body: body,
	})
	return CheckRepeatable("idempotency record", n, err, func() error { return MapError("idempotency record in flight", pgx.ErrNoRows) })
}

// projectKeys are the idempotency records of one project.
type projectKeys struct{ tx *ProjectTx }

func (k projectKeys) find(ctx context.Context, principal, route, key string) (IdempotencyRecord, error) {
	row, err := k.tx.q.ProjectIdempotency(ctx, gen.ProjectIdempotencyParams{ProjectID: k.tx.project, Principal: principal, Route: route, Key: key})
	return IdempotencyRecord(row), err
}

func (k projectKeys) insert(ctx context.Context, principal, route, key string, requestHash []byte, ttl time.Duration) (IdempotencyRecord, error) {
	row, err := k.tx.q.InsertProjectIdempotency(ctx, gen.InsertProjectIdempotencyParams{
		ProjectID: k.tx.project, Principal: principal, Route: route, Key: key, RequestHash: requestHash, TtlSeconds: ttl.Seconds(),
	})
	return IdempotencyRecord(row), err
}
