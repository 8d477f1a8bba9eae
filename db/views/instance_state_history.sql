-- Who moved an instance, from where to where, and why.
CREATE OR REPLACE VIEW instance_state_history AS
SELECT pos, resource_id AS instance_id, from_state AS from_status, to_state AS to_status, name, comment AS reason, at AS created_at
FROM audit_log WHERE resource_kind = 'instance' AND kind = 'transition';
