// Package dbtest gives every test a migrated database of its own on a real
// PostgreSQL, and builders for what stands in it:
//
//	store := dbtest.Store(t)
//	node := dbtest.Node(t, store, dbtest.Active())
//
// The server is the one that TEST_DATABASE_URL names, or one of the test
// process's own. The schema is migrated once into a template database, of which
// each test gets a copy. It may be one that an ended test has used, and that was
// emptied: making a copy costs the server several tenths of a second of CPU time.
//
// Tests connect as a user with the rights of a serving process. For everything that this user may
// not do, a test uses the connection of Owner.
package dbtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/pg"
	"github.com/slipway-cloud/slipway/db"
)

// serverEnv names a running server; its user must be allowed to create
// databases.
const serverEnv = "TEST_DATABASE_URL"

// The users that tests connect as: appLogin has the rights of a serving process, customerLogin
// those of a customer's request.
const (
	appLogin      = "slipway_test_app"
	customerLogin = "slipway_test_customer"
)

const (
	prepareLimit = 3 * time.Minute
	createLimit  = time.Minute
)

// source is the server of this test process and its template.
type source struct {
	server   *pg.Server
	template string
	group    string // of the used databases; "" for those that all processes share
	schema   string // what schemaSQL returns for the template
	locks    *locks
	keepers  *keepers
	stores   *stores
}

// ofProcess is made by the first test that needs it and lives as long as the
// process: the private server ends with it.
var ofProcess = sync.OnceValues(prepare)

func prepare() (source, error) {
	ctx, cancel := context.WithTimeout(context.Background(), prepareLimit)
	defer cancel()
	server, err := pg.Acquire(ctx, serverEnv, pg.Options{})
	if err != nil {
		return source{}, err
	}
	name, err := templateName()
	if err != nil {
		return source{}, err
	}
	conn, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		return source{}, err
	}
	// Until this process ends, no other one drops the template and its copies.
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock_shared(hashtextextended($1, 0))", inUse(name)); err != nil {
		return source{}, err
	}
	if err := makeTemplate(ctx, server, name); err != nil {
		return source{}, err
	}
	for login, role := range map[string]string{appLogin: db.RoleApp, customerLogin: db.RoleCustomer} {
		if err := server.EnsureLogin(ctx, login, role); err != nil {
			return source{}, err
		}
	}
	src := source{server: server, template: name, locks: &locks{conn: conn, held: map[string]bool{}}, keepers: &keepers{conns: map[string]*pgx.Conn{}}, stores: &stores{kept: map[string]*db.Store{}}}
	const comment = "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = $1"
	return src, conn.QueryRow(ctx, comment, name).Scan(&src.schema)
}

const templatePrefix = "slipway_template_"

// inUse is the name of the lock that the users of a template share.
func inUse(template string) string { return template + " in use" }

// templateName changes with the schema, so that processes share a template
// on a server that outlives them and never meet an old one.
func templateName() (string, error) {
	sum := sha256.New()
	fmt.Fprint(sum, schemaSQL) // the template's comment is its result
	fmt.Fprint(sum, db.RolesFingerprint())
	files := db.Schema()
	names, err := fs.Glob(files, "*/*.sql")
	if err != nil {
		return "", err
	}
	for _, n := range names {
		b, err := fs.ReadFile(files, n)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", n, len(b), b)
	}
	return templatePrefix + hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// makeTemplate migrates under another name first: a template that has its name
// is complete.
func makeTemplate(ctx context.Context, server *pg.Server, name string) error {
	admin, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		return fmt.Errorf("connect to the test server: %w", err)
	}
	defer func() { _ = admin.Close(ctx) }()
	if _, err := admin.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name); err != nil {
		return err
	}
	var there bool
	if err := admin.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)", name).Scan(&there); err != nil || there {
		return err
	}
	building := name + "_building"
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + quote(building) + " WITH (FORCE)", "CREATE DATABASE " + quote(building)} {
		if _, err := admin.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if err := db.Migrate(ctx, server.DSN(building)); err != nil {
		return err
	}
	if err := noteSchema(ctx, admin, server, building); err != nil {
		return err
	}
	if err := rename(ctx, admin, building, name); err != nil {
		return err
	}
	return dropOld(ctx, admin, name)
}

// rename waits until the server has noticed that the migration's connections
// are closed.
func rename(ctx context.Context, admin *pgx.Conn, from, to string) error {
	for {
		_, err := admin.Exec(ctx, "ALTER DATABASE "+quote(from)+" RENAME TO "+quote(to))
		if err == nil || !strings.Contains(err.Error(), "55006") {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// Database returns the DSN of a migrated, empty database that only this test
// uses. The test must not change its schema. The user of the DSN has the rights
// of a serving process.
func Database(t testing.TB) string {
	t.Helper()
	src, err := ofProcess()
	require.NoError(t, err, "a PostgreSQL for the tests")
	return src.appDSN(t, src.take(t))
}

func (s source) appDSN(t testing.TB, name string) string {
	t.Helper()
	dsn, err := s.server.LoginDSN(name, appLogin)
	require.NoError(t, err)
	return dsn
}

// OwnerDSN returns the DSN of the database that dsn of Database or FreshDatabase names, for the
// superuser of the server. It is for what a serving process must not do: to change the schema, to
// disable triggers, to forge rows.
func OwnerDSN(t testing.TB, dsn string) string {
	t.Helper()
	src, err := ofProcess()
	require.NoError(t, err, "a PostgreSQL for the tests")
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	return src.server.DSN(cfg.Database)
}

// CustomerDSN is OwnerDSN for a login that can only act as db.RoleCustomer.
func CustomerDSN(t testing.TB, dsn string) string {
	t.Helper()
	src, err := ofProcess()
	require.NoError(t, err, "a PostgreSQL for the tests")
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	customer, err := src.server.LoginDSN(cfg.Database, customerLogin)
	require.NoError(t, err)
	return customer
}

// Owner connects to OwnerDSN until the test ends.
func Owner(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), OwnerDSN(t, dsn))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// FreshDatabase makes a migrated, empty database for this test, which may change
// its schema by Owner, and returns its DSN as Database does.
func FreshDatabase(t testing.TB) string {
	t.Helper()
	src, name := newDatabase(t)
	src.create(t, name)
	return src.appDSN(t, name)
}

// UnmigratedDatabase makes a database without a schema for this test, and returns its DSN as
// OwnerDSN does.
func UnmigratedDatabase(t testing.TB) string {
	t.Helper()
	src, name := newDatabase(t)
	admin(t, src, "CREATE DATABASE "+quote(name))
	return src.server.DSN(name)
}

// newDatabase chooses the name of a database that is dropped after the test.
func newDatabase(t testing.TB) (src source, name string) {
	t.Helper()
	src, err := ofProcess()
	require.NoError(t, err, "a PostgreSQL for the tests")
	name = fmt.Sprintf("slipway_test_%d_%s", os.Getpid(), strings.TrimPrefix(db.NewID("x"), "x_"))
	t.Cleanup(func() { admin(t, src, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)") })
	return src, name
}

func (s source) create(t testing.TB, name string) {
	t.Helper()
	admin(t, s, "CREATE DATABASE "+quote(name)+" TEMPLATE "+quote(s.template)+" STRATEGY FILE_COPY") // less than half the CPU time of WAL_LOG
}

func admin(t testing.TB, src source, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), createLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, src.server.DSN("postgres"))
	require.NoError(t, err)
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, statement)
	require.NoError(t, err)
}

// Store opens a migrated, empty database of this test's own.
func Store(t testing.TB) *db.Store {
	t.Helper()
	return Open(t, Database(t))
}

const (
	poolSize         = "12"
	customerPoolSize = "6"
)

// Open opens the database at dsn until the test ends. On the server of the tests it has a login for
// customers. For a database of Database, Open may return the Store of an ended test.
func Open(t testing.TB, dsn string) *db.Store {
	t.Helper()
	if !sameServer(t, dsn, OwnerDSN(t, dsn)) {
		store, err := db.Open(t.Context(), withOption(dsn, "pool_max_conns", poolSize))
		require.NoError(t, err)
		t.Cleanup(store.Close)
		return store
	}
	src, err := ofProcess()
	require.NoError(t, err, "a PostgreSQL for the tests")
	return src.stores.openStore(t, dsn)
}

func sameServer(t testing.TB, dsn, other string) bool {
	t.Helper()
	one, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	two, err := pgx.ParseConfig(other)
	require.NoError(t, err)
	return one.Host == two.Host && one.Port == two.Port
}

// withOption sets a parameter of a URL.
func withOption(dsn, name, value string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return dsn
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}
