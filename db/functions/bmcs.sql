-- A BMC without a rotation has the state ''. A rotation that ends with its candidate as the login
-- sets rotated_at.
CREATE OR REPLACE FUNCTION guard_rotation_state() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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

-- bmcs_since returns the BMCs whose login says something about the last restore: adopted ones, and
-- those that have not taken a login that is older than the restore. It is a function, so that lists
-- read no BMCs while there was no restore.
CREATE OR REPLACE FUNCTION bmcs_since(restore bigint, began timestamp with time zone) RETURNS TABLE(address text, maas boolean, adopted boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT b.address, n.maas_system_id IS NOT NULL, t.adopted_ref IS NOT NULL
    FROM bmcs b LEFT JOIN nodes n ON n.id = b.node_id LEFT JOIN bmc_accepted_logins l ON l.bmc_id = b.id
    LEFT JOIN bmc_recoveries t ON t.bmc_id = b.id AND t.restore_id = restore AND t.adopted_ref <> '' AND t.adopted_ref = b.credential_ref
    WHERE t.adopted_ref IS NOT NULL OR coalesce(l.accepted_at, '-infinity') < began AND b.created_at < began
        AND (n.id IS NULL OR n.status <> 'retired')
        AND (SELECT max(v.created_at) FROM secret_versions v WHERE v.name = split_part(b.credential_ref, '@', 1)
            AND (strpos(b.credential_ref, '@') = 0 OR v.version::text = split_part(b.credential_ref, '@', 2))) < began
$$;
