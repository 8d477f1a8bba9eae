package db

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations is the folder of migration files, goose format.
func Migrations() fs.FS {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return migrations // the path is constant and embedded
	}
	return files
}

// auditMonthsAhead is how far ahead Migrate makes audit partitions.
const auditMonthsAhead = 12

// Migrate brings the database at dsn to this program's schema, makes the coming months' audit
// partitions, and gives each role its rights. Objects belong to RoleOwner afterwards. The user of dsn
// is a member of RoleOwner or, the first time, a superuser, who creates the roles. Several processes
// may do it at once: one works and the others wait for it. Repeatable.
func Migrate(ctx context.Context, dsn string) error {
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
	if err := migrateUp(ctx, *cfg); err != nil {
		return err
	}
	return applyGrants(ctx, conn)
}

// migrateUp runs the migrations as RoleOwner.
func migrateUp(ctx context.Context, cfg pgx.ConnConfig) error {
	conn := stdlib.OpenDB(cfg, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SET ROLE "+RoleOwner)
		return err
	}))
	defer func() { _ = conn.Close() }()
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("lock the migrations: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, conn, Migrations(), goose.WithSessionLocker(locker))
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	if _, err := conn.ExecContext(ctx, "SELECT audit_ensure_partitions($1)", auditMonthsAhead); err != nil {
		return fmt.Errorf("make the audit partitions: %w", err)
	}
	return nil
}
