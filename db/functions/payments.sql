CREATE OR REPLACE FUNCTION guard_payment_session() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('payment_session', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF (NEW.billing_account_id, NEW.project_id, NEW.requested_by, NEW.idempotency_key, NEW.request_hash, NEW.requested_amount_minor, NEW.currency, NEW.live,
        NEW.expires_at, NEW.created_at) IS DISTINCT FROM (OLD.billing_account_id, OLD.project_id, OLD.requested_by, OLD.idempotency_key, OLD.request_hash,
        OLD.requested_amount_minor, OLD.currency, OLD.live, OLD.expires_at, OLD.created_at) THEN
        RAISE EXCEPTION 'what was asked for with payment session % cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF OLD.stripe_checkout_session_id IS NOT NULL AND NEW.stripe_checkout_session_id IS DISTINCT FROM OLD.stripe_checkout_session_id
        OR OLD.stripe_payment_intent_id IS NOT NULL AND NEW.stripe_payment_intent_id IS DISTINCT FROM OLD.stripe_payment_intent_id
        OR OLD.ledger_entry_id IS NOT NULL AND (NEW.ledger_entry_id, NEW.credited_amount_minor) IS DISTINCT FROM (OLD.ledger_entry_id, OLD.credited_amount_minor)
        OR OLD.suspense_entry_id IS NOT NULL AND NEW.suspense_entry_id IS DISTINCT FROM OLD.suspense_entry_id
        OR OLD.resolution NOT IN ('', 'refund') AND NEW.resolution IS DISTINCT FROM OLD.resolution OR OLD.resolution = 'refund' AND NEW.resolution = '' THEN
        RAISE EXCEPTION 'what was booked for payment session % cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.status <> OLD.status THEN
        IF NEW.version <= OLD.version THEN
            RAISE EXCEPTION 'a status change of payment session % must raise its version', OLD.id USING ERRCODE = 'SW001';
        END IF;
        PERFORM guard_edge('payment_session', '', OLD.status, NEW.status);
    END IF;
    RETURN NEW;
END $$;
