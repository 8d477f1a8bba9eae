CREATE OR REPLACE VIEW agent_attention AS
-- The agent should have renewed: of its certificate's life less than a fifth is left, or nothing.
SELECT 'agent_certificate_ends'::text AS kind, ('agent_certificate_ends:' || n.id)::text AS id,
    i.renew_at::timestamptz AS since, n.site_id::text AS site_id, n.id::text AS node_id, n.hostname::text AS hostname,
    ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, n.status::text AS status, ''::text AS stage,
    ''::text AS failure_class,
    ('the agent''s certificate ' || CASE WHEN c.not_after > now() THEN 'ends at ' ELSE 'ended at ' END
        || to_char(c.not_after AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ' and was not renewed')::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM agent_identities i JOIN agent_certificates c ON c.node_id = i.node_id AND c.generation = i.generation JOIN nodes n ON n.id = i.node_id
WHERE i.locked_at IS NULL AND n.status IN ('active', 'offline', 'quarantined', 'draining', 'installed')
    AND i.renew_at < now()
UNION ALL
-- One line for all of them: it is one restore or failover that they are the sign of. Each is gone when the agent renews as usual.
SELECT 'agent_certificate_adopted', 'agent_certificate_adopted:', a.since, '', '', '', '', '', '', '', '', '', '',
    a.agents || CASE a.agents WHEN 1 THEN ' agent has a certificate' ELSE ' agents have certificates' END || ' that the database did not know: ' || a.names
        || CASE WHEN a.agents > 5 THEN ', ...' ELSE '' END, '', '', false, false
FROM (SELECT count(*) AS agents, min(i.adopted_at) AS since, array_to_string((array_agg(n.hostname ORDER BY n.hostname))[1:5], ', ') AS names
    FROM agent_identities i JOIN nodes n ON n.id = i.node_id WHERE i.adopted_at IS NOT NULL AND n.status <> 'deleted') a
WHERE a.agents > 0
UNION ALL
-- Somebody shows a certificate that is refused. It is gone a day after the last time, or when the node enrols.
SELECT 'agent_certificate_refused', 'agent_certificate_refused:' || r.node_id || ':' || r.kind, r.first_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    r.detail || '; refused ' || r.refused || CASE r.refused WHEN 1 THEN ' time' ELSE ' times' END || ', the last time from '
        || CASE r.address WHEN '' THEN 'an unknown address' ELSE r.address END, '', '', false, false
FROM agent_refusals r JOIN nodes n ON n.id = r.node_id
WHERE r.last_at > now() - interval '1 day' AND n.status <> 'deleted'
UNION ALL
-- The node is in service and its agent is silent. A MAAS node is offline then, which alone does not say so: one that reports itself unhealthy is
-- offline too. A PXE node has no such state. An agent that is locked out has a line of its own. Heartbeats are written all the time and have no index by
-- time, so they are looked up for each node.
SELECT 'agent_silent', 'agent_silent:' || n.id, h.received_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    'the node is in service and its agent was last heard ' || to_char(h.received_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
    '', '', false, false
FROM (SELECT o.* FROM nodes o WHERE o.status = 'offline'
    UNION ALL SELECT x.* FROM pxe_nodes p JOIN nodes x ON x.id = p.node_id AND x.status = 'active') n
CROSS JOIN LATERAL (SELECT b.received_at FROM heartbeats b WHERE b.node_id = n.id LIMIT 1) h
JOIN agent_identities i ON i.node_id = n.id AND i.locked_at IS NULL
WHERE h.received_at < now() - interval '10 minutes';
