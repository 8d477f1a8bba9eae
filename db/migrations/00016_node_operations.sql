-- Leaving service: the owner of a node that is between two states, what was foreseen before a decommission, and its read model.

-- +goose Up
-- Seed 001 section 3.3: a node that enters draining or removing has a live job that owns it when the transaction commits. It looks at the row as it
-- is then, so that what passes through within one transaction needs none. That a job later ends without moving its node is no business of this guard:
-- refusing the end would keep the job for ever in a state that is not true; the view attention shows such a node, and resume gives it a new owner.
-- +goose StatementBegin
CREATE FUNCTION guard_owned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM nodes n WHERE n.id = NEW.id AND n.status IN ('draining', 'removing')
        AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id AND j.kind IN ('decommission', 'node_operation')
            AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'));
    IF FOUND THEN
        RAISE EXCEPTION 'node % entered % and no live job owns it: create or resume one in the same transaction', NEW.id, NEW.status
            USING ERRCODE = 'SW004';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE CONSTRAINT TRIGGER nodes_owned AFTER UPDATE ON nodes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status AND NEW.status IN ('draining', 'removing')) EXECUTE FUNCTION guard_owned();

-- Plans that were shown, so that a start with a hash that is no longer true can be told what changed. Those that a job was started with are kept;
-- the others of a node are dropped when a later one is kept.
CREATE TABLE node_plans (
    node_id text NOT NULL REFERENCES nodes (id),
    hash    text NOT NULL CHECK (hash ~ '^[0-9a-f]{64}$'),
    mode    text NOT NULL CHECK (mode <> ''),
    plan    jsonb NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    job_id  text REFERENCES jobs (id), -- the last one that was started with it
    PRIMARY KEY (node_id, hash)
);

-- Seed 001 names the read model of decommission jobs.
CREATE VIEW node_decommissions AS SELECT j.*, j.input ->> 'mode' AS mode FROM jobs j WHERE j.kind = 'decommission';

-- +goose Down
DROP VIEW node_decommissions;
DROP TABLE node_plans;
DROP TRIGGER nodes_owned ON nodes;
DROP FUNCTION guard_owned;
