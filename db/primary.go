package db

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// checkLimit bounds the check of one connection. A server that does not answer a SHOW for so
	// long counts as gone.
	checkLimit = 2 * time.Second
	// checkIdle is the idle time after which a connection is checked before its next use.
	checkIdle = time.Second
	// hostTimeout bounds the attempt to connect to each one of several hosts. A dead host that is
	// listed first must leave time for the others within acquireLimit.
	hostTimeout = 2 * time.Second
)

// keepAlive ends a connection to a machine that went away without a word in about ten seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// primaryCheck keeps the connections of one pool on a server that takes writes. After a failover an
// open connection may still lead to the former primary, for example through a proxy. Each error
// that a failover can cause begins a new period. A connection is used only when it was checked in
// the current period; one that fails its check takes all others of the pool with it.
type primaryCheck struct {
	boundedAcquire
	*checkPeriods
	validate pgconn.ValidateConnectFunc
}

// checkPeriods are the periods of all pools of a Store. A pool that only reads meets no error by
// itself while it reads from the former primary.
type checkPeriods struct {
	mu     sync.Mutex
	period context.Context // it is done when the next period begins
	end    context.CancelFunc
}

func newCheckPeriods() *checkPeriods {
	p := &checkPeriods{}
	p.period, p.end = context.WithCancel(context.Background())
	return p
}

var (
	_ pgx.BatchTracer    = (*primaryCheck)(nil)
	_ pgx.CopyFromTracer = (*primaryCheck)(nil)
	_ pgx.ConnectTracer  = (*primaryCheck)(nil)
)

// checkedIn is the key under which a connection holds the period in which it was checked.
const checkedIn = "slipway_checked_in"

// watchPrimary makes each connection of cfg connect to a server that takes writes, and returns the
// check that its pool needs. Pools with the same periods are checked together.
func watchPrimary(cfg *pgx.ConnConfig, periods *checkPeriods) *primaryCheck {
	if cfg.ValidateConnect == nil { // target_session_attrs is "any", or is not set
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
		for _, other := range cfg.Fallbacks {
			if other.Host != cfg.Host || other.Port != cfg.Port {
				cfg.ConnectTimeout = hostTimeout
			}
		}
	}
	cfg.DialFunc = (&net.Dialer{KeepAliveConfig: keepAlive, Control: limitUnacknowledged}).DialContext
	c := &primaryCheck{boundedAcquire: boundedAcquire{acquireLimit}, checkPeriods: periods, validate: cfg.ValidateConnect}
	cfg.Tracer = c
	return c
}

// guard sets the hooks of a pool's configuration. pool returns the pool, once it is there.
func (c *primaryCheck) guard(cfg *pgxpool.Config, pool func() *pgxpool.Pool) {
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		if p.IdleDuration > checkIdle {
			delete(p.Conn.PgConn().CustomData(), checkedIn)
		}
		return false // the check takes the place of the ping
	}
	cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		period := c.current()
		if conn.PgConn().CustomData()[checkedIn] == period {
			return true, nil
		}
		if err := c.check(ctx, conn); err != nil {
			if c.begin(period) {
				pool().Reset()
			}
			return false, nil
		}
		conn.PgConn().CustomData()[checkedIn] = period
		return true, nil
	}
}

// check returns an error when a connection is broken or leads to a server that takes no writes. A
// caller who goes away does not end the check, since that would break the connection.
func (c *primaryCheck) check(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkLimit)
	defer cancel()
	return c.validate(ctx, conn.PgConn())
}

// current returns the current period. It is done when an error calls for checks.
func (c *checkPeriods) current() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.period
}

// begin begins a new period, unless another goroutine has ended period already.
func (c *checkPeriods) begin(period context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.period != period {
		return false
	}
	c.end()
	c.period, c.end = context.WithCancel(context.Background())
	return true
}

// observe begins a new period after an error that a failover can cause. A caller who cancels a
// statement breaks its connection, which says nothing about the server.
func (c *primaryCheck) observe(ctx context.Context, err error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if IsUnavailable(err) || errors.Is(err, context.DeadlineExceeded) {
		c.begin(c.current())
	}
}

// TraceQueryEnd implements pgx.QueryTracer.
func (c *primaryCheck) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	c.observe(ctx, data.Err)
}

// TraceBatchStart implements pgx.BatchTracer.
func (*primaryCheck) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (c *primaryCheck) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	c.observe(ctx, data.Err)
}

// TraceBatchEnd implements pgx.BatchTracer.
func (c *primaryCheck) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	c.observe(ctx, data.Err)
}

// TraceCopyFromStart implements pgx.CopyFromTracer.
func (*primaryCheck) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return ctx
}

// TraceCopyFromEnd implements pgx.CopyFromTracer.
func (c *primaryCheck) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceCopyFromEndData) {
	c.observe(ctx, data.Err)
}

// TraceConnectStart implements pgx.ConnectTracer.
func (*primaryCheck) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return ctx
}

// TraceConnectEnd implements pgx.ConnectTracer.
func (c *primaryCheck) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	c.observe(ctx, data.Err)
}
