-- +goose Up
-- A key of an allocation ends when its SSH key of the project does, or when a member replaces the keys. Its row stays: nothing but refused_at says that the
-- node does not accept it any more. withdrawn_member is the member whose key it was, "" where nobody knows. added_at is set for keys that a member put in
-- after the request. tried_at is when a job was last created for the key.
ALTER TABLE allocation_keys
    ADD COLUMN added_at timestamptz,
    ADD COLUMN withdrawn_at timestamptz,
    ADD COLUMN withdrawn_member text NOT NULL DEFAULT '',
    ADD COLUMN tried_at timestamptz;
CREATE INDEX allocation_keys_in_force ON allocation_keys (project_id, fingerprint) WHERE withdrawn_at IS NULL;
CREATE INDEX allocation_keys_unproven ON allocation_keys (project_id, allocation_id)
    WHERE withdrawn_at IS NOT NULL AND refused_at IS NULL OR withdrawn_at IS NULL AND added_at IS NOT NULL AND accepted_at IS NULL;

-- Whatever deletes an SSH key of a project withdraws it from the allocations of the project in the same transaction, with the rights of whoever deletes it.
-- +goose StatementBegin
CREATE FUNCTION withdraw_key() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    UPDATE allocation_keys k SET withdrawn_at = clock_timestamp(), withdrawn_member = OLD.member_id, refused_at = NULL, tried_at = NULL
    WHERE k.project_id = OLD.project_id AND k.fingerprint = OLD.fingerprint AND k.withdrawn_at IS NULL
      AND EXISTS (SELECT FROM allocations a WHERE a.project_id = k.project_id AND a.id = k.allocation_id AND a.status NOT IN ('released', 'failed'));
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER project_ssh_keys_withdrawn AFTER DELETE ON project_ssh_keys FOR EACH ROW EXECUTE FUNCTION withdraw_key();

-- The role of customers withdraws keys of its project. It puts none back, and says of none what its node does.
-- +goose StatementBegin
CREATE FUNCTION guard_key_withdrawal() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF OLD.withdrawn_at IS NOT NULL OR NEW.withdrawn_at IS NULL OR NEW.refused_at IS NOT NULL OR NEW.tried_at IS NOT NULL THEN
        RAISE EXCEPTION 'a customer withdraws a key of allocation %, and changes nothing else of it', OLD.allocation_id USING ERRCODE = 'SW001';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER allocation_keys_customer BEFORE UPDATE ON allocation_keys FOR EACH ROW WHEN (current_user = 'slipway_customer')
    EXECUTE FUNCTION guard_key_withdrawal();

-- Withdrawn keys of active allocations of which nothing proves for a minute that the node refuses them: whoever had one may still be logged in.
CREATE VIEW key_attention WITH (security_invoker = true) AS
SELECT 'keys_unconfirmed'::text AS kind, ('keys_unconfirmed:' || a.id)::text AS id, k.since::timestamptz AS since, coalesce(a.site_id, '')::text AS site_id,
    a.node_id::text AS node_id, ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    a.status::text AS status, ''::text AS stage, ''::text AS failure_class,
    ('nothing proves that the node refuses what was withdrawn from allocation ' || a.id || ': ' || k.names
        || CASE WHEN k.keys > 5 THEN ', and ' || k.keys - 5 || ' more' ELSE '' END)::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM (SELECT u.project_id, u.allocation_id, min(u.withdrawn_at) AS since, count(*) AS keys,
        array_to_string((array_agg('key ' || u.fingerprint || ' of ' || CASE u.withdrawn_member WHEN '' THEN 'an unknown member' ELSE 'member ' || u.withdrawn_member END
            ORDER BY u.withdrawn_at, u.fingerprint))[1:5], ', ') AS names
    FROM allocation_keys u WHERE u.withdrawn_at IS NOT NULL AND u.refused_at IS NULL GROUP BY u.project_id, u.allocation_id) k
JOIN allocations a ON a.project_id = k.project_id AND a.id = k.allocation_id AND a.status = 'active'
WHERE k.since < now() - interval '1 minute';

-- +goose Down
DROP VIEW key_attention;
DROP TRIGGER project_ssh_keys_withdrawn ON project_ssh_keys;
DROP TRIGGER allocation_keys_customer ON allocation_keys;
DROP FUNCTION withdraw_key, guard_key_withdrawal;
DROP INDEX allocation_keys_in_force, allocation_keys_unproven;
ALTER TABLE allocation_keys DROP COLUMN added_at, DROP COLUMN withdrawn_at, DROP COLUMN withdrawn_member, DROP COLUMN tried_at;
