-- name: Balance :one
-- The stored state follows postings. Until the first one the balance is 0, and the state is that of the thresholds.
SELECT a.billing_account_id, t.currency, t.exponent,
    (CASE WHEN l.last_seq > 0 THEN a.state WHEN t.depleted_minor >= 0 THEN 'depleted' WHEN t.low_minor >= 0 THEN 'low_balance' ELSE 'healthy' END)::text AS state, a.since, t.low_minor, t.depleted_minor, t.rearm_minor, a.grace_seconds, a.episode, a.depletions, a.version,
    coalesce(l.balance_minor, 0)::bigint AS balance_minor,
    (SELECT coalesce(sum(h.amount_minor), 0) FROM balance_holds h WHERE h.billing_account_id = a.billing_account_id AND h.freed_at IS NULL)::bigint AS held_minor,
    a.set_aside_at, (SELECT EXISTS (SELECT FROM prices p WHERE lower(p.valid) <= now()))::boolean AS charging
FROM account_balances a JOIN balance_thresholds t ON t.billing_account_id = a.billing_account_id
LEFT JOIN ledger_accounts l ON l.billing_account_id = a.billing_account_id AND l.code = 'prepaid'
WHERE a.billing_account_id = @billing_account_id;

-- name: SetThresholds :execrows
UPDATE account_balances SET low_minor = sqlc.narg('low_minor'), depleted_minor = sqlc.narg('depleted_minor'), rearm_minor = sqlc.narg('rearm_minor'), grace_seconds = @grace_seconds,
    version = version + 1
WHERE billing_account_id = @billing_account_id AND version = @version;

-- name: InsertHold :exec
-- The subject is an allocation or an instance.
INSERT INTO balance_holds (project_id, allocation_id, instance_id, billing_account_id, currency, amount_minor)
SELECT r.project_id, r.allocation_id, r.instance_id, r.billing_account_id, r.currency, @amount_minor FROM usage_records r
WHERE r.project_id = @project_id AND (r.allocation_id = @subject::text OR r.instance_id = @subject::text) ON CONFLICT DO NOTHING;

-- name: CountUnreviewed :one
-- An instance whose type has no price charges nobody.
SELECT (SELECT count(*) FROM account_balances a WHERE a.state = 'depleted' AND a.depletions > a.reviewed_depletion) AS depleted,
    (SELECT count(DISTINCT r.billing_account_id) FROM usage_records r WHERE r.closed_at IS NULL AND r.start_time IS NOT NULL
        AND (r.instance_id IS NULL OR EXISTS (SELECT FROM usage_segments s WHERE s.project_id = r.project_id AND s.record_id = r.id
            AND s.ended_at IS NULL AND s.rate_minor_per_hour > 0))) AS charged;

-- name: ReviewDepletions :exec
UPDATE account_balances SET reviewed_depletion = depletions WHERE depletions > reviewed_depletion;

-- name: MarkShort :exec
-- Accounts of which what is available does not cover a tick, the grace and a release, and those of which it covers twice as much again. Each begin has one
-- notice: a fixed threshold comes too late for who has many nodes. Materialized: a plan from old statistics must not compute either once for each account.
WITH running AS MATERIALIZED (
    SELECT r.billing_account_id, sum(s.rate_minor_per_hour) AS rate FROM usage_records r
    JOIN usage_segments s ON s.project_id = r.project_id AND s.record_id = r.id AND s.ended_at IS NULL
    WHERE r.closed_at IS NULL AND r.end_time IS NULL AND r.end_cap IS NULL GROUP BY r.billing_account_id
), needed AS MATERIALIZED (
    SELECT a.billing_account_id, coalesce(n.rate, 0) * (a.grace_seconds + @release_seconds::bigint) / 3600 AS minor,
        (SELECT coalesce(sum(l.balance_minor), 0) FROM ledger_accounts l WHERE l.billing_account_id = a.billing_account_id AND l.code = 'prepaid')
        - (SELECT coalesce(sum(h.amount_minor), 0) FROM balance_holds h WHERE h.billing_account_id = a.billing_account_id AND h.freed_at IS NULL)
        - t.depleted_minor AS available
    FROM account_balances a JOIN balance_thresholds t ON t.billing_account_id = a.billing_account_id
    LEFT JOIN running n ON n.billing_account_id = a.billing_account_id
    WHERE n.rate > 0 OR a.short_since IS NOT NULL
), moved AS (
    UPDATE account_balances a SET short_since = CASE WHEN a.short_since IS NULL THEN clock_timestamp() END,
        short_episode = a.short_episode + CASE WHEN a.short_since IS NULL THEN 1 ELSE 0 END
    FROM needed n WHERE n.billing_account_id = a.billing_account_id
        AND (a.short_since IS NULL AND n.available < n.minor AND a.state = 'healthy' OR a.short_since IS NOT NULL AND n.available >= 2 * n.minor)
    RETURNING a.billing_account_id, a.short_episode, a.short_since, n.available
)
INSERT INTO balance_notices (billing_account_id, episode, kind, balance_minor)
SELECT m.billing_account_id, m.short_episode, 'balance_short', m.available FROM moved m WHERE m.short_since IS NOT NULL;

-- name: StopEnforcement :exec
-- Until an operator has looked. The first reason stays, unless it was an outage alone.
UPDATE billing_control SET enforcement_stopped_at = coalesce(enforcement_stopped_at, clock_timestamp()), resumes_itself = false,
    enforcement_stopped = CASE WHEN enforcement_stopped = '' OR resumes_itself THEN @reason ELSE enforcement_stopped END;

-- name: StopForOutage :exec
-- Until two ticks agree. A stop for which an operator has to look stays one.
UPDATE billing_control SET enforcement_stopped_at = coalesce(enforcement_stopped_at, clock_timestamp()), agreed_ticks = 0,
    resumes_itself = resumes_itself OR enforcement_stopped_at IS NULL,
    enforcement_stopped = CASE WHEN enforcement_stopped = '' OR resumes_itself THEN @reason ELSE enforcement_stopped END;

-- name: CountAgreedTick :exec
UPDATE billing_control SET agreed_ticks = agreed_ticks + 1 WHERE resumes_itself;

-- name: ResumeEnforcement :execrows
UPDATE billing_control SET enforcement_stopped_at = NULL, enforcement_stopped = '', resumes_itself = false, agreed_ticks = 0
WHERE enforcement_stopped_at IS NOT NULL;

-- name: DepletedAllocations :many
-- What is to be released: everything that is not being released yet, of accounts that are depleted since a posting and whose grace is over.
SELECT l.id AS allocation_id FROM account_balances a JOIN projects p ON p.billing_account_id = a.billing_account_id JOIN allocations l ON l.project_id = p.id
WHERE a.state = 'depleted' AND a.depletions > 0 AND a.reviewed_depletion = a.depletions AND a.set_aside_at IS NULL
  AND a.since + make_interval(secs => a.grace_seconds) <= clock_timestamp()
  AND l.status IN ('requested', 'provisioning', 'active') AND l.release_requested_at IS NULL
ORDER BY l.id LIMIT @max_rows;

-- name: DepletedInstances :many
-- Instances that are charged and are to end, of accounts that are depleted since a posting and whose grace is over. One whose type has no price costs its
-- project nothing. A drain is waited for no longer.
SELECT i.id AS instance_id FROM account_balances a JOIN usage_records r ON r.billing_account_id = a.billing_account_id AND r.closed_at IS NULL
JOIN instances i ON i.id = r.instance_id
WHERE a.state = 'depleted' AND a.depletions > 0 AND a.reviewed_depletion = a.depletions AND a.set_aside_at IS NULL
  AND a.since + make_interval(secs => a.grace_seconds) <= clock_timestamp()
  AND (i.status IN ('provisioning', 'booting', 'startup_failed', 'ready') OR i.status = 'draining' AND i.drain_seconds > 0)
  AND EXISTS (SELECT FROM prices p WHERE p.item = r.item AND p.currency = r.currency AND lower(p.valid) <= now())
ORDER BY i.id LIMIT @max_rows;

-- name: LockAccountOfInstance :one
SELECT b.id FROM usage_records r JOIN billing_accounts b ON b.id = r.billing_account_id WHERE r.instance_id = @instance_id::text FOR NO KEY UPDATE OF b;

-- name: LockAccountOfAllocation :one
SELECT b.id FROM allocations l JOIN projects p ON p.id = l.project_id JOIN billing_accounts b ON b.id = p.billing_account_id
WHERE l.id = @allocation_id FOR NO KEY UPDATE OF b;

-- name: StillDepleted :one
-- It is read after the account was locked: a payment may have come since.
SELECT (a.state = 'depleted' AND a.since + make_interval(secs => a.grace_seconds) <= clock_timestamp())::boolean AS depleted
FROM account_balances a WHERE a.billing_account_id = @billing_account_id;

-- name: UntoldNotices :many
-- Those that are still true: a payment may have come since.
SELECT n.billing_account_id, n.episode, n.kind, n.balance_minor, t.currency, t.exponent, t.low_minor, t.depleted_minor,
    (a.since + make_interval(secs => a.grace_seconds))::timestamptz AS released_at, (a.since + make_interval(secs => a.grace_seconds) > clock_timestamp())::boolean AS in_grace
FROM balance_notices n JOIN balance_thresholds t ON t.billing_account_id = n.billing_account_id
JOIN account_balances a ON a.billing_account_id = n.billing_account_id
WHERE n.told_at IS NULL AND CASE n.kind WHEN 'balance_short' THEN n.episode = a.short_episode AND a.short_since IS NOT NULL AND a.state <> 'depleted'
    ELSE n.episode = a.episode AND (a.state = 'depleted' OR a.state = n.kind) END ORDER BY n.at LIMIT @max_rows;

-- name: NoticeTold :exec
UPDATE balance_notices SET told_at = now() WHERE billing_account_id = @billing_account_id AND episode = @episode AND kind = @kind AND told_at IS NULL;

-- name: ProjectsOf :many
SELECT id FROM projects WHERE billing_account_id = @billing_account_id AND status <> 'closed' ORDER BY id;

-- name: Budget :one
SELECT b.*, s.month, s.spent_minor FROM project_budgets b JOIN budget_spend s ON s.project_id = b.project_id WHERE b.project_id = @project_id;

-- name: PutBudget :exec
-- The same budget again changes nothing, so that its warnings are not given again.
INSERT INTO project_budgets (project_id, limit_minor, warn_percent) VALUES (@project_id, @limit_minor, @warn_percent)
ON CONFLICT (project_id) DO UPDATE SET limit_minor = excluded.limit_minor, warn_percent = excluded.warn_percent, version = project_budgets.version + 1, updated_at = now()
WHERE (project_budgets.limit_minor, project_budgets.warn_percent) <> (excluded.limit_minor, excluded.warn_percent);

-- name: DeleteBudget :execrows
DELETE FROM project_budgets WHERE project_id = @project_id;

-- name: BudgetsOver :many
-- The budgets of which a part is spent in this month (UTC) that its project was not told of. The episode names the time of the budget: one that was deleted
-- and set again is another one.
SELECT b.project_id, b.limit_minor, b.warn_percent, c.currency, x.exponent, spent.spent_minor, spent.month,
    (spent.month || ':' || extract(epoch FROM b.updated_at))::text AS episode
FROM project_budgets b JOIN budget_spend spent ON spent.project_id = b.project_id JOIN projects p ON p.id = b.project_id JOIN billing_accounts c ON c.id = p.billing_account_id JOIN currencies x ON x.code = c.currency
WHERE spent.spent_minor::numeric * 100 >= b.limit_minor::numeric * b.warn_percent
  AND NOT EXISTS (SELECT FROM notices n WHERE n.project_id = b.project_id AND n.kind = CASE WHEN spent.spent_minor >= b.limit_minor THEN 'budget_spent' ELSE 'budget_warning' END
      AND n.episode = spent.month || ':' || extract(epoch FROM b.updated_at))
ORDER BY b.project_id LIMIT @max_rows;
