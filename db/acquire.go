package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// acquireLimit bounds the wait for a connection of the pool. It lies well below the limit of a
// request, so that a caller learns that the database is busy and not only that time is up.
const acquireLimit = 10 * time.Second

// ErrNoConnection: no connection of the pool became free in time. The statement was not sent.
var ErrNoConnection = errors.New("no connection to the database became free in time")

// boundedAcquire bounds how long the pool may take to hand out a connection.
type boundedAcquire struct{ limit time.Duration }

var (
	_ pgx.QueryTracer       = boundedAcquire{}
	_ pgxpool.AcquireTracer = boundedAcquire{}
)

// acquiring is the context of one acquisition. Its own limit is ErrNoConnection; the caller's
// deadline stays what it is.
type acquiring struct {
	context.Context
	caller context.Context
}

// Err implements context.Context.
func (a acquiring) Err() error {
	if err := a.caller.Err(); err != nil || a.Context.Err() == nil {
		return err
	}
	return ErrNoConnection
}

type acquireCancel struct{}

// TraceAcquireStart implements pgxpool.AcquireTracer.
func (b boundedAcquire) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	limited, cancel := context.WithTimeout(ctx, b.limit)
	return acquiring{context.WithValue(limited, acquireCancel{}, cancel), ctx}
}

// TraceAcquireEnd implements pgxpool.AcquireTracer.
func (boundedAcquire) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	if cancel, ok := ctx.Value(acquireCancel{}).(context.CancelFunc); ok {
		cancel()
	}
}

// TraceQueryStart implements pgx.QueryTracer.
func (boundedAcquire) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (boundedAcquire) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// IsNotConnected reports whether err says that there was no connection to the database, for which
// the driver may give an expired deadline as the cause.
func IsNotConnected(err error) bool {
	var connect *pgconn.ConnectError
	return errors.Is(err, ErrNoConnection) || errors.As(err, &connect)
}
