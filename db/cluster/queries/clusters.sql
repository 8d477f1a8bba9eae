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
-- A cluster whose look is due. Others leave it alone until the time given.
UPDATE clusters SET next_look_at = now() + make_interval(secs => @every_seconds::double precision)
WHERE ref = (SELECT c.ref FROM clusters c WHERE c.next_look_at <= now() ORDER BY c.next_look_at LIMIT 1 FOR UPDATE SKIP LOCKED)
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

-- name: DeleteToken :exec
DELETE FROM cluster_tokens WHERE cluster_ref = @cluster_ref AND id = @id;

-- name: PutMember :exec
INSERT INTO machine_clusters (machine_id, cluster_ref, node_name, system_uuid) VALUES (@machine_id, @cluster_ref, @node_name, @system_uuid)
ON CONFLICT (machine_id) DO UPDATE SET cluster_ref = excluded.cluster_ref, node_name = excluded.node_name, system_uuid = excluded.system_uuid,
    joined_at = CASE WHEN machine_clusters.cluster_ref = excluded.cluster_ref THEN machine_clusters.joined_at END, updated_at = now();

-- name: NoteJoined :exec
UPDATE machine_clusters SET joined_at = now(), updated_at = now() WHERE machine_id = @machine_id;

-- name: Member :one
SELECT * FROM machine_clusters WHERE machine_id = @machine_id;

-- name: MembersOfCluster :many
SELECT c.* FROM machine_clusters c JOIN machines m ON m.id = c.machine_id
WHERE c.cluster_ref = @cluster_ref AND m.status <> 'RETIRED' AND c.machine_id > @after::text ORDER BY c.machine_id LIMIT @max_rows;

-- name: MachinesWithoutCluster :many
-- Machines of which a cluster that is not there any more was the last to say something.
SELECT m.id FROM machines m
WHERE m.status <> 'RETIRED' AND NOT EXISTS (SELECT FROM machine_clusters c WHERE c.machine_id = m.id)
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
