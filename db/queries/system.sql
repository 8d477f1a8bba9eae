-- name: ListenOutbox :exec
LISTEN slipway_outbox;

-- name: ListenEvents :exec
LISTEN slipway_events;

-- name: ListenTasks :exec
LISTEN slipway_tasks;

-- name: ListenTaskEnds :exec
LISTEN slipway_task_ends;

-- name: Lock :exec
-- A named lock held to the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended(@name::text, 0));

-- name: TryLock :one
SELECT pg_try_advisory_xact_lock(hashtextextended(@name::text, 0));

-- name: Now :one
SELECT now()::timestamptz;

-- name: ListenRunLogs :exec
LISTEN slipway_run_logs;
