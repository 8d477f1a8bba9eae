package db

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/slipway-cloud/slipway/internal/poll"
)

//go:embed migrations/*.sql functions/*.sql views/*.sql
var schema embed.FS

// Schema holds the SQL files of the schema: migrations/ in goose format, and functions/ and views/,
// which Migrate applies again.
func Schema() fs.FS { return schema }

// migrations is the folder of migration files.
func migrations() fs.FS {
	files, err := fs.Sub(schema, "migrations")
	if err != nil {
		return schema // the path is constant and embedded
	}
	return files
}

// AuditMonthsAhead is how far ahead Migrate and the relay make audit partitions. Each partition is
// one more table that a query without a bound in time plans and opens.
const AuditMonthsAhead = 3

// Migrate brings the database at dsn to this program's schema, makes the coming months' audit
// partitions, and gives each role its rights. Objects belong to RoleOwner afterwards. The user of
// dsn is a member of RoleOwner or, the first time, a superuser, who creates the roles. Several
// processes may do it at once: one works and the others wait for it. Repeatable. A migration that
// does not get a lock is tried again for about two minutes; the error names it and who held the
// lock.
func Migrate(ctx context.Context, dsn string) error {
	return migrate(ctx, dsn, migrations(), lockBounds{wait: 3 * time.Second, pause: time.Second, tries: 8})
}

func migrate(ctx context.Context, dsn string, files fs.FS, bounds lockBounds) error {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return errUnreadableDSN
	}
	watchPrimary(cfg, newCheckPeriods())
	cfg.RuntimeParams["search_path"] = searchPath
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect to the database to migrate it: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := prepareOwner(ctx, conn); err != nil {
		return err
	}
	m := migrator{bounds: bounds, watch: conn}
	if err := m.up(ctx, *cfg, files); err != nil {
		return err
	}
	return applyGrants(ctx, conn)
}

// lockBounds are how long a statement of a migration waits for a lock, and how often the migration
// is tried, with a pause that doubles. Everybody who wants a table waits behind a statement that
// waits for it, so that it gives up soon and comes back.
type lockBounds struct {
	wait, pause time.Duration
	tries       int
}

// longestPause bounds the pause between two tries.
const longestPause = 15 * time.Second

// migrator runs migrations, and sees on another connection who keeps them waiting.
type migrator struct {
	bounds lockBounds
	watch  *pgx.Conn

	mu   sync.Mutex
	pids []uint32 // of the connections that migrate
}

// up runs the migrations as RoleOwner.
func (m *migrator) up(ctx context.Context, cfg pgx.ConnConfig, files fs.FS) error {
	cfg.RuntimeParams = maps.Clone(cfg.RuntimeParams)
	cfg.RuntimeParams["lock_timeout"] = strconv.FormatInt(m.bounds.wait.Milliseconds(), 10)
	conn := stdlib.OpenDB(cfg, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		m.mu.Lock()
		m.pids = append(m.pids, c.PgConn().PID())
		m.mu.Unlock()
		_, err := c.Exec(ctx, "SET ROLE "+RoleOwner)
		return err
	}))
	defer func() { _ = conn.Close() }()
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("lock the migrations: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, conn, files, goose.WithSessionLocker(locker))
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	return m.retry(ctx, func(ctx context.Context) (string, error) {
		if doing, err := createFunctions(ctx, conn, p); err != nil {
			return doing, err
		}
		if _, err := p.Up(ctx); err != nil {
			var partial *goose.PartialError
			if errors.As(err, &partial) && partial.Failed != nil {
				return "migration " + path.Base(partial.Failed.Source.Path), err
			}
			return "migrate the database", err
		}
		if doing, err := replaceCode(ctx, conn, p); err != nil {
			return doing, err
		}
		_, err := conn.ExecContext(ctx, "SELECT audit_ensure_partitions($1)", AuditMonthsAhead)
		return "make the audit partitions", err
	})
}

// retry calls do until it succeeds, fails otherwise than by a wait for a lock, or was called often
// enough. do returns what it was doing. Migrations that were applied before stay.
func (m *migrator) retry(ctx context.Context, do func(context.Context) (string, error)) error {
	pause := m.bounds.pause
	for try := 1; ; try++ {
		ended := m.watchHolders(ctx)
		what, err := do(ctx)
		holders := ended()
		switch {
		case err == nil:
			return nil
		case sqlState(err) != stateLockTimeout:
			return fmt.Errorf("%s: %w", what, err)
		case try == m.bounds.tries:
			return fmt.Errorf("%s did not get its lock in %d tries; %s: end that, or wait, and migrate again: %w", what, try, holders, err)
		}
		if err := poll.Sleep(ctx, pause+rand.N(pause)); err != nil {
			return err
		}
		pause = min(2*pause, longestPause)
	}
}

// watchHolders looks who keeps the migrations waiting until ended is called, which says who it was
// last.
func (m *migrator) watchHolders(ctx context.Context) (ended func() string) {
	ctx, cancel := context.WithCancel(ctx)
	done, held := make(chan struct{}), "nobody was seen to hold it"
	go func() {
		defer close(done)
		for poll.Sleep(ctx, m.bounds.wait/4) == nil {
			m.mu.Lock()
			pids := slices.Clone(m.pids)
			m.mu.Unlock()
			// Without rights to statistics all of this can be read of others, and nothing more.
			const holders = `SELECT coalesce(string_agg(DISTINCT format('process %s of user %s, application "%s", holds it', h.pid, h.usename, h.application_name), '; '), '')
				FROM pg_stat_activity h WHERE h.pid IN (SELECT unnest(pg_blocking_pids(w)) FROM unnest($1::int[]) w)`
			var now string
			// When this connection is lost, only the names of the holders are lost: the migration
			// has a connection of its own.
			if err := m.watch.QueryRow(context.WithoutCancel(ctx), holders, pids).Scan(&now); err == nil && now != "" {
				held = now
			}
		}
	}()
	return func() string { cancel(); <-done; return held }
}
