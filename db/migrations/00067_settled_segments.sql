-- A tick writes billed_through of each open segment, on which the index of what is due depended: each write had to write all indexes of the table. The index
-- depends on a column now that changes once in the life of a segment, and a page has room for the next version of its rows.

-- +goose Up
-- A segment is settled when it has ended and is charged to its end.
ALTER TABLE usage_segments ADD COLUMN settled boolean NOT NULL GENERATED ALWAYS AS (ended_at IS NOT NULL AND billed_through >= ended_at) STORED;
ALTER TABLE usage_segments SET (fillfactor = 50);
DROP INDEX usage_segments_due;
CREATE INDEX usage_segments_due ON usage_segments (billing_account_id) WHERE NOT settled;

-- The functions of 00048 and 00054 stay as they are, but for the condition by which they find what is due. A plan that is kept may be older than the rows,
-- and must not read a whole table for each batch of accounts.
-- +goose StatementBegin
DO $$
DECLARE
    f record;
BEGIN
    FOR f IN SELECT * FROM (VALUES
        ('bill_accounts(text[], timestamptz)', '(s.ended_at IS NULL OR s.billed_through < s.ended_at)', 'NOT s.settled'),
        ('split_usage(text[], timestamptz)', 's.ended_at IS NULL AND c.rate', 'NOT s.settled AND s.ended_at IS NULL AND c.rate')) AS v (name, before, after)
    LOOP
        IF position(f.before IN pg_get_functiondef(f.name::regprocedure)) = 0 THEN
            RAISE EXCEPTION 'function % does not say %', f.name, f.before;
        END IF;
        EXECUTE replace(pg_get_functiondef(f.name::regprocedure), f.before, f.after);
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', f.name);
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DO $$
DECLARE
    f record;
BEGIN
    FOR f IN SELECT * FROM (VALUES
        ('bill_accounts(text[], timestamptz)', '(s.ended_at IS NULL OR s.billed_through < s.ended_at)', 'NOT s.settled'),
        ('split_usage(text[], timestamptz)', 's.ended_at IS NULL AND c.rate', 'NOT s.settled AND s.ended_at IS NULL AND c.rate')) AS v (name, before, after)
    LOOP
        EXECUTE replace(pg_get_functiondef(f.name::regprocedure), f.after, f.before);
        EXECUTE format('ALTER FUNCTION %s RESET enable_seqscan', f.name);
    END LOOP;
END $$;
-- +goose StatementEnd
DROP INDEX usage_segments_due;
CREATE INDEX usage_segments_due ON usage_segments (billing_account_id) WHERE ended_at IS NULL OR billed_through < ended_at;
ALTER TABLE usage_segments SET (fillfactor = 70);
ALTER TABLE usage_segments DROP COLUMN settled;
