-- What a free instance uses is one window, which is written when it gets a price or ends: a window a minute would say nothing, and stay for ever.

-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE
    f text := pg_get_functiondef('bill_accounts(text[], timestamptz)'::regprocedure);
    before text := 'AND s.billed_through < least(p_boundary, s.ended_at)';
BEGIN
    IF position(before IN f) = 0 THEN
        RAISE EXCEPTION 'function bill_accounts does not say %', before;
    END IF;
    EXECUTE replace(f, before, before || ' AND (s.ended_at IS NOT NULL OR s.rate_minor_per_hour > 0 OR right(s.record_id, 2) <> ''-i'')');
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE replace(pg_get_functiondef('bill_accounts(text[], timestamptz)'::regprocedure),
        ' AND (s.ended_at IS NOT NULL OR s.rate_minor_per_hour > 0 OR right(s.record_id, 2) <> ''-i'')', '');
END $$;
-- +goose StatementEnd
