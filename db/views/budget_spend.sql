-- budget_spend is what the projects with a budget have cost in this month. It is computed from the
-- segments: their windows are many.
CREATE OR REPLACE VIEW budget_spend WITH (security_invoker = true) AS
SELECT b.project_id, to_char(m.start AT TIME ZONE 'UTC', 'YYYY-MM')::text AS month,
    (SELECT coalesce(sum(s.charged_minor - usage_cost(s.rate_minor_per_hour, s.started_at, greatest(s.started_at, m.start))), 0)
        FROM usage_segments s WHERE s.project_id = b.project_id AND s.billed_through > m.start)::bigint AS spent_minor
FROM project_budgets b CROSS JOIN (SELECT date_trunc('month', now(), 'UTC') AS start) m;
