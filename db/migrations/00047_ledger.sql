-- Money: currencies, and the ledger. docs/billing.md explains the rules. Amounts are whole minor units of the account's currency.

-- +goose Up
-- The one table of currencies: how many digits the minor unit has.
CREATE TABLE currencies (
    code     text PRIMARY KEY CHECK (code ~ '^[A-Z]{3}$'),
    exponent smallint NOT NULL CHECK (exponent BETWEEN 0 AND 4)
);
INSERT INTO currencies (code, exponent) VALUES
    ('AUD', 2), ('BHD', 3), ('BRL', 2), ('CAD', 2), ('CHF', 2), ('CNY', 2), ('CZK', 2), ('DKK', 2), ('EUR', 2), ('GBP', 2), ('HKD', 2), ('HUF', 2),
    ('INR', 2), ('ISK', 0), ('JPY', 0), ('KRW', 0), ('KWD', 3), ('MXN', 2), ('NOK', 2), ('NZD', 2), ('OMR', 3), ('PLN', 2), ('SEK', 2), ('SGD', 2),
    ('TND', 3), ('TWD', 2), ('USD', 2), ('VND', 0), ('ZAR', 2);

-- The currency of an account is fixed: prices, holds and ledger lines carry it, and nothing is converted.
ALTER TABLE billing_accounts ADD COLUMN currency text NOT NULL DEFAULT 'USD' REFERENCES currencies (code),
    ADD CONSTRAINT billing_accounts_currency_unique UNIQUE (id, currency);

-- +goose StatementBegin
CREATE FUNCTION guard_account_currency() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the currency of billing account % is fixed; create another account for another currency', OLD.id USING ERRCODE = 'SW005';
END $$;
-- +goose StatementEnd
CREATE TRIGGER billing_accounts_currency BEFORE UPDATE ON billing_accounts FOR EACH ROW
    WHEN (OLD.currency IS DISTINCT FROM NEW.currency) EXECUTE FUNCTION guard_account_currency();

-- What an account has (prepaid) and where it came from or went: each billing account has its own, so that no row is shared by all. A positive balance of
-- prepaid is what the customer may still use. balance_minor, last_seq and head follow the entries by a trigger and by nothing else. head is the hash over
-- all entries in their order.
CREATE TABLE ledger_accounts (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    billing_account_id text NOT NULL,
    code               text NOT NULL
        CHECK (code IN ('prepaid', 'revenue', 'adjustments', 'clearing', 'suspense', 'dispute_hold', 'refund_pending', 'write_off', 'fees')),
    currency           text NOT NULL,
    balance_minor      bigint NOT NULL DEFAULT 0,
    last_seq           bigint NOT NULL DEFAULT 0,
    head               bytea NOT NULL DEFAULT '',
    CONSTRAINT ledger_accounts_code_unique UNIQUE (billing_account_id, code),
    UNIQUE (id, currency),
    FOREIGN KEY (billing_account_id, currency) REFERENCES billing_accounts (id, currency)
) WITH (fillfactor = 70);

-- key is the fact that is booked, as usage:RECORD:WINDOW_START, so that no fact is booked twice. request_hash tells a repetition from another request
-- with the same key. The project is not a foreign key and the table is not bound to projects: an account's payments belong to no project.
CREATE TABLE ledger_transactions (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key                text NOT NULL CONSTRAINT ledger_transactions_key_unique UNIQUE CHECK (key <> '' AND char_length(key) <= 300),
    kind               text NOT NULL CHECK (kind IN ('usage', 'adjustment', 'topup', 'refund', 'refund_reversal', 'dispute', 'dispute_reversal',
        'suspense', 'write_off')),
    billing_account_id text NOT NULL,
    currency           text NOT NULL,
    of_project         text,
    of_allocation      text,
    effective_at       timestamptz NOT NULL,
    posted_at          timestamptz NOT NULL DEFAULT now(),
    reason             text NOT NULL DEFAULT '' CHECK (char_length(reason) <= 500),
    actor              text NOT NULL DEFAULT '' CHECK (char_length(actor) <= 300),
    request_hash       bytea NOT NULL DEFAULT '',
    CHECK (kind <> 'adjustment' OR reason <> ''),
    UNIQUE (id, currency),
    FOREIGN KEY (billing_account_id, currency) REFERENCES billing_accounts (id, currency)
);
CREATE INDEX ledger_transactions_by_account ON ledger_transactions (billing_account_id, id);
CREATE INDEX ledger_transactions_by_project ON ledger_transactions (of_project, posted_at, id) WHERE of_project IS NOT NULL;

-- amount_minor is positive for what an account gains.
CREATE TABLE ledger_entries (
    transaction_id      bigint NOT NULL,
    line                smallint NOT NULL CHECK (line BETWEEN 1 AND 20),
    ledger_account_id   bigint NOT NULL,
    currency            text NOT NULL,
    amount_minor        bigint NOT NULL CHECK (amount_minor <> 0),
    account_seq         bigint NOT NULL,
    balance_after_minor bigint NOT NULL,
    PRIMARY KEY (transaction_id, line),
    CONSTRAINT ledger_entries_seq_unique UNIQUE (ledger_account_id, account_seq),
    FOREIGN KEY (transaction_id, currency) REFERENCES ledger_transactions (id, currency),
    FOREIGN KEY (ledger_account_id, currency) REFERENCES ledger_accounts (id, currency)
);

-- The balance and the head of an account after each ten thousandth entry, so that a long ledger is verified part by part.
CREATE TABLE ledger_anchors (
    ledger_account_id bigint NOT NULL REFERENCES ledger_accounts (id),
    seq               bigint NOT NULL CHECK (seq > 0),
    balance_minor     bigint NOT NULL,
    head              bytea NOT NULL,
    at                timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (ledger_account_id, seq)
);

CREATE TRIGGER ledger_anchors_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_anchors FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER ledger_transactions_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_transactions FOR EACH STATEMENT
    EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER ledger_entries_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entries FOR EACH STATEMENT
    EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER ledger_accounts_no_delete BEFORE DELETE OR TRUNCATE ON ledger_accounts FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
-- A balance moves only with entries: inside their trigger, which is one level up. A new account has none.
CREATE TRIGGER ledger_accounts_by_entries_only BEFORE UPDATE ON ledger_accounts FOR EACH ROW
    WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION audit_refuse_edit();
-- +goose StatementBegin
CREATE FUNCTION guard_ledger_account() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF (NEW.balance_minor, NEW.last_seq, NEW.head) <> (0, 0, ''::bytea) THEN
        RAISE EXCEPTION 'a new ledger account has no balance' USING ERRCODE = 'SW003';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER ledger_accounts_empty BEFORE INSERT ON ledger_accounts FOR EACH ROW EXECUTE FUNCTION guard_ledger_account();
-- +goose StatementBegin
CREATE FUNCTION guard_ledger_time() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF NEW.posted_at IS DISTINCT FROM now() THEN
        RAISE EXCEPTION 'a ledger transaction carries the time of its own transaction' USING ERRCODE = 'SW003';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER ledger_transactions_time BEFORE INSERT ON ledger_transactions FOR EACH ROW EXECUTE FUNCTION guard_ledger_time();

-- ledger_entry_text is what the hash covers of an entry with its transaction.
-- +goose StatementBegin
CREATE FUNCTION ledger_entry_text(e ledger_entries, t ledger_transactions) RETURNS text LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN jsonb_build_array(e.transaction_id, e.line, e.ledger_account_id, e.currency, e.amount_minor, e.account_seq, e.balance_after_minor, t.key, t.kind,
        t.billing_account_id, t.of_project, t.of_allocation, extract(epoch FROM t.effective_at)::text, extract(epoch FROM t.posted_at)::text, t.reason,
        t.actor, encode(t.request_hash, 'hex'))::text;
END $$;
-- +goose StatementEnd

-- post_ledger_entries moves the balances with the entries of one statement. Each transaction must be whole and balanced in it, and each account's numbers
-- must follow the last one. It runs as the owner: nobody else may move a balance.
-- +goose StatementBegin
CREATE FUNCTION post_ledger_entries() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    entry record;
    account ledger_accounts;
BEGIN
    SELECT a.transaction_id, sum(a.amount_minor) AS total, count(*) AS lines INTO entry FROM added a GROUP BY a.transaction_id
        HAVING sum(a.amount_minor) <> 0 OR count(*) < 2 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'ledger transaction % has % lines with the sum %', entry.transaction_id, entry.lines, entry.total USING ERRCODE = 'SW005';
    END IF;
    IF EXISTS (SELECT FROM (SELECT b.transaction_id, count(*) AS lines FROM added b GROUP BY b.transaction_id) a
        WHERE a.lines < (SELECT count(*) FROM ledger_entries e WHERE e.transaction_id = a.transaction_id)) THEN
        RAISE EXCEPTION 'a ledger transaction gets its lines at once' USING ERRCODE = 'SW005';
    END IF;
    FOR entry IN SELECT a.ledger_account_id, a.amount_minor, a.account_seq, a.balance_after_minor, t.billing_account_id,
            ledger_entry_text(e, t) AS text, lead(a.ledger_account_id) OVER places AS following
        FROM added a JOIN ledger_entries e USING (transaction_id, line) JOIN ledger_transactions t ON t.id = a.transaction_id
        WINDOW places AS (ORDER BY a.ledger_account_id, a.account_seq) ORDER BY a.ledger_account_id, a.account_seq LOOP
        IF account.id IS DISTINCT FROM entry.ledger_account_id THEN
            SELECT * INTO account FROM ledger_accounts l WHERE l.id = entry.ledger_account_id FOR NO KEY UPDATE;
        END IF;
        IF entry.account_seq <> account.last_seq + 1 OR entry.balance_after_minor <> account.balance_minor + entry.amount_minor THEN
            RAISE EXCEPTION 'entry % of ledger account % does not follow entry %', entry.account_seq, account.id, account.last_seq USING ERRCODE = '40001';
        END IF;
        IF entry.billing_account_id <> account.billing_account_id THEN
            RAISE EXCEPTION 'a ledger transaction has lines of one billing account' USING ERRCODE = 'SW005';
        END IF;
        account.last_seq := entry.account_seq;
        account.balance_minor := entry.balance_after_minor;
        account.head := sha256(account.head || convert_to(entry.text, 'UTF8'));
        IF account.last_seq % 10000 = 0 THEN
            INSERT INTO ledger_anchors (ledger_account_id, seq, balance_minor, head) VALUES (account.id, account.last_seq, account.balance_minor, account.head);
        END IF;
        IF entry.following IS DISTINCT FROM account.id THEN
            UPDATE ledger_accounts l SET balance_minor = account.balance_minor, last_seq = account.last_seq, head = account.head WHERE l.id = account.id;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER ledger_entries_post AFTER INSERT ON ledger_entries REFERENCING NEW TABLE AS added FOR EACH STATEMENT
    EXECUTE FUNCTION post_ledger_entries();

-- A transaction has lines when it is committed.
-- +goose StatementBegin
CREATE FUNCTION guard_ledger_lines() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM ledger_entries e WHERE e.transaction_id = NEW.id) THEN
        RAISE EXCEPTION 'ledger transaction % has no lines', NEW.key USING ERRCODE = 'SW005';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE CONSTRAINT TRIGGER ledger_transactions_lines AFTER INSERT ON ledger_transactions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_ledger_lines();

-- ledger_verify walks at most p_most entries of an account after one of its anchors, or from the beginning. It returns the first number that is missing or
-- altered, the one after the last when only the end differs, or null when all is as it was written.
-- +goose StatementBegin
CREATE FUNCTION ledger_verify(p_account bigint, p_after bigint DEFAULT 0, p_most bigint DEFAULT 1000000000000) RETURNS bigint LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    entry record;
    account ledger_accounts;
    anchor ledger_anchors;
    expected bigint := p_after + 1;
    balance bigint := 0;
    hash bytea := '';
BEGIN
    IF p_after > 0 THEN
        SELECT * INTO anchor FROM ledger_anchors a WHERE a.ledger_account_id = p_account AND a.seq = p_after;
        IF NOT FOUND THEN
            RETURN p_after;
        END IF;
        balance := anchor.balance_minor;
        hash := anchor.head;
    END IF;
    FOR entry IN SELECT e.account_seq, e.amount_minor, e.balance_after_minor, ledger_entry_text(e, t) AS text
        FROM ledger_entries e JOIN ledger_transactions t ON t.id = e.transaction_id WHERE e.ledger_account_id = p_account
            AND e.account_seq > p_after AND e.account_seq <= p_after + p_most ORDER BY e.account_seq LOOP
        balance := balance + entry.amount_minor;
        IF entry.account_seq <> expected OR entry.balance_after_minor <> balance THEN
            RETURN expected;
        END IF;
        hash := sha256(hash || convert_to(entry.text, 'UTF8'));
        expected := expected + 1;
        IF entry.account_seq % 10000 = 0 THEN
            SELECT * INTO anchor FROM ledger_anchors a WHERE a.ledger_account_id = p_account AND a.seq = entry.account_seq;
            IF (anchor.balance_minor, anchor.head) IS DISTINCT FROM (balance, hash) THEN
                RETURN expected;
            END IF;
        END IF;
    END LOOP;
    IF expected = p_after + p_most + 1 THEN
        RETURN NULL;
    END IF;
    SELECT * INTO account FROM ledger_accounts a WHERE a.id = p_account;
    IF account.last_seq <> expected - 1 OR account.balance_minor <> balance OR account.head <> hash THEN
        RETURN expected;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION ledger_verify, ledger_entry_text;
DROP TABLE ledger_anchors, ledger_entries, ledger_transactions, ledger_accounts;
DROP FUNCTION guard_ledger_lines, post_ledger_entries, guard_ledger_time, guard_ledger_account;
DROP TRIGGER billing_accounts_currency ON billing_accounts;
DROP FUNCTION guard_account_currency;
ALTER TABLE billing_accounts DROP CONSTRAINT billing_accounts_currency_unique, DROP COLUMN currency;
DROP TABLE currencies;
