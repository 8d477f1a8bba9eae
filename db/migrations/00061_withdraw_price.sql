-- A price that lies in the future can be withdrawn. docs/billing-rules.md has the rules.

-- +goose Up
-- guard_price keeps a price as it was set, whatever writes it: it is only closed by the next one, at a moment that is still to come, and valid without
-- end again when that one is withdrawn.
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

-- guard_price_withdrawal lets only the last price of a SKU in a currency go, long enough before it begins that no tick has seen it in force.
-- +goose StatementBegin
CREATE FUNCTION guard_price_withdrawal() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF upper_inf(OLD.valid) AND lower(OLD.valid) >= now() + interval '4 minutes' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'only the last price of a SKU is withdrawn, and only before it begins' USING ERRCODE = 'SW005';
END $$;
-- +goose StatementEnd

-- reopen_price has the price before valid without end again: no moment is left without a price.
-- +goose StatementBegin
CREATE FUNCTION reopen_price() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    UPDATE prices SET valid = tstzrange(lower(valid), NULL)
    WHERE sku_id = OLD.sku_id AND currency = OLD.currency AND upper(valid) = lower(OLD.valid);
    RETURN NULL;
END $$;
-- +goose StatementEnd

DROP TRIGGER prices_no_delete ON prices;
CREATE TRIGGER prices_no_truncate BEFORE TRUNCATE ON prices FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER prices_guard_withdrawal BEFORE DELETE ON prices FOR EACH ROW EXECUTE FUNCTION guard_price_withdrawal();
CREATE TRIGGER prices_reopen AFTER DELETE ON prices FOR EACH ROW EXECUTE FUNCTION reopen_price();

-- +goose Down
DROP TRIGGER prices_reopen ON prices;
DROP TRIGGER prices_guard_withdrawal ON prices;
DROP TRIGGER prices_no_truncate ON prices;
CREATE TRIGGER prices_no_delete BEFORE DELETE OR TRUNCATE ON prices FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
DROP FUNCTION reopen_price, guard_price_withdrawal;
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
    ELSIF upper_inf(OLD.valid) AND upper(NEW.valid) >= now() + interval '59 minutes' AND lower(NEW.valid) = lower(OLD.valid)
        AND (NEW.id, NEW.sku_id, NEW.currency, NEW.rate_minor_per_hour, NEW.set_by, NEW.created_at)
            = (OLD.id, OLD.sku_id, OLD.currency, OLD.rate_minor_per_hour, OLD.set_by, OLD.created_at) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a price starts at least an hour ahead, and one that was set does not change' USING ERRCODE = 'SW005';
END $$;
-- +goose StatementEnd
