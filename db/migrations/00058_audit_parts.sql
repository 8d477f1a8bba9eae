-- A long chain of the audit log is verified part by part, and a verification that does not end requires operator action.

-- +goose Up
-- The chain that is verified in parts, with the number and the hash of the last row that was verified; '' is none. begun_at is when there was first
-- something to verify.
ALTER TABLE audit_checks ADD COLUMN part_kind text NOT NULL DEFAULT '', ADD COLUMN part_id text NOT NULL DEFAULT '',
    ADD COLUMN part_seq bigint NOT NULL DEFAULT 0, ADD COLUMN part_hash bytea NOT NULL DEFAULT '', ADD COLUMN begun_at timestamptz NOT NULL DEFAULT now();

-- audit_verify_part verifies at most p_max rows of a chain after one that was verified: the first of these follows it, and at the end of the chain its
-- head agrees. It returns the first broken number, or null, and how far it came.
-- +goose StatementBegin
CREATE FUNCTION audit_verify_part(p_kind text, p_id text, p_after bigint, p_previous bytea, p_max integer,
    OUT broken bigint, OUT seq bigint, OUT hash bytea, OUT ended boolean) RETURNS record LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    r audit_log;
    head audit_heads;
    rows integer := 0;
BEGIN
    seq := p_after;
    hash := p_previous;
    ended := true;
    -- The row before is read again, so that a second one with its number is found.
    FOR r IN SELECT * FROM audit_log l WHERE l.resource_kind = p_kind AND l.resource_id = p_id AND l.seq >= p_after ORDER BY l.seq, l.pos LIMIT p_max + 1 LOOP
        rows := rows + 1;
        IF rows = 1 AND p_after > 0 THEN
            IF r.seq <> p_after OR r.hash <> p_previous THEN
                broken := p_after;
                RETURN;
            END IF;
            CONTINUE;
        END IF;
        IF r.seq <> seq + 1 OR r.prev_hash <> hash OR r.hash <> audit_row_hash(r) THEN
            broken := seq + 1;
            RETURN;
        END IF;
        seq := r.seq;
        hash := r.hash;
    END LOOP;
    IF rows = p_max + 1 THEN
        ended := false;
        RETURN;
    END IF;
    SELECT * INTO head FROM audit_heads h WHERE h.resource_kind = p_kind AND h.resource_id = p_id;
    IF FOUND AND (head.seq <> seq OR head.hash <> hash) OR NOT FOUND AND seq > 0 THEN
        broken := seq + 1;
    END IF;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE VIEW audit_attention AS
SELECT 'audit_broken'::text AS kind, ('audit_broken:' || b.resource_kind || ':' || b.resource_id)::text AS id, b.found_at::timestamptz AS since,
    coalesce(n.site_id, '')::text AS site_id, coalesce(n.id, '')::text AS node_id, coalesce(n.hostname, '')::text AS hostname, ''::text AS bmc_id,
    ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, ''::text AS status, ''::text AS stage, ''::text AS failure_class,
    (CASE b.resource_kind WHEN 'ledger' THEN 'the ledger of billing account ' || split_part(b.resource_id, '/', 1) || ', account ' || split_part(b.resource_id, '/', 2)
        || ', is missing entry ' || b.broken_seq
        ELSE 'the audit log of ' || b.resource_kind || ' ' || b.resource_id || ' is missing row ' || b.broken_seq END || ' or it was changed')::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM audit_breaks b LEFT JOIN nodes n ON b.resource_kind = 'node' AND n.id = b.resource_id
UNION ALL
SELECT 'audit_silent', 'audit_silent:', coalesce(c.finished_at, c.begun_at), '', '', '', '', '', '', '', '', '', '',
    'the audit log was not verified whole for a day; verification stands at '
        || CASE WHEN c.part_kind <> '' THEN c.part_kind || ' ' || c.part_id || ', row ' || c.part_seq WHEN c.after_kind <> '' THEN c.after_kind || ' ' || c.after_id ELSE 'its beginning' END,
    '', '', false, false
FROM audit_checks c WHERE coalesce(c.finished_at, c.begun_at) < now() - interval '1 day';

-- +goose Down
CREATE OR REPLACE VIEW audit_attention AS
SELECT 'audit_broken'::text AS kind, ('audit_broken:' || b.resource_kind || ':' || b.resource_id)::text AS id, b.found_at::timestamptz AS since,
    coalesce(n.site_id, '')::text AS site_id, coalesce(n.id, '')::text AS node_id, coalesce(n.hostname, '')::text AS hostname, ''::text AS bmc_id,
    ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, ''::text AS status, ''::text AS stage, ''::text AS failure_class,
    (CASE b.resource_kind WHEN 'ledger' THEN 'the ledger of billing account ' || split_part(b.resource_id, '/', 1) || ', account ' || split_part(b.resource_id, '/', 2)
        || ', is missing entry ' || b.broken_seq
        ELSE 'the audit log of ' || b.resource_kind || ' ' || b.resource_id || ' is missing row ' || b.broken_seq END || ' or it was changed')::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM audit_breaks b LEFT JOIN nodes n ON b.resource_kind = 'node' AND n.id = b.resource_id;
DROP FUNCTION audit_verify_part;
ALTER TABLE audit_checks DROP COLUMN part_kind, DROP COLUMN part_id, DROP COLUMN part_seq, DROP COLUMN part_hash, DROP COLUMN begun_at;
