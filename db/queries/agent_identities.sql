-- name: AdoptIdentity :execrows
-- Makes a certificate the identity that the database does not know. A later enrolment unlocks; the same one must be newer and not locked.
INSERT INTO agent_identities (node_id, generation, enrolled_from, adopted_at) VALUES (@node_id, @generation, @enrolled_from, now())
ON CONFLICT (node_id) DO UPDATE SET generation = excluded.generation, updated_at = now(), adopted_at = now(),
    adopted_from = CASE WHEN agent_identities.adopted_at IS NULL THEN agent_identities.generation ELSE agent_identities.adopted_from END,
    enrolled_from = CASE WHEN @reenrolled::boolean THEN excluded.enrolled_from ELSE agent_identities.enrolled_from END,
    locked_at = CASE WHEN @reenrolled::boolean THEN NULL ELSE agent_identities.locked_at END,
    locked_reason = CASE WHEN @reenrolled::boolean THEN '' ELSE agent_identities.locked_reason END,
    ended_enrolment = CASE WHEN @reenrolled::boolean THEN greatest(agent_identities.ended_enrolment, @former_enrolment::bigint) ELSE agent_identities.ended_enrolment END,
    ended_generation = CASE WHEN @reenrolled::boolean THEN agent_identities.generation ELSE agent_identities.ended_generation END,
    replaced = agent_identities.replaced AND NOT @reenrolled::boolean
WHERE @reenrolled::boolean OR (agent_identities.generation < excluded.generation AND agent_identities.locked_at IS NULL);

-- name: PutAgentCertificate :exec
-- The row of this generation, which may be of a certificate that was issued in place of the one that the database forgot.
INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after, enrolment)
VALUES (@node_id, @generation, @serial, @key_hash, @cert_pem, @not_before, @not_after, @enrolment)
ON CONFLICT (node_id, generation) DO UPDATE SET serial = excluded.serial, key_hash = excluded.key_hash, cert_pem = excluded.cert_pem,
    not_before = excluded.not_before, not_after = excluded.not_after, enrolment = excluded.enrolment, issued_at = now();

-- name: DropLaterCertificates :exec
DELETE FROM agent_certificates WHERE node_id = @node_id AND generation > @generation;

-- name: RevokeTokensIssuedBefore :exec
-- Tokens that were there when a certificate was issued: one of them was traded for it.
UPDATE enrollment_tokens SET revoked_at = now() WHERE node_id = @node_id AND revoked_at IS NULL AND created_at <= @before;

-- name: EndIdentity :exec
-- One that is locked already keeps its reason. Every certificate of it and of the enrolments before it is denied from now on.
UPDATE agent_identities i SET locked_at = coalesce(i.locked_at, now()), locked_reason = CASE WHEN i.locked_at IS NULL THEN @reason ELSE i.locked_reason END,
    replaced = i.replaced OR i.locked_at IS NULL, ended_enrolment = greatest(i.ended_enrolment, c.enrolment), ended_generation = i.generation, updated_at = now()
FROM agent_certificates c WHERE i.node_id = @node_id AND c.node_id = i.node_id AND c.generation = i.generation;

-- name: LockAllIdentities :execrows
-- One that is locked already keeps its reason.
UPDATE agent_identities SET locked_at = now(), locked_reason = @reason, updated_at = now() WHERE locked_at IS NULL;

-- name: PruneSupersededCertificates :execrows
-- Certificates that have ended and are not their node's newest. One that an enrolment token was exchanged for stays while the token counts, since a repeated
-- enrolment gets it again.
DELETE FROM agent_certificates WHERE ctid = ANY (ARRAY(
    SELECT c.ctid FROM agent_certificates c JOIN agent_identities i ON i.node_id = c.node_id
    WHERE c.generation < i.generation AND c.not_after < now() AND NOT EXISTS (
        SELECT FROM enrollment_tokens t WHERE t.node_id = c.node_id AND t.used_generation = c.generation AND t.revoked_at IS NULL)
    LIMIT @max_rows FOR UPDATE OF c SKIP LOCKED));

-- name: RecordRefusal :one
-- tell says whether the audit log has not named it for an hour.
INSERT INTO agent_refusals (node_id, kind, detail, address) VALUES (@node_id, @kind, @detail, @address)
ON CONFLICT (node_id, kind) DO UPDATE SET refused = agent_refusals.refused + 1, last_at = now(), detail = excluded.detail, address = excluded.address,
    first_at = CASE WHEN agent_refusals.last_at < now() - interval '1 day' THEN now() ELSE agent_refusals.first_at END,
    told_at = CASE WHEN agent_refusals.told_at < now() - interval '1 hour' THEN now() ELSE agent_refusals.told_at END
RETURNING (told_at = now())::boolean AS tell;

-- name: ForgetRefusals :exec
DELETE FROM agent_refusals WHERE node_id = @node_id;

-- name: PruneRefusals :execrows
DELETE FROM agent_refusals WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM agent_refusals r WHERE r.last_at < now() - interval '30 days' LIMIT @max_rows FOR UPDATE SKIP LOCKED));

-- name: CountCertificates :one
-- Certificates of agents that should be heard: whose end is near, and whose end has passed.
SELECT count(*) FILTER (WHERE c.not_after > now()) AS ending, count(*) FILTER (WHERE c.not_after <= now()) AS ended
FROM agent_attention a JOIN agent_identities i ON i.node_id = a.node_id JOIN agent_certificates c ON c.node_id = i.node_id AND c.generation = i.generation
WHERE a.kind = 'agent_certificate_ends';

-- name: AnyAgentEnrolled :one
SELECT EXISTS (SELECT FROM agent_certificates WHERE not_after > now() - make_interval(secs => @grace_seconds::double precision));
