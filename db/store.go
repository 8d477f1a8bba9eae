package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/internal/poll"
)

// Store is the database. Its methods may be called from any goroutine.
type Store struct {
	statements
	pool        *pgxpool.Pool
	primary     *primaryCheck // of pool
	customers   *pgxpool.Pool // for ForProject; nil without a login for customers
	customerDSN string
	log         *slog.Logger
	tokens      *sharedReads[string, APIToken] // by hash
	overviews   *sharedReads[string, NodeOverview]
}

// Tx is one transaction. It belongs to one goroutine.
type Tx struct {
	statements
	moves []nodeMove // what is logged after the commit
}

// Option sets up a Store.
type Option func(*Store)

// Log sets the logger for changes of nodes' states, which are logged after their commit. Without it
// none is logged.
func Log(log *slog.Logger) Option { return func(s *Store) { s.log = log } }

// RenewGrace sets how long after its end an agent's certificate can still be renewed. The default
// is DefaultRenewGrace.
func RenewGrace(d time.Duration) Option { return func(s *Store) { s.renewGrace = d } }

// DBTX runs SQL. The New function of every package that sqlc generates takes it.
type DBTX = gen.DBTX

// Conn is a *Store, which commits each statement by itself, or a *Tx, which commits its statements
// together. A package below db takes a Conn for an operation of one statement, a *Tx for one of
// several statements, and a *Store for one that begins its own transaction.
type Conn interface {
	DBTX() DBTX
	AppendAudit(ctx context.Context, e Entry) error
	AppendEvent(ctx context.Context, e Event) error
}

// statements has the operations of one statement each. A Store commits them one by one, a Tx all
// together.
type statements struct {
	q          *gen.Queries
	dbtx       DBTX
	renewGrace time.Duration
}

func statementsOn(dbtx DBTX, renewGrace time.Duration) statements {
	return statements{gen.New(dbtx), dbtx, renewGrace}
}

// DBTX returns what runs the queries of a package below db: the pool of a Store, the transaction
// of a Tx.
func (s statements) DBTX() DBTX { return s.dbtx }

// The time limits of a connection, unless its DSN sets others.
var sessionLimits = map[string]string{
	"statement_timeout":                   "60s",
	"lock_timeout":                        "15s",
	"idle_in_transaction_session_timeout": "60s",
	"application_name":                    "slipway",
	"TimeZone":                            "UTC",
	// A setting of the role or of the database must not decide to which table a name refers.
	"search_path":  searchPath,
	"row_security": "on",
}

// searchPath puts temporary tables last, where they hide nothing.
const searchPath = "public, pg_temp"

const connectTimeout = 10 * time.Second

var errUnreadableDSN = errors.New("the database DSN cannot be read: write a URL such as postgres://user@host:5432/slipway (the text is not shown, it may hold a password)")

// Open connects to a migrated database; dsn is a URL or key=value text, with
// the pool options of pgxpool (pool_max_conns=20). It fails when the database
// does not answer.
func Open(ctx context.Context, dsn string, opts ...Option) (*Store, error) {
	pool, primary, err := openPool(ctx, dsn, newCheckPeriods())
	if err != nil {
		return nil, err
	}
	s := &Store{statements: statementsOn(pool, DefaultRenewGrace), pool: pool, primary: primary, log: slog.New(slog.DiscardHandler)}
	for _, set := range opts {
		set(s)
	}
	s.tokens = &sharedReads[string, APIToken]{read: s.apiTokens, atOnce: sharedAtOnce}
	s.overviews = &sharedReads[string, NodeOverview]{read: s.nodeOverviews, atOnce: sharedAtOnce}
	err = s.Ping(ctx)
	if err == nil {
		err = s.openCustomers(ctx)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func openPool(ctx context.Context, dsn string, periods *checkPeriods) (pool *pgxpool.Pool, primary *primaryCheck, err error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, errUnreadableDSN
	}
	for name, value := range sessionLimits {
		if _, set := cfg.ConnConfig.RuntimeParams[name]; !set {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
	primary = watchPrimary(cfg.ConnConfig, periods)
	primary.guard(cfg, func() *pgxpool.Pool { return pool })
	if pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, nil, fmt.Errorf("open the database: %w", err)
	}
	return pool, primary, nil
}

// Close waits for running statements and closes every connection.
func (s *Store) Close() {
	if s.customers != nil {
		s.customers.Close()
	}
	s.pool.Close()
}

// Ping asks whether the database answers, for at most ten seconds.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := s.pool.Ping(ctx); err != nil {
		return fmt.Errorf("the database does not answer: %w", &unavailableError{err})
	}
	return nil
}

// Lock waits for the advisory lock of a name. The transaction holds it until it ends.
func (tx *Tx) Lock(ctx context.Context, name string) error {
	return MapError("lock "+name, tx.q.Lock(ctx, name))
}

// TryLock takes the advisory lock of a name until the transaction ends. It returns false when
// another transaction holds the lock.
func (tx *Tx) TryLock(ctx context.Context, name string) (bool, error) {
	locked, err := tx.q.TryLock(ctx, name)
	return locked, MapError("lock "+name, err)
}

const txAttempts = 6

// Tx runs fn in a transaction and commits it when fn returns nil. When the database breaks a
// deadlock or a serialization conflict, fn is run again, at most six times in all; So fn must do
// nothing that cannot be repeated, and above all must not call over the network.
func (s *Store) Tx(ctx context.Context, fn func(*Tx) error) error {
	return s.begin(ctx, beginWrite, fn)
}

// ReadTx runs fn in a read-only transaction on one snapshot.
func (s *Store) ReadTx(ctx context.Context, fn func(*Tx) error) error {
	return s.begin(ctx, beginRead, fn)
}

func (s *Store) begin(ctx context.Context, begin string, fn func(*Tx) error) error {
	return repeat(ctx, func() error {
		var moves []nodeMove
		err := transact(ctx, s.pool, begin, func(dbtx DBTX) error {
			t := &Tx{statements: statementsOn(dbtx, s.renewGrace)}
			err := fn(t)
			moves = t.moves
			return err
		})
		if err == nil {
			s.logMoves(ctx, moves)
		}
		return err
	})
}

// repeat runs a transaction again while it fails by a deadlock or a serialization conflict.
func repeat(ctx context.Context, run func() error) error {
	for attempt := 1; ; attempt++ {
		err := run()
		if err == nil || !retryable(err) || attempt == txAttempts {
			return err
		}
		wait := time.Duration(1<<attempt) * time.Millisecond
		if err := poll.Sleep(ctx, wait+rand.N(wait)); err != nil {
			return err
		}
	}
}
