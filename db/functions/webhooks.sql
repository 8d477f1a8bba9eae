-- Every audit row of a project that its members may know of is an event too: no path that changes a
-- project can forget it. The event has the id of the row, and of its metadata only what every
-- member may read.
CREATE OR REPLACE FUNCTION audit_project_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    event_type text := CASE NEW.name
        WHEN 'create' THEN 'project.created' WHEN 'update' THEN 'project.updated' WHEN 'close' THEN 'project.closing' WHEN 'finish' THEN 'project.closed'
        WHEN 'delete' THEN 'project.deleted' WHEN 'invite' THEN 'invitation.created' WHEN 'revoke_invitation' THEN 'invitation.revoked'
        WHEN 'accept_invitation' THEN 'member.added' WHEN 'change_role' THEN 'member.role_changed' WHEN 'remove_member' THEN 'member.removed'
        WHEN 'put_group_role' THEN 'member.group_role_set' WHEN 'delete_group_role' THEN 'member.group_role_deleted'
        WHEN 'add_ssh_key' THEN 'key.added' WHEN 'delete_ssh_key' THEN 'key.deleted' WHEN 'create_token' THEN 'token.created'
        WHEN 'delete_token' THEN 'token.deleted' WHEN 'set_quota' THEN 'quota.set' WHEN 'delete_quota' THEN 'quota.deleted'
        WHEN 'create_webhook' THEN 'webhook.created' WHEN 'update_webhook' THEN 'webhook.updated' WHEN 'delete_webhook' THEN 'webhook.deleted'
        WHEN 'rotate_webhook_secret' THEN 'webhook.secret_rotated' END;
    shown jsonb;
BEGIN
    IF event_type IS NOT NULL THEN
        SELECT coalesce(jsonb_object_agg(m.key, m.value), '{}') INTO shown FROM jsonb_each(coalesce(NEW.metadata, '{}')) m
        WHERE m.key IN ('member', 'invitation', 'ssh_key', 'token', 'webhook', 'name', 'role', 'from', 'to', 'sku', 'max_nodes', 'fingerprint');
        INSERT INTO outbox (kind, event_project, event_id, resource_kind, resource_id, type, payload)
        VALUES ('event', NEW.resource_id, 'evt_' || split_part(NEW.id, '_', 2), 'project', NEW.resource_id, event_type, shown);
    END IF;
    RETURN NULL;
END $$;
