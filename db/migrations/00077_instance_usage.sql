-- Instances are charged as allocations are: types of instances have prices, and a usage record is that of an allocation or of an instance.
-- docs/billing-rules.md explains the rules.

-- +goose Up
-- A price is that of a SKU or of a type of instances, as provider/type. item is which.
ALTER TABLE prices DROP CONSTRAINT prices_overlap;
DROP INDEX prices_by_sku;
ALTER TABLE prices DROP COLUMN line;
ALTER TABLE prices ALTER COLUMN sku_id DROP NOT NULL,
    ADD COLUMN instance_type text CHECK (instance_type ~ '^[a-z0-9-]{1,63}/[A-Za-z0-9_.-]{1,63}$'),
    ADD COLUMN item text NOT NULL GENERATED ALWAYS AS (coalesce(sku_id, instance_type)) STORED,
    ADD COLUMN line numrange NOT NULL GENERATED ALWAYS AS (numrange(
        ('x' || md5(coalesce(sku_id, instance_type) || '/' || currency))::bit(64)::bigint::numeric,
        ('x' || md5(coalesce(sku_id, instance_type) || '/' || currency))::bit(64)::bigint::numeric, '[]')) STORED,
    ADD CONSTRAINT prices_one_item CHECK (num_nonnulls(sku_id, instance_type) = 1),
    ADD CONSTRAINT prices_overlap EXCLUDE USING gist (line WITH &&, valid WITH &&);
CREATE INDEX prices_by_item ON prices (item, currency, lower(valid));

-- guard_price keeps a price as it was set, whatever writes it: it is only closed by the next one, at a moment that is still to come, and valid without
-- end again when that one is withdrawn. A generated column has no value yet where it is called.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_price() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    is_first boolean := NOT EXISTS (SELECT FROM prices p WHERE p.item = coalesce(NEW.sku_id, NEW.instance_type) AND p.currency = NEW.currency);
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NOT upper_inf(NEW.valid) THEN
            RAISE EXCEPTION 'a price is valid until the next one is set' USING ERRCODE = 'SW005';
        END IF;
        IF is_first AND lower(NEW.valid) >= now() - interval '1 minute' OR NOT is_first AND lower(NEW.valid) >= now() + interval '59 minutes' THEN
            RETURN NEW;
        END IF;
    ELSIF (upper_inf(OLD.valid) AND upper(NEW.valid) >= now() + interval '59 minutes' OR upper_inf(NEW.valid) AND upper(OLD.valid) >= now() + interval '4 minutes')
        AND lower(NEW.valid) = lower(OLD.valid) AND (NEW.id, NEW.sku_id, NEW.instance_type, NEW.currency, NEW.rate_minor_per_hour, NEW.set_by, NEW.created_at)
            IS NOT DISTINCT FROM (OLD.id, OLD.sku_id, OLD.instance_type, OLD.currency, OLD.rate_minor_per_hour, OLD.set_by, OLD.created_at) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a price starts at least an hour ahead, and one that was set does not change' USING ERRCODE = 'SW005';
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION reopen_price() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    UPDATE prices SET valid = tstzrange(lower(valid), NULL)
    WHERE item = OLD.item AND currency = OLD.currency AND upper(valid) = lower(OLD.valid);
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- rate_at is the rate of an item at a moment of what runs since p_start: the lowest price of the seven days before it, since p_start. A time before the first
-- price has the rate 0. So a lower price counts at once, and a higher one seven days after it began.
DROP FUNCTION rate_at;
-- +goose StatementBegin
CREATE FUNCTION rate_at(p_item text, p_currency text, p_start timestamptz, p_at timestamptz) RETURNS bigint LANGUAGE sql STABLE
    SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT CASE WHEN bool_or(lower(p.valid) <= greatest(p_start, p_at - interval '168 hours')) THEN min(p.rate_minor_per_hour) ELSE 0 END
    FROM prices p WHERE p.item = p_item AND p.currency = p_currency
        AND p.valid && tstzrange(greatest(p_start, p_at - interval '168 hours'), p_at,
            CASE WHEN p_start >= p_at - interval '168 hours' THEN '[]' ELSE '(]' END)
$$;
-- +goose StatementEnd

-- A usage record is of one subject: an allocation, with its SKU, or an instance, with its type. The record of an instance ends in -i.
ALTER TABLE usage_records DROP CONSTRAINT usage_records_pkey;
ALTER TABLE usage_records ALTER COLUMN allocation_id DROP NOT NULL, ALTER COLUMN sku_id DROP NOT NULL,
    ADD COLUMN instance_id text REFERENCES instances (id),
    ADD COLUMN instance_type text,
    ADD COLUMN item text NOT NULL GENERATED ALWAYS AS (coalesce(sku_id, instance_type)) STORED,
    ADD CONSTRAINT usage_records_allocation_unique UNIQUE (project_id, allocation_id),
    ADD CONSTRAINT usage_records_one_subject CHECK (num_nonnulls(allocation_id, instance_id) = 1 AND (allocation_id IS NULL) = (sku_id IS NULL)
        AND (instance_id IS NULL) = (instance_type IS NULL) AND (instance_id IS NULL) = (id NOT LIKE '%-i'));
CREATE UNIQUE INDEX usage_records_instance_unique ON usage_records (instance_id) WHERE instance_id IS NOT NULL;

-- usage_subject is the allocation or instance of a usage record, by its id.
-- +goose StatementBegin
CREATE FUNCTION usage_subject(p_record text) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN right(p_record, 2) = '-i' THEN 'inst_' || substr(p_record, 5, length(p_record) - 6) ELSE 'alc_' || substr(p_record, 5) END;
-- +goose StatementEnd
-- usage_least_end is the earliest end of the charge of a record: an instance costs no erasure, and may end at once.
-- +goose StatementBegin
CREATE FUNCTION usage_least_end(r usage_records) RETURNS timestamptz LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN r.allocation_id IS NULL THEN r.start_time ELSE least_end(r.start_time) END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_usage_record() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF (NEW.project_id, NEW.allocation_id, NEW.instance_id, NEW.id, NEW.billing_account_id, NEW.sku_id, NEW.instance_type, NEW.currency)
            IS DISTINCT FROM (OLD.project_id, OLD.allocation_id, OLD.instance_id, OLD.id, OLD.billing_account_id, OLD.sku_id, OLD.instance_type, OLD.currency)
        OR OLD.start_time IS NOT NULL AND NEW.start_time IS DISTINCT FROM OLD.start_time
        OR OLD.end_time IS NOT NULL AND NEW.end_time IS DISTINCT FROM OLD.end_time
            AND (NEW.end_time < OLD.end_time AND OLD.end_time > greatest(now(), usage_least_end(OLD))) IS NOT TRUE
        OR OLD.closed_at IS NOT NULL AND NEW.closed_at IS DISTINCT FROM OLD.closed_at THEN
        RAISE EXCEPTION 'usage record % cannot be taken back', OLD.id USING ERRCODE = 'SW005';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- What is held back of a balance is held back for a usage record.
ALTER TABLE balance_holds DROP CONSTRAINT balance_holds_pkey;
ALTER TABLE balance_holds ALTER COLUMN allocation_id DROP NOT NULL,
    ADD COLUMN instance_id text REFERENCES instances (id),
    ADD CONSTRAINT balance_holds_allocation_unique UNIQUE (project_id, allocation_id),
    ADD CONSTRAINT balance_holds_one_subject CHECK (num_nonnulls(allocation_id, instance_id) = 1);
CREATE UNIQUE INDEX balance_holds_instance_unique ON balance_holds (instance_id) WHERE instance_id IS NOT NULL;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION free_hold() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF NEW.instance_id IS NOT NULL THEN
        UPDATE balance_holds h SET freed_at = now() WHERE h.instance_id = NEW.instance_id AND h.freed_at IS NULL;
        RETURN NULL;
    END IF;
    UPDATE balance_holds h SET freed_at = now() WHERE h.project_id = NEW.project_id AND h.allocation_id = NEW.allocation_id AND h.freed_at IS NULL;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- follow_instance keeps the usage record with its instance, whatever moves it: the charge begins when the instance is ready, and ends when it is terminating,
-- or has failed or ended another way. It ends at the latest five minutes after the longest drain that was asked for, also while the control plane is down.
-- An instance that can become ready no more is closed. A record is that of the project's billing account; one without a project is free.
-- +goose StatementBegin
CREATE FUNCTION follow_instance() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    r usage_records;
    billed timestamptz;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO usage_records (project_id, instance_id, id, billing_account_id, instance_type, currency, created_at)
        SELECT NEW.project_id, NEW.id, 'usg_' || substr(NEW.id, 6) || '-i', b.id, NEW.provider || '/' || NEW.type, b.currency, now()
        FROM projects p JOIN billing_accounts b ON b.id = p.billing_account_id WHERE p.id = NEW.project_id;
        RETURN NULL;
    END IF;
    SELECT * INTO r FROM usage_records u WHERE u.instance_id = NEW.id FOR NO KEY UPDATE;
    IF NOT FOUND OR r.closed_at IS NOT NULL OR r.end_time IS NOT NULL THEN
        RETURN NULL;
    END IF;
    IF NEW.status = 'ready' AND r.start_time IS NULL THEN
        r.start_time := greatest(NEW.ready_at, r.created_at);
        UPDATE usage_records u SET start_time = r.start_time WHERE u.instance_id = NEW.id;
        INSERT INTO usage_segments (project_id, record_id, segment, billing_account_id, currency, rate_minor_per_hour, started_at, billed_through)
        VALUES (r.project_id, r.id, 0, r.billing_account_id, r.currency, coalesce(rate_at(r.item, r.currency, r.start_time, r.start_time), 0),
            r.start_time, r.start_time);
    ELSIF NEW.status = 'draining' THEN
        UPDATE usage_records u SET end_cap = least(r.end_cap, now() + make_interval(secs => NEW.drain_seconds + 300)) WHERE u.instance_id = NEW.id;
    ELSIF NEW.status IN ('terminating', 'terminated', 'archived', 'failed', 'provisioning_failed') AND r.start_time IS NULL THEN
        UPDATE usage_records u SET closed_at = now() WHERE u.instance_id = NEW.id;
    ELSIF NEW.status IN ('terminating', 'terminated', 'archived', 'failed', 'provisioning_failed') THEN
        SELECT max(s.billed_through) INTO billed FROM usage_segments s WHERE s.project_id = r.project_id AND s.record_id = r.id;
        UPDATE usage_records u SET end_time = greatest(least(now(), r.end_cap), billed) WHERE u.instance_id = NEW.id;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER instances_usage_insert AFTER INSERT ON instances FOR EACH ROW EXECUTE FUNCTION follow_instance();
CREATE TRIGGER instances_usage_update AFTER UPDATE ON instances FOR EACH ROW
    WHEN (NEW.status <> OLD.status OR NEW.status = 'draining' AND NEW.drain_seconds <> OLD.drain_seconds) EXECUTE FUNCTION follow_instance();

-- Instances of before this migration are free until a price of their type is set. Row-level security binds the owner too, while it is forced.
ALTER TABLE instances NO FORCE ROW LEVEL SECURITY;
ALTER TABLE projects NO FORCE ROW LEVEL SECURITY;
ALTER TABLE usage_records NO FORCE ROW LEVEL SECURITY;
ALTER TABLE usage_segments NO FORCE ROW LEVEL SECURITY;
INSERT INTO usage_records (project_id, instance_id, id, billing_account_id, instance_type, currency, start_time, end_cap)
SELECT i.project_id, i.id, 'usg_' || substr(i.id, 6) || '-i', b.id, i.provider || '/' || i.type, b.currency, i.ready_at,
    CASE WHEN i.status = 'draining' THEN i.updated_at + make_interval(secs => i.drain_seconds + 300) END
FROM instances i JOIN projects p ON p.id = i.project_id JOIN billing_accounts b ON b.id = p.billing_account_id
WHERE i.status IN ('provisioning', 'booting', 'ready', 'draining', 'startup_failed');
INSERT INTO usage_segments (project_id, record_id, segment, billing_account_id, currency, rate_minor_per_hour, started_at, billed_through)
SELECT r.project_id, r.id, 0, r.billing_account_id, r.currency, 0, r.start_time, r.start_time
FROM usage_records r WHERE r.instance_id IS NOT NULL AND r.start_time IS NOT NULL;
ALTER TABLE instances FORCE ROW LEVEL SECURITY;
ALTER TABLE projects FORCE ROW LEVEL SECURITY;
ALTER TABLE usage_records FORCE ROW LEVEL SECURITY;
ALTER TABLE usage_segments FORCE ROW LEVEL SECURITY;

-- split_usage and bill_accounts stay as they are, but for what tells an instance from an allocation: its price, that it may end at once, that its drain is as
-- long as was asked for, and that a debit of it names no allocation.
-- +goose StatementBegin
DO $$
DECLARE
    f record;
BEGIN
    FOR f IN SELECT * FROM (VALUES
        ('split_usage(text[], timestamptz)', 'p.sku_id = r.sku_id', 'p.item = r.item'),
        ('split_usage(text[], timestamptz)', 'rate_at(r.sku_id,', 'rate_at(r.item,'),
        ('bill_accounts(text[], timestamptz)', 'least_end(r.start_time)', 'usage_least_end(r)'),
        ('bill_accounts(text[], timestamptz)', 'AND r.end_cap > now() + interval ''300 seconds'';',
            'AND r.end_cap > now() + interval ''300 seconds'' AND r.allocation_id IS NOT NULL;'),
        ('bill_accounts(text[], timestamptz)', 'CASE WHEN min(d.record_id) = max(d.record_id) THEN ''alc_'' || substr(min(d.record_id), 5) END',
            'CASE WHEN min(d.record_id) = max(d.record_id) AND right(min(d.record_id), 2) <> ''-i'' THEN usage_subject(min(d.record_id)) END')) AS v (name, before, after)
    LOOP
        IF position(f.before IN pg_get_functiondef(f.name::regprocedure)) = 0 THEN
            RAISE EXCEPTION 'function % does not say %', f.name, f.before;
        END IF;
        EXECUTE replace(pg_get_functiondef(f.name::regprocedure), f.before, f.after);
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- It fails where a usage record or a price is that of an instance: what was booked is not taken back.
ALTER TABLE usage_records ALTER COLUMN allocation_id SET NOT NULL, ALTER COLUMN sku_id SET NOT NULL;
ALTER TABLE balance_holds ALTER COLUMN allocation_id SET NOT NULL;
ALTER TABLE prices ALTER COLUMN sku_id SET NOT NULL;
-- +goose StatementBegin
DO $$
DECLARE
    f record;
BEGIN
    FOR f IN SELECT * FROM (VALUES
        ('split_usage(text[], timestamptz)', 'p.item = r.item', 'p.sku_id = r.sku_id'),
        ('split_usage(text[], timestamptz)', 'rate_at(r.item,', 'rate_at(r.sku_id,'),
        ('bill_accounts(text[], timestamptz)', 'usage_least_end(r)', 'least_end(r.start_time)'),
        ('bill_accounts(text[], timestamptz)', 'AND r.end_cap > now() + interval ''300 seconds'' AND r.allocation_id IS NOT NULL;',
            'AND r.end_cap > now() + interval ''300 seconds'';'),
        ('bill_accounts(text[], timestamptz)', 'CASE WHEN min(d.record_id) = max(d.record_id) AND right(min(d.record_id), 2) <> ''-i'' THEN usage_subject(min(d.record_id)) END',
            'CASE WHEN min(d.record_id) = max(d.record_id) THEN ''alc_'' || substr(min(d.record_id), 5) END')) AS v (name, after, before)
    LOOP
        EXECUTE replace(pg_get_functiondef(f.name::regprocedure), f.after, f.before);
    END LOOP;
END $$;
-- +goose StatementEnd
DROP TRIGGER instances_usage_update ON instances;
DROP TRIGGER instances_usage_insert ON instances;
DROP FUNCTION follow_instance;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION free_hold() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    UPDATE balance_holds h SET freed_at = now() WHERE h.project_id = NEW.project_id AND h.allocation_id = NEW.allocation_id AND h.freed_at IS NULL;
    RETURN NULL;
END $$;
-- +goose StatementEnd
ALTER TABLE balance_holds DROP CONSTRAINT balance_holds_one_subject, DROP CONSTRAINT balance_holds_allocation_unique;
ALTER TABLE balance_holds DROP COLUMN instance_id, ADD PRIMARY KEY (project_id, allocation_id);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_usage_record() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF (NEW.project_id, NEW.allocation_id, NEW.id, NEW.billing_account_id, NEW.sku_id, NEW.currency)
            IS DISTINCT FROM (OLD.project_id, OLD.allocation_id, OLD.id, OLD.billing_account_id, OLD.sku_id, OLD.currency)
        OR OLD.start_time IS NOT NULL AND NEW.start_time IS DISTINCT FROM OLD.start_time
        OR OLD.end_time IS NOT NULL AND NEW.end_time IS DISTINCT FROM OLD.end_time
            AND (NEW.end_time < OLD.end_time AND OLD.end_time > greatest(now(), least_end(OLD.start_time))) IS NOT TRUE
        OR OLD.closed_at IS NOT NULL AND NEW.closed_at IS DISTINCT FROM OLD.closed_at THEN
        RAISE EXCEPTION 'usage record % cannot be taken back', OLD.id USING ERRCODE = 'SW005';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
DROP FUNCTION usage_least_end, usage_subject;
ALTER TABLE usage_records DROP CONSTRAINT usage_records_one_subject, DROP CONSTRAINT usage_records_allocation_unique;
ALTER TABLE usage_records DROP COLUMN item, DROP COLUMN instance_type, DROP COLUMN instance_id, ADD PRIMARY KEY (project_id, allocation_id);
DROP FUNCTION rate_at;
-- +goose StatementBegin
CREATE FUNCTION rate_at(p_sku text, p_currency text, p_start timestamptz, p_at timestamptz) RETURNS bigint LANGUAGE sql STABLE
    SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT CASE WHEN bool_or(lower(p.valid) <= greatest(p_start, p_at - interval '168 hours')) THEN min(p.rate_minor_per_hour) ELSE 0 END
    FROM prices p WHERE p.sku_id = p_sku AND p.currency = p_currency
        AND p.valid && tstzrange(greatest(p_start, p_at - interval '168 hours'), p_at,
            CASE WHEN p_start >= p_at - interval '168 hours' THEN '[]' ELSE '(]' END)
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION reopen_price() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    UPDATE prices SET valid = tstzrange(lower(valid), NULL)
    WHERE sku_id = OLD.sku_id AND currency = OLD.currency AND upper(valid) = lower(OLD.valid);
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_price() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    is_first boolean := NOT EXISTS (SELECT FROM prices p WHERE p.sku_id = NEW.sku_id AND p.currency = NEW.currency);
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NOT upper_inf(NEW.valid) THEN
            RAISE EXCEPTION 'a price is valid until the next one is set' USING ERRCODE = 'SW005';
        END IF;
        IF is_first AND lower(NEW.valid) >= now() - interval '1 minute' OR NOT is_first AND lower(NEW.valid) >= now() + interval '59 minutes' THEN
            RETURN NEW;
        END IF;
    ELSIF (upper_inf(OLD.valid) AND upper(NEW.valid) >= now() + interval '59 minutes' OR upper_inf(NEW.valid) AND upper(OLD.valid) >= now() + interval '4 minutes')
        AND lower(NEW.valid) = lower(OLD.valid) AND (NEW.id, NEW.sku_id, NEW.currency, NEW.rate_minor_per_hour, NEW.set_by, NEW.created_at)
            = (OLD.id, OLD.sku_id, OLD.currency, OLD.rate_minor_per_hour, OLD.set_by, OLD.created_at) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a price starts at least an hour ahead, and one that was set does not change' USING ERRCODE = 'SW005';
END $$;
-- +goose StatementEnd
DROP INDEX prices_by_item;
ALTER TABLE prices DROP CONSTRAINT prices_overlap, DROP CONSTRAINT prices_one_item;
ALTER TABLE prices DROP COLUMN line, DROP COLUMN item, DROP COLUMN instance_type;
ALTER TABLE prices ADD COLUMN line numrange NOT NULL GENERATED ALWAYS AS (numrange(
        ('x' || md5(sku_id || '/' || currency))::bit(64)::bigint::numeric, ('x' || md5(sku_id || '/' || currency))::bit(64)::bigint::numeric, '[]')) STORED,
    ADD CONSTRAINT prices_overlap EXCLUDE USING gist (line WITH &&, valid WITH &&);
CREATE INDEX prices_by_sku ON prices (sku_id, currency, lower(valid));
