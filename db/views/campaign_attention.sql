-- A campaign of the platform that has stopped at its failures waits for an operator. Those of
-- projects wait for their members.
CREATE OR REPLACE VIEW campaign_attention WITH (security_invoker = true) AS
SELECT 'campaign_stopped'::text AS kind, ('campaign_stopped:' || c.id)::text AS id, c.updated_at::timestamptz AS since,
    ''::text AS site_id, ''::text AS node_id, ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    c.status::text AS status, ''::text AS stage, ''::text AS failure_class,
    ('campaign ' || c.id || CASE WHEN c.display_name = '' THEN '' ELSE ' (' || c.display_name || ')' END || ': ' || c.message)::text AS message,
    'look at its machines; resume or cancel it'::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM run_campaigns c WHERE c.status = 'STOPPED' AND c.project_id IS NULL;
