-- name: InsertCluster :one
INSERT INTO clusters (ref, project_id, spec) VALUES (@ref, sqlc.narg('project_id'), @spec) RETURNING *;

-- name: Cluster :one
SELECT * FROM clusters WHERE ref = @ref;

-- name: ListClusters :many
SELECT * FROM clusters WHERE ref > @after::text ORDER BY ref LIMIT @max_rows;

-- name: UpdateCluster :one
UPDATE clusters SET project_id = sqlc.narg('project_id'), spec = @spec, version = version + 1, updated_at = now(), next_look_at = now()
WHERE ref = @ref AND version = @version RETURNING *;

-- name: DeleteCluster :execrows
DELETE FROM clusters WHERE ref = @ref AND version = @version;

-- name: ClaimLook :one
-- A cluster whose look is due, of those that answered last or of those that did not. Others leave it alone until the time given.
-- A time that lies further ahead than a look sets it is of a clock that has been set back since.
UPDATE clusters SET next_look_at = now() + make_interval(secs => @every_seconds::double precision)
WHERE ref = (SELECT c.ref FROM clusters c
    WHERE (c.next_look_at <= now() OR c.next_look_at > now() + make_interval(secs => @every_seconds::double precision) + interval '1 minute')
        AND (c.problem <> '') = @troubled::boolean
    ORDER BY c.next_look_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: StoreLook :exec
UPDATE clusters SET problem = @problem, looked_at = CASE WHEN @problem = '' THEN now() ELSE looked_at END WHERE ref = @ref;

-- name: InsertToken :exec
INSERT INTO cluster_tokens (cluster_ref, id, run_id, step, attempt, expires_at)
VALUES (@cluster_ref, @id, @run_id, @step, @attempt, now() + make_interval(secs => @lifetime_seconds::double precision));

-- name: TokensOfStep :many
SELECT * FROM cluster_tokens WHERE run_id = @run_id AND step = @step ORDER BY created_at;

-- name: SpentTokens :many
-- Tokens that nothing needs any more: they have expired, or their run has ended.
SELECT t.* FROM cluster_tokens t JOIN runs r ON r.id = t.run_id
WHERE t.cluster_ref = @cluster_ref AND (t.expires_at <= now() OR r.finished_at IS NOT NULL) ORDER BY t.created_at LIMIT @max_rows;

-- name: ForgetTokens :many
DELETE FROM cluster_tokens WHERE cluster_ref = @cluster_ref RETURNING id;

-- name: DeleteToken :exec
DELETE FROM cluster_tokens WHERE cluster_ref = @cluster_ref AND id = @id;

-- name: PutMember :exec
-- joined_at stays when the cluster is another one: nothing else proves that the machine may still be in the one before.
INSERT INTO machine_clusters (machine_id, cluster_ref, node_name, system_uuid) VALUES (@machine_id, @cluster_ref, @node_name, @system_uuid)
ON CONFLICT (machine_id) DO UPDATE SET cluster_ref = excluded.cluster_ref, node_name = excluded.node_name, system_uuid = excluded.system_uuid, updated_at = now();

-- name: NoteJoined :exec
UPDATE machine_clusters SET joined_at = now(), updated_at = now() WHERE machine_id = @machine_id;

-- name: IsInCluster :one
-- Whether a run had the machine join a cluster and nothing proves that it has left since: a clean certificate of its node, or, for a machine without a node,
-- the answer of the cluster that it is no node of it. A cluster that was deleted answers nothing.
SELECT EXISTS (SELECT FROM machine_clusters c JOIN machines m ON m.id = c.machine_id
WHERE c.machine_id = @machine_id AND c.joined_at IS NOT NULL AND CASE WHEN m.node_id IS NULL
    THEN c.cluster_ref IS NOT NULL AND NOT EXISTS (SELECT FROM jsonb_array_elements(m.conditions) x WHERE x ->> 'type' = 'InCustomerCluster' AND x ->> 'reason' = 'NotJoined')
    ELSE NOT EXISTS (SELECT FROM certificates e WHERE e.node_id = m.node_id AND e.verdict = 'clean' AND coalesce(e.sanitized_since, e.issued_at) > c.joined_at) END);

-- name: DeleteMember :exec
DELETE FROM machine_clusters WHERE machine_id = @machine_id;

-- name: Member :one
SELECT * FROM machine_clusters WHERE machine_id = @machine_id;

-- name: MembersOfCluster :many
SELECT c.* FROM machine_clusters c JOIN machines m ON m.id = c.machine_id
WHERE c.cluster_ref = @cluster_ref::text AND m.status <> 'RETIRED' AND c.machine_id > @after::text ORDER BY c.machine_id LIMIT @max_rows;

-- name: MachinesWithoutCluster :many
-- Machines of which a cluster that is not there any more was the last to say something.
SELECT m.id FROM machines m
WHERE m.status <> 'RETIRED' AND NOT EXISTS (SELECT FROM machine_clusters c WHERE c.machine_id = m.id AND c.cluster_ref IS NOT NULL)
    AND EXISTS (SELECT FROM jsonb_array_elements(m.conditions) x WHERE x ->> 'type' = 'InCustomerCluster' AND x ->> 'reason' <> 'Unknown')
ORDER BY m.id LIMIT @max_rows;

-- name: StaleMembers :many
-- Machines whose cluster gave no answer for so long that what it said counts no more.
SELECT c.machine_id FROM machine_clusters c JOIN clusters k ON k.ref = c.cluster_ref JOIN machines m ON m.id = c.machine_id
WHERE m.status <> 'RETIRED' AND coalesce(k.looked_at, k.created_at) < now() - make_interval(secs => @fresh_seconds::double precision)
    AND EXISTS (SELECT FROM jsonb_array_elements(m.conditions) x WHERE x ->> 'type' IN ('InCustomerCluster', 'Drained') AND x ->> 'reason' <> 'Unknown')
ORDER BY c.machine_id LIMIT @max_rows;

-- name: SetConditions :exec
UPDATE machines SET conditions = @conditions, version = version + 1, updated_at = now() WHERE id = @id;

-- name: ForgetConditions :exec
-- A machine that is in no cluster has no conditions of one: nobody would ever bring them up to date.
UPDATE machines SET conditions = coalesce((SELECT jsonb_agg(x) FROM jsonb_array_elements(conditions) x WHERE NOT (x ->> 'type' = ANY (@types::text[]))), '[]')
WHERE id = @id;
