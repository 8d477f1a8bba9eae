CREATE OR REPLACE VIEW event_attention AS
-- One line for all of them: they are relayed in their order, so what holds one up holds up the rest.
SELECT 'event_not_sent'::text AS kind, 'event_not_sent:'::text AS id, e.since::timestamptz AS since, ''::text AS site_id, ''::text AS node_id,
    ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, ''::text AS status, ''::text AS stage,
    ''::text AS failure_class, (e.waiting || CASE e.waiting WHEN 1 THEN ' event is' ELSE ' events are' END || ' not relayed')::text AS message, ''::text AS next_step, ''::text AS recommended_action,
    false AS waiting_outside, false AS workflow_gone
FROM (SELECT count(*) AS waiting, min(o.created_at) AS since FROM outbox o
      WHERE o.kind = 'event' AND o.done_at IS NULL AND o.created_at < now() - interval '60 seconds') e
WHERE e.waiting > 0;
