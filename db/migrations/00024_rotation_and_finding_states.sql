-- The states of a BMC's rotation and of a drift finding are lifecycles like those of nodes, jobs and tasks: their edges, and guards of their columns.

-- +goose Up
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('bmc_rotation', '', 'create', '', 'prepared'),
    ('bmc_rotation', '', 'send', 'prepared', 'applying'),
    ('bmc_rotation', '', 'accept', 'applying', 'applied'),
    ('bmc_rotation', '', 'refuse', 'applying', 'prepared'),
    ('bmc_rotation', '', 'refuse', 'applied', 'prepared'),
    ('bmc_rotation', '', 'verify', 'applied', 'verified'),
    ('bmc_rotation', '', 'commit', 'verified', 'rotated'),
    ('bmc_rotation', '', 'drop', 'prepared', 'undone'),
    ('drift_finding', '', 'create', '', 'open'),
    ('drift_finding', '', 'ignore', 'open', 'ignored'),
    ('drift_finding', '', 'reopen', 'ignored', 'open'),
    ('drift_finding', '', 'close', 'open', 'closed'),
    ('drift_finding', '', 'close', 'ignored', 'closed');

-- A BMC without a rotation has the state ''. A rotation that ends with its candidate as the login sets rotated_at.
-- +goose StatementBegin
CREATE FUNCTION guard_rotation_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('bmc_rotation', '', '', NEW.rotation_state);
        RETURN NEW;
    END IF;
    IF NEW.version <= OLD.version THEN
        RAISE EXCEPTION 'a change of the rotation state of BMC % must raise its version', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.rotation_state <> '' THEN
        PERFORM guard_edge('bmc_rotation', '', OLD.rotation_state, NEW.rotation_state);
    ELSIF NEW.rotated_at IS NOT DISTINCT FROM OLD.rotated_at THEN
        PERFORM guard_edge('bmc_rotation', '', OLD.rotation_state, 'undone');
    ELSE
        PERFORM guard_edge('bmc_rotation', '', OLD.rotation_state, 'rotated');
        IF NEW.credential_ref <> OLD.candidate_ref THEN
            RAISE EXCEPTION 'the rotation of BMC % ends with a login that is not its candidate', OLD.id USING ERRCODE = 'SW001';
        END IF;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER bmcs_rotation_insert BEFORE INSERT ON bmcs FOR EACH ROW WHEN (NEW.rotation_state <> '') EXECUTE FUNCTION guard_rotation_state();
CREATE TRIGGER bmcs_rotation_update BEFORE UPDATE ON bmcs FOR EACH ROW
    WHEN (OLD.rotation_state IS DISTINCT FROM NEW.rotation_state) EXECUTE FUNCTION guard_rotation_state();

-- +goose StatementBegin
CREATE FUNCTION guard_finding_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('drift_finding', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.version <= OLD.version THEN
        RAISE EXCEPTION 'a status change of drift finding % must raise its version', OLD.id USING ERRCODE = 'SW001';
    END IF;
    PERFORM guard_edge('drift_finding', '', OLD.status, NEW.status);
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER drift_findings_edge_insert BEFORE INSERT ON drift_findings FOR EACH ROW EXECUTE FUNCTION guard_finding_status();
CREATE TRIGGER drift_findings_edge_update BEFORE UPDATE ON drift_findings FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_finding_status();

-- +goose Down
DROP TRIGGER drift_findings_edge_update ON drift_findings;
DROP TRIGGER drift_findings_edge_insert ON drift_findings;
DROP TRIGGER bmcs_rotation_update ON bmcs;
DROP TRIGGER bmcs_rotation_insert ON bmcs;
DROP FUNCTION guard_finding_status, guard_rotation_state;
DELETE FROM lifecycle_edges WHERE resource IN ('bmc_rotation', 'drift_finding');
