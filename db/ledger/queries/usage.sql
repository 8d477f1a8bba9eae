-- name: UsageOf :many
-- The usage of a project: one row for each segment, newest first. A record that has not begun has one row without a segment.
SELECT r.id, coalesce(r.allocation_id, '')::text AS allocation_id, coalesce(r.instance_id, '')::text AS instance_id, r.project_id, r.billing_account_id,
    coalesce(r.sku_id, '')::text AS sku_id, coalesce(r.instance_type, '')::text AS instance_type, r.currency, r.max_spend_minor, r.start_time, r.end_time, r.closed_at,
    coalesce(s.segment, 0)::integer AS segment, coalesce(s.rate_minor_per_hour, 0)::bigint AS rate_minor_per_hour, s.started_at AS segment_start,
    s.ended_at AS segment_end, s.billed_through AS last_billed_at, coalesce(s.charged_minor, 0)::bigint AS cost_minor
FROM usage_records r LEFT JOIN usage_segments s ON s.project_id = r.project_id AND s.record_id = r.id
WHERE r.project_id = @project_id AND (@subject::text = '' OR r.allocation_id = @subject::text OR r.instance_id = @subject::text)
  AND (@before_record::text = '' OR (r.id, coalesce(s.segment, 0)) < (@before_record::text, @before_segment::integer))
ORDER BY r.id DESC, segment DESC LIMIT @max_rows;

-- name: UsageByDay :many
-- What a project's allocations and instances cost on each day (UTC), of what is charged. It is computed from the segments: their windows are many, and one may be of
-- several days.
SELECT d.day::timestamptz AS day, coalesce(r.allocation_id, '')::text AS allocation_id, coalesce(r.instance_id, '')::text AS instance_id, r.currency,
    sum(usage_cost(s.rate_minor_per_hour, s.started_at, least(s.billed_through, d.day + interval '24 hours'))
        - usage_cost(s.rate_minor_per_hour, s.started_at, greatest(s.started_at, d.day)))::bigint AS amount_minor,
    extract(epoch FROM sum(least(s.billed_through, d.day + interval '24 hours') - greatest(s.started_at, d.day)))::bigint AS seconds
FROM usage_segments s JOIN usage_records r ON r.project_id = s.project_id AND r.id = s.record_id
CROSS JOIN LATERAL generate_series(date_trunc('day', greatest(s.started_at, @since::timestamptz), 'UTC'),
    least(s.billed_through, @until::timestamptz) - interval '1 microsecond', interval '24 hours') AS d (day)
WHERE s.project_id = @project_id AND s.billed_through > greatest(s.started_at, @since::timestamptz) AND s.started_at < @until::timestamptz
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3 LIMIT @max_rows;

-- name: SetMaxSpend :execrows
UPDATE usage_records SET max_spend_minor = sqlc.narg('max_spend_minor') WHERE project_id = @project_id AND allocation_id = @allocation_id::text;

-- name: Control :one
SELECT * FROM billing_control;

-- name: LockControl :one
SELECT * FROM billing_control FOR UPDATE;

-- name: SetClockDisagrees :exec
UPDATE billing_control SET clock_disagrees = @detail::text,
    clock_disagrees_since = CASE WHEN @detail::text = '' THEN NULL ELSE coalesce(clock_disagrees_since, clock_timestamp()) END,
    agreed_ticks = 0
WHERE clock_disagrees <> @detail::text;

-- name: SetBoundary :exec
-- The boundary of a tick, with what the next one compares.
UPDATE billing_control SET boundary = greatest(boundary, @boundary::timestamptz), epoch = @epoch, worker_boot = @worker_boot,
    worker_uptime_ms = @worker_uptime_ms, worker_at = sqlc.narg('worker_at')::timestamptz;

-- name: Epoch :one
SELECT event_epoch()::text AS epoch;

-- name: SetBoundaryBack :exec
-- A clock that was ahead is set right. The releases stay stopped.
UPDATE billing_control SET boundary = @boundary::timestamptz, enforcement_stopped_at = coalesce(enforcement_stopped_at, clock_timestamp()),
    enforcement_stopped = @reason, resumes_itself = false;

-- name: FinishTick :exec
UPDATE billing_control SET ticked_at = clock_timestamp(), ticks = ticks + 1, windows = windows + @windows::bigint;

-- name: AccountsToBill :many
-- Accounts with something to charge, by id. Those that are set aside are tried alone.
SELECT a.billing_account_id, (a.set_aside_at IS NOT NULL)::boolean AS set_aside FROM account_balances a
WHERE a.billing_account_id > @after::text AND EXISTS (SELECT FROM usage_records r WHERE r.billing_account_id = a.billing_account_id AND r.closed_at IS NULL
    AND r.start_time < @boundary::timestamptz)
ORDER BY a.billing_account_id LIMIT @max_rows;

-- name: BillAccounts :one
SELECT billed_windows::integer AS windows, billed_minor::text AS amount_minor FROM bill_accounts(@accounts::text[], @boundary::timestamptz);

-- name: SetAside :exec
UPDATE account_balances SET set_aside_at = coalesce(set_aside_at, clock_timestamp()), set_aside_reason = @reason, version = version + 1
WHERE billing_account_id = @billing_account_id;

-- name: PutBack :exec
UPDATE account_balances SET set_aside_at = NULL, set_aside_reason = '', version = version + 1 WHERE billing_account_id = @billing_account_id AND set_aside_at IS NOT NULL;

-- name: SpentOut :many
-- Allocations that have reached what they may cost.
SELECT r.allocation_id::text AS allocation_id FROM usage_records r
WHERE r.allocation_id IS NOT NULL AND r.max_spend_minor IS NOT NULL AND r.closed_at IS NULL AND r.end_cap IS NULL AND r.end_time IS NULL
  AND r.max_spend_minor <= (SELECT coalesce(sum(s.charged_minor), 0) FROM usage_segments s WHERE s.project_id = r.project_id AND s.record_id = r.id)
ORDER BY r.allocation_id LIMIT @max_rows;

-- name: CostsOf :many
-- What allocations cost an hour and have cost so far. One that is not charged yet has the rate of the price in force.
SELECT r.allocation_id::text AS allocation_id, r.currency, x.exponent, coalesce(g.rate_minor_per_hour, p.rate_minor_per_hour, 0)::bigint AS rate_minor_per_hour,
    (coalesce(g.rate_minor_per_hour, p.rate_minor_per_hour) IS NOT NULL)::boolean AS has_rate,
    coalesce((SELECT sum(s.charged_minor) FROM usage_segments s WHERE s.project_id = r.project_id AND s.record_id = r.id), 0)::bigint AS cost_minor
FROM usage_records r JOIN currencies x ON x.code = r.currency
LEFT JOIN usage_segments g ON g.project_id = r.project_id AND g.record_id = r.id
    AND g.segment = (SELECT max(s.segment) FROM usage_segments s WHERE s.project_id = r.project_id AND s.record_id = r.id)
LEFT JOIN prices p ON p.item = r.item AND p.currency = r.currency AND p.valid @> clock_timestamp() AND r.start_time IS NULL AND r.closed_at IS NULL
WHERE r.allocation_id = ANY (@allocations::text[]) ORDER BY r.allocation_id;
