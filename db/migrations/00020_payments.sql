-- Payments: what customers add to their balance through pages of the payment provider.
-- docs/payments.md explains the rules.

-- +goose Up
-- The row is written before the payment provider is asked for a page. attempt counts the keys that
-- it was asked with, and attempt_at is when the current one was used first: no key is used after it
-- was stored for a day. received_minor and received_currency are what was paid. ledger_entry_id is
-- the transaction that credited it: there is at most one. suspense_entry_id is the one that booked
-- a payment that could not be credited. refunded_minor is what was asked back or went back.
-- next_look_at is when it is compared with the payment provider, looked_at when somebody who waits
-- for it had it compared. The project is not a foreign key: payments are kept when it is gone.
CREATE TABLE payment_sessions (
    id                         text PRIMARY KEY CHECK (id LIKE 'pay\_%'),
    billing_account_id         text NOT NULL,
    project_id                 text NOT NULL,
    requested_by               text NOT NULL CHECK (requested_by <> '' AND char_length(requested_by) <= 300),
    idempotency_key            text NOT NULL CHECK (idempotency_key <> '' AND char_length(idempotency_key) <= 255),
    request_hash               bytea NOT NULL,
    status                     text NOT NULL CHECK (status IN ('initiated', 'checkout_completed', 'credited', 'failed_reconcile', 'expired')),
    payment_status             text NOT NULL DEFAULT 'unpaid' CHECK (payment_status IN ('unpaid', 'paid', 'async_failed')),
    requested_amount_minor     bigint NOT NULL CHECK (requested_amount_minor BETWEEN 1 AND 1000000000000),
    currency                   text NOT NULL,
    live                       boolean NOT NULL,
    success_url                text NOT NULL CHECK (char_length(success_url) <= 2000),
    cancel_url                 text NOT NULL CHECK (char_length(cancel_url) <= 2000),
    attempt                    integer NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    attempt_at                 timestamptz NOT NULL DEFAULT now(),
    stripe_checkout_session_id text CONSTRAINT payment_sessions_stripe_unique UNIQUE CHECK (char_length(stripe_checkout_session_id) <= 255),
    stripe_payment_intent_id   text CONSTRAINT payment_sessions_intent_unique UNIQUE CHECK (char_length(stripe_payment_intent_id) <= 255),
    url                        text NOT NULL DEFAULT '' CHECK (char_length(url) <= 4000),
    received_minor             bigint,
    received_currency          text NOT NULL DEFAULT '' CHECK (received_currency ~ '^([A-Z]{3})?$'),
    credited_amount_minor      bigint CHECK (credited_amount_minor > 0),
    ledger_entry_id            bigint CONSTRAINT payment_sessions_credit_unique UNIQUE REFERENCES ledger_transactions (id),
    suspense_entry_id          bigint CONSTRAINT payment_sessions_suspense_unique UNIQUE REFERENCES ledger_transactions (id),
    refunded_minor             bigint NOT NULL DEFAULT 0 CHECK (refunded_minor >= 0),
    credit_attempts            integer NOT NULL DEFAULT 0 CHECK (credit_attempts >= 0),
    last_error                 text NOT NULL DEFAULT '' CHECK (char_length(last_error) <= 4000),
    failure_code               text NOT NULL DEFAULT '',
    failure_message            text NOT NULL DEFAULT '' CHECK (char_length(failure_message) <= 4000),
    resolution                 text NOT NULL DEFAULT '' CHECK (resolution IN ('', 'credit', 'refund', 'write_off')),
    resolution_reason          text NOT NULL DEFAULT '' CHECK (char_length(resolution_reason) <= 500),
    resolved_by                text NOT NULL DEFAULT '' CHECK (char_length(resolved_by) <= 300),
    resolved_at                timestamptz,
    next_look_at               timestamptz,
    looks                      integer NOT NULL DEFAULT 0,
    looked_at                  timestamptz,
    expires_at                 timestamptz NOT NULL,
    completed_at               timestamptz,
    credited_at                timestamptz,
    ended_at                   timestamptz,
    version                    bigint NOT NULL DEFAULT 1,
    created_at                 timestamptz NOT NULL DEFAULT now(),
    updated_at                 timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT payment_sessions_request_unique UNIQUE (requested_by, idempotency_key),
    CONSTRAINT payment_sessions_project_unique UNIQUE (project_id, id),
    FOREIGN KEY (billing_account_id, currency) REFERENCES billing_accounts (id, currency),
    CHECK ((status = 'credited') = (ledger_entry_id IS NOT NULL)),
    CHECK ((ledger_entry_id IS NULL) = (credited_amount_minor IS NULL)),
    CHECK (status <> 'credited' OR payment_status = 'paid' AND received_currency = currency AND credited_amount_minor = received_minor AND (received_minor = requested_amount_minor OR resolution = 'credit')),
    CHECK (status NOT IN ('checkout_completed', 'credited', 'failed_reconcile') OR completed_at IS NOT NULL AND stripe_checkout_session_id IS NOT NULL),
    CHECK (status <> 'failed_reconcile' OR failure_code <> ''),
    CHECK ((resolution = '') = (resolved_at IS NULL) AND (resolution = '') = (resolution_reason = '')),
    CONSTRAINT payment_sessions_failure_code_check CHECK (failure_code IN ('', 'create_failed', 'other_mode', 'payments_off', 'payment_mismatch', 'credit_failed'))
);
CREATE INDEX payment_sessions_by_account ON payment_sessions (billing_account_id, id);
CREATE INDEX payment_sessions_by_project ON payment_sessions (project_id, id);
CREATE INDEX payment_sessions_open ON payment_sessions (status, created_at) WHERE status IN ('initiated', 'checkout_completed', 'failed_reconcile');
CREATE INDEX payment_sessions_due ON payment_sessions (next_look_at) WHERE next_look_at IS NOT NULL;
CREATE INDEX payment_sessions_by_requester ON payment_sessions (requested_by, created_at);
CREATE INDEX payment_sessions_asked ON payment_sessions (billing_account_id, created_at);
CREATE TRIGGER payment_sessions_edge_insert BEFORE INSERT ON payment_sessions FOR EACH ROW EXECUTE FUNCTION guard_payment_session();
CREATE TRIGGER payment_sessions_edge_update BEFORE UPDATE ON payment_sessions FOR EACH ROW EXECUTE FUNCTION guard_payment_session();
CREATE CONSTRAINT TRIGGER payment_sessions_audited_insert AFTER INSERT ON payment_sessions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_audited('payment_session');
CREATE CONSTRAINT TRIGGER payment_sessions_audited_update AFTER UPDATE ON payment_sessions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('payment_session');
CREATE TRIGGER payment_sessions_no_delete BEFORE DELETE ON payment_sessions FOR EACH ROW EXECUTE FUNCTION guard_no_delete();
SELECT isolate_by_project('payment_sessions');

-- What the payment provider told, as it came. It is decoded later: an event of another release, or
-- with a session that is not known yet, is kept. An event is a reason to read an object and never a
-- proof. session_id is the session that it was about.
CREATE TABLE stripe_events (
    id           text PRIMARY KEY CHECK (id <> '' AND char_length(id) <= 255),
    type         text NOT NULL CHECK (char_length(type) <= 255),
    object_kind  text NOT NULL DEFAULT '' CHECK (char_length(object_kind) <= 255),
    object_id    text NOT NULL DEFAULT '' CHECK (char_length(object_id) <= 255),
    live         boolean NOT NULL,
    release      text NOT NULL DEFAULT '' CHECK (char_length(release) <= 100),
    source       text NOT NULL CHECK (source IN ('webhook', 'list')),
    body         bytea NOT NULL CHECK (octet_length(body) <= 1048576),
    state        text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'processed', 'ignored', 'foreign', 'unmatched')),
    session_id   text,
    attempts     integer NOT NULL DEFAULT 0,
    next_at      timestamptz NOT NULL DEFAULT now(),
    last_error   text NOT NULL DEFAULT '' CHECK (char_length(last_error) <= 4000),
    event_at     timestamptz NOT NULL,
    received_at  timestamptz NOT NULL DEFAULT now(),
    processed_at timestamptz,
    CHECK ((state = 'pending') = (processed_at IS NULL))
);
CREATE INDEX stripe_events_due ON stripe_events (next_at, id) WHERE state = 'pending';
CREATE INDEX stripe_events_old ON stripe_events (received_at);

-- Money on its way back to a payer. origin dashboard is one that was made at the payment provider.
-- source is the account of the ledger that pays it.
CREATE TABLE payment_refunds (
    id               text PRIMARY KEY CHECK (id LIKE 'rfd\_%'),
    session_id       text NOT NULL REFERENCES payment_sessions (id),
    origin           text NOT NULL CHECK (origin IN ('operator', 'dashboard')),
    source           text NOT NULL,
    idempotency_key  text NOT NULL CHECK (idempotency_key <> '' AND char_length(idempotency_key) <= 255),
    amount_minor     bigint NOT NULL CHECK (amount_minor > 0),
    currency         text NOT NULL,
    state            text NOT NULL CHECK (state IN ('requested', 'pending', 'succeeded', 'failed')),
    stripe_refund_id text CONSTRAINT payment_refunds_stripe_unique UNIQUE CHECK (char_length(stripe_refund_id) <= 255),
    reason           text NOT NULL DEFAULT '' CHECK (char_length(reason) <= 500),
    requested_by     text NOT NULL CHECK (char_length(requested_by) <= 300),
    attempts         integer NOT NULL DEFAULT 0,
    last_error       text NOT NULL DEFAULT '' CHECK (char_length(last_error) <= 4000),
    next_look_at     timestamptz DEFAULT now(),
    accepted_at      timestamptz,
    ended_at         timestamptz,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT payment_refunds_key_unique UNIQUE (session_id, idempotency_key),
    CHECK (state NOT IN ('pending', 'succeeded') OR stripe_refund_id IS NOT NULL AND accepted_at IS NOT NULL),
    CHECK ((state IN ('succeeded', 'failed')) = (ended_at IS NOT NULL)),
    -- What was written off is paid back from there.
    CONSTRAINT payment_refunds_source_check CHECK (source IN ('prepaid', 'suspense', 'write_off'))
);
CREATE INDEX payment_refunds_by_session ON payment_refunds (session_id, id);
CREATE INDEX payment_refunds_due ON payment_refunds (next_look_at) WHERE next_look_at IS NOT NULL;

-- Payments that a payer's bank takes back. The billing account is frozen until one that was lost,
-- or is open, is cleared.
CREATE TABLE payment_disputes (
    id                 text PRIMARY KEY CHECK (id <> '' AND char_length(id) <= 255),
    session_id         text NOT NULL REFERENCES payment_sessions (id),
    billing_account_id text NOT NULL REFERENCES billing_accounts (id),
    source             text NOT NULL,
    amount_minor       bigint NOT NULL CHECK (amount_minor > 0),
    currency           text NOT NULL,
    state              text NOT NULL CHECK (state IN ('open', 'won', 'lost')),
    next_look_at       timestamptz,
    opened_at          timestamptz NOT NULL DEFAULT now(),
    closed_at          timestamptz,
    cleared_at         timestamptz,
    cleared_by         text NOT NULL DEFAULT '' CHECK (char_length(cleared_by) <= 300),
    cleared_reason     text NOT NULL DEFAULT '' CHECK (char_length(cleared_reason) <= 500),
    -- closings counts how often a dispute was decided: a bank may decide again. One that was
    -- decided is looked at once more.
    closings           integer NOT NULL DEFAULT 0,
    CHECK ((state = 'open') = (closed_at IS NULL)),
    CHECK ((cleared_at IS NULL) = (cleared_reason = '')),
    CONSTRAINT payment_disputes_source_check CHECK (source IN ('prepaid', 'suspense', 'write_off'))
);
CREATE INDEX payment_disputes_by_session ON payment_disputes (session_id);
CREATE INDEX payment_disputes_freezing ON payment_disputes (billing_account_id) WHERE state <> 'won' AND cleared_at IS NULL;
CREATE INDEX payment_disputes_due ON payment_disputes (next_look_at) WHERE next_look_at IS NOT NULL;

-- Sessions of the same account at the payment provider that are not of this installation. They are
-- listed, and are in no total.
CREATE TABLE payment_foreign_sessions (
    id                text PRIMARY KEY CHECK (id <> '' AND char_length(id) <= 255),
    installation      text NOT NULL DEFAULT '' CHECK (char_length(installation) <= 500),
    reference         text NOT NULL DEFAULT '' CHECK (char_length(reference) <= 500),
    amount_minor      bigint NOT NULL,
    currency          text NOT NULL,
    paid              boolean NOT NULL,
    created_at        timestamptz NOT NULL,
    found_at          timestamptz NOT NULL DEFAULT now(),
    -- payment_intent_id tells the movements of refunds and disputes of sessions that are not ours.
    -- is_converted says that the payment provider has changed the amount into another currency.
    payment_intent_id text NOT NULL DEFAULT '' CHECK (char_length(payment_intent_id) <= 255)
);
CREATE INDEX payment_foreign_sessions_by_intent ON payment_foreign_sessions (payment_intent_id) WHERE payment_intent_id <> '';

-- The movements of the balance at the payment provider, as it lists them. Payouts are not kept.
CREATE TABLE payment_movements (
    id                text PRIMARY KEY CHECK (id <> '' AND char_length(id) <= 255),
    category          text NOT NULL CHECK (char_length(category) <= 100),
    source            text NOT NULL DEFAULT '' CHECK (char_length(source) <= 255),
    amount_minor      bigint NOT NULL,
    fee_minor         bigint NOT NULL,
    currency          text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    moved_at          timestamptz NOT NULL,
    payment_intent_id text NOT NULL DEFAULT '' CHECK (char_length(payment_intent_id) <= 255),
    is_converted      boolean NOT NULL DEFAULT false
);

-- What differs between the payment provider and the ledger. A difference of totals counts when two
-- comparisons in a row have found it: what is under way differs for a moment. An acknowledged one
-- counts again when its amount changes.
CREATE TABLE payment_differences (
    kind            text NOT NULL CHECK (kind IN ('session', 'total', 'refund', 'dispute')),
    subject         text NOT NULL CHECK (subject <> '' AND char_length(subject) <= 255),
    message         text NOT NULL CHECK (message <> '' AND char_length(message) <= 4000),
    amount_minor    bigint NOT NULL DEFAULT 0,
    streak          integer NOT NULL DEFAULT 1,
    found_at        timestamptz NOT NULL DEFAULT now(),
    checked_at      timestamptz NOT NULL DEFAULT now(),
    acknowledged_at timestamptz,
    acknowledged_by text NOT NULL DEFAULT '' CHECK (char_length(acknowledged_by) <= 300),
    reason          text NOT NULL DEFAULT '' CHECK (char_length(reason) <= 500),
    PRIMARY KEY (kind, subject)
);

-- One row: who we are at the payment provider, and how far it was compared with the ledger. Times
-- without a page are through when the page is ''.
CREATE TABLE payment_control (
    one             boolean PRIMARY KEY DEFAULT true CHECK (one),
    installation    text NOT NULL DEFAULT 'slipway-' || gen_random_uuid(),
    events_from     timestamptz NOT NULL DEFAULT 'epoch',
    events_until    timestamptz,
    events_page     text NOT NULL DEFAULT '',
    sessions_from   timestamptz NOT NULL DEFAULT 'epoch',
    sessions_until  timestamptz,
    sessions_page   text NOT NULL DEFAULT '',
    movements_from  timestamptz NOT NULL DEFAULT 'epoch',
    movements_until timestamptz,
    movements_page  text NOT NULL DEFAULT '',
    events_at       timestamptz,
    totals_at       timestamptz,
    passed_at       timestamptz,
    problem         text NOT NULL DEFAULT '' CHECK (char_length(problem) <= 4000),
    problem_since   timestamptz
);
INSERT INTO payment_control DEFAULT VALUES;
