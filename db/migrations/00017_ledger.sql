-- The ledger of money. docs/billing.md explains the rules. Amounts are whole minor units of the
-- account's currency.

-- +goose Up
-- What an account has (prepaid) and where it came from or went: each billing account has its own,
-- so that no row is shared by all. A positive balance of prepaid is what the customer may still
-- use. balance_minor, last_seq and head follow the entries by a trigger and by nothing else. head
-- is the hash over all entries in their order.
CREATE TABLE ledger_accounts (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    billing_account_id text NOT NULL,
    code               text NOT NULL CHECK (code IN ('prepaid', 'revenue', 'adjustments', 'clearing', 'suspense', 'dispute_hold', 'refund_pending', 'write_off', 'fees')),
    currency           text NOT NULL,
    balance_minor      bigint NOT NULL DEFAULT 0,
    last_seq           bigint NOT NULL DEFAULT 0,
    head               bytea NOT NULL DEFAULT '',
    CONSTRAINT ledger_accounts_code_unique UNIQUE (billing_account_id, code),
    UNIQUE (id, currency),
    FOREIGN KEY (billing_account_id, currency) REFERENCES billing_accounts (id, currency)
) WITH (fillfactor = 70);
CREATE TRIGGER ledger_accounts_no_delete BEFORE DELETE OR TRUNCATE ON ledger_accounts FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
-- A balance moves only with entries: inside their trigger, which is one level up. A new account has
-- none.
CREATE TRIGGER ledger_accounts_by_entries_only BEFORE UPDATE ON ledger_accounts FOR EACH ROW
    WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER ledger_accounts_empty BEFORE INSERT ON ledger_accounts FOR EACH ROW EXECUTE FUNCTION guard_ledger_account();
CREATE TRIGGER ledger_accounts_state AFTER UPDATE OF balance_minor ON ledger_accounts FOR EACH ROW
    WHEN (NEW.code = 'prepaid' AND NEW.balance_minor <> OLD.balance_minor) EXECUTE FUNCTION follow_balance();

-- key is the fact that is booked, as usage:RECORD:WINDOW_START, so that no fact is booked twice.
-- request_hash tells a repetition from another request with the same key. The project is not a
-- foreign key and the table is not bound to projects: an account's payments belong to no project.
CREATE TABLE ledger_transactions (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key                text NOT NULL CONSTRAINT ledger_transactions_key_unique UNIQUE CHECK (key <> '' AND char_length(key) <= 300),
    kind               text NOT NULL CHECK (kind IN ('usage', 'adjustment', 'topup', 'refund', 'refund_reversal', 'dispute', 'dispute_reversal', 'suspense', 'write_off')),
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
CREATE TRIGGER ledger_transactions_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_transactions FOR EACH STATEMENT
    EXECUTE FUNCTION audit_refuse_edit();
CREATE CONSTRAINT TRIGGER ledger_transactions_lines AFTER INSERT ON ledger_transactions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_ledger_lines();
CREATE TRIGGER ledger_transactions_time BEFORE INSERT ON ledger_transactions FOR EACH ROW WHEN (NEW.posted_at IS DISTINCT FROM now())
    EXECUTE FUNCTION guard_ledger_time();

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
CREATE TRIGGER ledger_entries_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entries FOR EACH STATEMENT
    EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER ledger_entries_post AFTER INSERT ON ledger_entries REFERENCING NEW TABLE AS added FOR EACH STATEMENT
    EXECUTE FUNCTION post_ledger_entries();

-- The balance and the head of an account after each ten thousandth entry, so that a long ledger is
-- verified part by part.
CREATE TABLE ledger_anchors (
    ledger_account_id bigint NOT NULL REFERENCES ledger_accounts (id),
    seq               bigint NOT NULL CHECK (seq > 0),
    balance_minor     bigint NOT NULL,
    head              bytea NOT NULL,
    at                timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (ledger_account_id, seq)
);
CREATE TRIGGER ledger_anchors_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_anchors FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
