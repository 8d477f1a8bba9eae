-- The audit log is verified in the background, chain after chain, and what is broken requires operator action. Ended jobs are deleted after their
-- retention.

-- +goose Up
-- Where the round over all chains stands. finished_at is the end of the last whole round; checked counts the chains of this one.
CREATE TABLE audit_checks (
    single      boolean PRIMARY KEY DEFAULT true CHECK (single),
    after_kind  text NOT NULL DEFAULT '',
    after_id    text NOT NULL DEFAULT '',
    checked     bigint NOT NULL DEFAULT 0,
    finished_at timestamptz
);
INSERT INTO audit_checks DEFAULT VALUES;

-- Chains that were not whole when they were last checked.
CREATE TABLE audit_breaks (
    resource_kind text NOT NULL,
    resource_id   text NOT NULL,
    broken_seq    bigint NOT NULL,
    found_at      timestamptz NOT NULL DEFAULT now(),
    checked_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (resource_kind, resource_id)
);

CREATE VIEW audit_attention AS
SELECT 'audit_broken'::text AS kind, ('audit_broken:' || b.resource_kind || ':' || b.resource_id)::text AS id, b.found_at::timestamptz AS since,
    coalesce(n.site_id, '')::text AS site_id, coalesce(n.id, '')::text AS node_id, coalesce(n.hostname, '')::text AS hostname, ''::text AS bmc_id,
    ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, ''::text AS status, ''::text AS stage, ''::text AS failure_class,
    ('the audit log of ' || b.resource_kind || ' ' || b.resource_id || ' is missing row ' || b.broken_seq || ' or it was changed')::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM audit_breaks b LEFT JOIN nodes n ON b.resource_kind = 'node' AND n.id = b.resource_id;

-- A job that ended within a day, or has not ended, is deleted by nobody.
DROP TRIGGER jobs_no_delete ON jobs;
CREATE TRIGGER jobs_no_delete BEFORE DELETE ON jobs FOR EACH ROW
    WHEN ((OLD.status IN ('completed', 'reconciled', 'cancelled') AND OLD.finished_at < now() - interval '1 day') IS NOT TRUE)
    EXECUTE FUNCTION guard_no_delete();
CREATE INDEX jobs_ended ON jobs (finished_at, id) WHERE status IN ('completed', 'reconciled', 'cancelled');
CREATE INDEX jobs_by_node_kind ON jobs (node_id, kind, id) WHERE node_id IS NOT NULL;
CREATE INDEX jobs_by_bmc_kind ON jobs (bmc_id, kind, id) WHERE bmc_id IS NOT NULL;
-- A deleted job is looked for in each table that refers to it. Only starts in the outbox name one, so that its index takes the place of theirs.
CREATE INDEX outbox_by_job ON outbox (job_id) WHERE job_id IS NOT NULL;
DROP INDEX outbox_starts_of_job;
CREATE INDEX batch_items_by_job ON batch_items (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX enrollment_tokens_by_job ON enrollment_tokens (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX sweep_findings_by_job ON sweep_findings (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX node_plans_by_job ON node_plans (job_id) WHERE job_id IS NOT NULL;

-- The ended job that pruning came to last.
ALTER TABLE sweep_passes ADD COLUMN pruned_at timestamptz NOT NULL DEFAULT '-infinity', ADD COLUMN pruned_id text NOT NULL DEFAULT '';

-- +goose StatementBegin
-- prune_jobs deletes jobs that ended before, with their stages and tries, at most p_max, and returns how many. It looks at ten times as many, the
-- oldest first, goes on there the next time, and starts over at the end: jobs that stay are not looked at each time. It keeps the newest job of each
-- kind of a node or BMC, jobs of a batch, and jobs that a task or a start still names. Their audit log, events and certificates stay. Serving
-- processes may delete no job themselves, and through it none that ended within a day.
CREATE FUNCTION prune_jobs(p_before timestamptz, p_max integer) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    place record;
    seen  text[];
    ids   text[];
    last  text;
BEGIN
    SELECT p.pruned_at AS at, p.pruned_id AS id INTO place FROM sweep_passes p FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0; -- another process is at it
    END IF;
    SELECT array_agg(w.id ORDER BY w.finished_at, w.id) INTO seen FROM (
        SELECT j.id, j.finished_at FROM jobs j
        WHERE j.status IN ('completed', 'reconciled', 'cancelled') AND (j.finished_at, j.id) > (place.at, place.id)
          AND j.finished_at < least(p_before, now() - interval '1 day')
        ORDER BY j.finished_at, j.id LIMIT p_max * 10) w;
    SELECT array_agg(d.id ORDER BY d.n) INTO ids FROM (
        SELECT j.id, w.n FROM unnest(seen) WITH ORDINALITY w(id, n) JOIN jobs j ON j.id = w.id
        WHERE (EXISTS (SELECT 1 FROM jobs l WHERE l.node_id = j.node_id AND l.kind = j.kind AND l.id > j.id)
              OR j.node_id IS NULL AND EXISTS (SELECT 1 FROM jobs l WHERE l.bmc_id = j.bmc_id AND l.kind = j.kind AND l.id > j.id))
          AND NOT EXISTS (SELECT 1 FROM batch_items b WHERE b.job_id = j.id)
          AND NOT EXISTS (SELECT 1 FROM node_tasks t WHERE t.job_id = j.id)
          AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.job_id = j.id)
        ORDER BY w.n LIMIT p_max FOR UPDATE OF j SKIP LOCKED) d;
    last := CASE WHEN cardinality(ids) = p_max THEN ids[p_max] WHEN cardinality(seen) = p_max * 10 THEN seen[p_max * 10] END;
    UPDATE sweep_passes p SET pruned_id = coalesce(last, ''),
        pruned_at = coalesce((SELECT j.finished_at FROM jobs j WHERE j.id = last), '-infinity');
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    DELETE FROM action_logs WHERE job_id = ANY (ids);
    DELETE FROM job_stages WHERE job_id = ANY (ids);
    DELETE FROM sweep_findings WHERE job_id = ANY (ids);
    UPDATE enrollment_tokens SET job_id = NULL WHERE job_id = ANY (ids);
    UPDATE node_plans SET job_id = NULL WHERE job_id = ANY (ids);
    DELETE FROM jobs WHERE id = ANY (ids);
    RETURN cardinality(ids);
END $$;
-- +goose StatementEnd

-- The candidates that a rotation has sent: a BMC may have taken one although it said otherwise, so the
-- login before is proven before the rotation is dropped.
ALTER TABLE bmc_rotations ADD COLUMN sent_refs text[] NOT NULL DEFAULT '{}';
-- A rotation under way may have sent its candidate already.
UPDATE bmc_rotations r SET sent_refs = ARRAY[b.candidate_ref] FROM bmcs b WHERE b.id = r.bmc_id AND r.finished_at IS NULL AND b.candidate_ref <> '';

-- +goose Down
ALTER TABLE bmc_rotations DROP COLUMN sent_refs;
DROP FUNCTION prune_jobs;
ALTER TABLE sweep_passes DROP COLUMN pruned_at, DROP COLUMN pruned_id;
CREATE INDEX outbox_starts_of_job ON outbox (job_id) WHERE kind = 'start_workflow';
DROP INDEX jobs_ended, jobs_by_node_kind, jobs_by_bmc_kind, outbox_by_job, batch_items_by_job, enrollment_tokens_by_job, sweep_findings_by_job, node_plans_by_job;
DROP TRIGGER jobs_no_delete ON jobs;
CREATE TRIGGER jobs_no_delete BEFORE DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION guard_no_delete();
DROP VIEW audit_attention;
DROP TABLE audit_breaks, audit_checks;
