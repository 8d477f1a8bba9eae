-- What the role of the serving processes needs of the audit log without a right to its tables: functions of the owner. Their search path ends with
-- pg_temp; unless it is named, temporary tables would come first.

-- +goose Up
ALTER FUNCTION audit_chain() SECURITY DEFINER;
ALTER FUNCTION audit_verify(text, text) SECURITY DEFINER;

-- The chains that there are, without the ends of them.
CREATE VIEW audit_chains AS SELECT resource_kind, resource_id FROM audit_heads;

-- As before, run by the owner, and at most five years ahead.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_ensure_partitions(months integer) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    month timestamp;
    part text;
    made integer := 0;
BEGIN
    IF months IS NULL OR months NOT BETWEEN 0 AND 60 THEN
        RAISE EXCEPTION 'audit partitions can be made for 0 to 60 months ahead, not for %', months USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('slipway:audit_partitions', 0));
    FOR i IN 0..months LOOP
        month := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => i);
        part := 'audit_log_' || to_char(month, 'YYYY_MM');
        CONTINUE WHEN to_regclass('public.' || part) IS NOT NULL;
        BEGIN
            EXECUTE format('CREATE TABLE public.%I PARTITION OF public.audit_log FOR VALUES FROM (%L) TO (%L)', part,
                month AT TIME ZONE 'UTC', (month + interval '1 month') AT TIME ZONE 'UTC');
            EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON public.%I FOR EACH STATEMENT EXECUTE FUNCTION public.audit_refuse_edit()',
                part || '_no_truncate', part);
            made := made + 1;
        EXCEPTION WHEN check_violation THEN
            RAISE NOTICE '% stays in the default partition: it already holds rows of that month', part;
        END;
    END LOOP;
    RETURN made;
END $$;
-- +goose StatementEnd

-- Every function, guards too: a session chooses its own search path, and could make a guard read another table.
-- +goose StatementBegin
DO $$
DECLARE
    f regprocedure;
BEGIN
    -- What an extension brought belongs to somebody else.
    FOR f IN SELECT oid FROM pg_proc p WHERE pronamespace = 'public'::regnamespace AND prokind <> 'a'
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e') LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, public, pg_temp', f);
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP VIEW audit_chains;
ALTER FUNCTION audit_chain() SECURITY INVOKER;
ALTER FUNCTION audit_verify(text, text) SECURITY INVOKER;
ALTER FUNCTION audit_ensure_partitions(integer) SECURITY INVOKER;
-- +goose StatementBegin
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace LOOP
        EXECUTE format('ALTER FUNCTION %s RESET search_path', f);
    END LOOP;
END $$;
-- +goose StatementEnd
