-- post_ledger_entries moves the balances with the entries of one statement. Each transaction must
-- be whole and balanced in it, and each account's numbers must follow the last one. It runs as the
-- owner: nobody else may move a balance.
CREATE OR REPLACE FUNCTION post_ledger_entries() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $$
DECLARE
    wrong record;
BEGIN
    SELECT a.transaction_id, a.total, a.lines INTO wrong
        FROM (SELECT b.transaction_id, sum(b.amount_minor) AS total, count(*) AS lines FROM added b GROUP BY b.transaction_id) a
        WHERE a.total <> 0 OR a.lines < 2 OR a.lines < (SELECT count(*) FROM ledger_entries e WHERE e.transaction_id = a.transaction_id) LIMIT 1;
    IF FOUND AND (wrong.total <> 0 OR wrong.lines < 2) THEN
        RAISE EXCEPTION 'ledger transaction % has % lines with the sum %', wrong.transaction_id, wrong.lines, wrong.total USING ERRCODE = 'SW005';
    ELSIF FOUND THEN
        RAISE EXCEPTION 'a ledger transaction gets its lines at once' USING ERRCODE = 'SW005';
    END IF;
    PERFORM FROM ledger_accounts l WHERE l.id IN (SELECT a.ledger_account_id FROM added a) ORDER BY l.id FOR NO KEY UPDATE;
    WITH chained AS MATERIALIZED (
        SELECT l.id, l.last_seq, a.account_seq, a.balance_after_minor, t.billing_account_id = l.billing_account_id AS is_own,
            a.account_seq = l.last_seq + row_number() OVER places AND a.balance_after_minor = l.balance_minor + sum(a.amount_minor) OVER places AS follows,
            lead(a.account_seq) OVER places IS NULL AS is_last,
            ledger_head(l.head, ledger_entry_text(ROW (a.transaction_id, a.line, a.ledger_account_id, a.currency, a.amount_minor, a.account_seq,
                a.balance_after_minor)::ledger_entries, t)) OVER places AS head
        FROM added a JOIN ledger_transactions t ON t.id = a.transaction_id JOIN ledger_accounts l ON l.id = a.ledger_account_id
        WINDOW places AS (PARTITION BY l.id ORDER BY a.account_seq ROWS UNBOUNDED PRECEDING)
    ), anchored AS (
        INSERT INTO ledger_anchors (ledger_account_id, seq, balance_minor, head)
        SELECT c.id, c.account_seq, c.balance_after_minor, c.head FROM chained c WHERE c.account_seq % 10000 = 0
    ), moved AS (
        UPDATE ledger_accounts l SET balance_minor = c.balance_after_minor, last_seq = c.account_seq, head = c.head FROM chained c WHERE c.is_last AND l.id = c.id
    )
    SELECT c.* INTO wrong FROM chained c WHERE NOT c.follows OR NOT c.is_own ORDER BY c.id, c.account_seq LIMIT 1;
    IF FOUND AND NOT wrong.follows THEN
        RAISE EXCEPTION 'entry % of ledger account % does not follow entry %', wrong.account_seq, wrong.id, wrong.last_seq USING ERRCODE = '40001';
    ELSIF FOUND THEN
        RAISE EXCEPTION 'a ledger transaction has lines of one billing account' USING ERRCODE = 'SW005';
    END IF;
    RETURN NULL;
END $$;

-- A transaction has lines when it is committed, and a debit for usage is the sum of its windows and
-- has their hash.
CREATE OR REPLACE FUNCTION guard_ledger_lines() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $$
DECLARE
    charged bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM ledger_entries e WHERE e.transaction_id = NEW.id) THEN
        RAISE EXCEPTION 'ledger transaction % has no lines', NEW.key USING ERRCODE = 'SW005';
    END IF;
    IF NEW.kind = 'usage' THEN
        SELECT sum(w.amount_minor) INTO charged FROM usage_windows w WHERE w.transaction_id = NEW.id;
        IF charged IS DISTINCT FROM (SELECT -e.amount_minor FROM ledger_entries e
            WHERE e.transaction_id = NEW.id AND (SELECT a.code FROM ledger_accounts a WHERE a.id = e.ledger_account_id) = 'prepaid') THEN
            RAISE EXCEPTION 'ledger transaction % is not the sum of its windows, which is %', NEW.key, charged USING ERRCODE = 'SW005';
        END IF;
        IF NEW.request_hash IS DISTINCT FROM usage_windows_hash(NEW.id) THEN
            RAISE EXCEPTION 'ledger transaction % has not the hash of its windows', NEW.key USING ERRCODE = 'SW005';
        END IF;
    END IF;
    RETURN NULL;
END $$;

-- ledger_verify also compares the windows of each debit with the hash that the debit has of them.
CREATE OR REPLACE FUNCTION ledger_verify(p_account bigint, p_after bigint DEFAULT 0, p_most bigint DEFAULT '1000000000000'::bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
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
    FOR entry IN SELECT e.transaction_id, e.account_seq, e.amount_minor, e.balance_after_minor, ledger_entry_text(e, t) AS text,
            CASE WHEN t.kind = 'usage' AND e.line = 1 THEN t.request_hash ELSE '' END AS windows_hash
        FROM ledger_entries e JOIN ledger_transactions t ON t.id = e.transaction_id WHERE e.ledger_account_id = p_account
            AND e.account_seq > p_after AND e.account_seq <= p_after + p_most ORDER BY e.account_seq LOOP
        balance := balance + entry.amount_minor;
        IF entry.account_seq <> expected OR entry.balance_after_minor <> balance OR entry.windows_hash <> '' AND entry.windows_hash IS DISTINCT FROM usage_windows_hash(entry.transaction_id) THEN
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

-- chain_verify returns the first broken number of a chain, or null when it is whole.
CREATE OR REPLACE FUNCTION chain_verify(p_kind text, p_id text) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    account bigint;
BEGIN
    IF p_kind <> 'ledger' THEN
        RETURN audit_verify(p_kind, p_id);
    END IF;
    SELECT a.id INTO account FROM ledger_accounts a WHERE a.billing_account_id = split_part(p_id, '/', 1) AND a.code = split_part(p_id, '/', 2);
    IF NOT FOUND OR split_part(p_id, '/', 3) !~ '^[0-9]{1,15}$' THEN
        RETURN 1;
    END IF;
    RETURN ledger_verify(account, split_part(p_id, '/', 3)::bigint, 10000);
END $$;

-- ledger_head is the hash over entries in their order: that of the first is over the head of the
-- account before it.
CREATE OR REPLACE FUNCTION next_ledger_head(state bytea, before bytea, entry text) RETURNS bytea LANGUAGE sql IMMUTABLE
    RETURN sha256(coalesce(state, before) || convert_to(entry, 'UTF8'));

CREATE OR REPLACE AGGREGATE ledger_head(before bytea, entry text) (SFUNC = next_ledger_head, STYPE = bytea);
