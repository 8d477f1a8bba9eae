-- Every change of a state, of the audit log.
CREATE OR REPLACE VIEW state_transitions AS
SELECT pos, id, resource_kind, resource_id, seq, node_id, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata, workflow_id,
       version, at, prev_hash, hash
FROM audit_log WHERE kind = 'transition';
