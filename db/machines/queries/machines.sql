-- name: InsertMachine :one
-- The machine and its creation audit row in one statement.
WITH made AS (
    INSERT INTO machines (id, project_id, status, labels, spec)
    VALUES (@id, sqlc.narg('project_id'), @status, @labels, @spec)
    RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'machine', m.id, 'transition', 'create', '', m.status, @triggered_by, @owner, @actor_id, @comment, @metadata, @workflow_id, m.version
    FROM made m
)
SELECT version FROM made;

-- name: MoveMachine :one
-- The commit point of a machine's phase: guarded update and audit row in one statement. A move to PROVISIONING sets the active run, every other one ends it.
WITH moved AS (
    UPDATE machines SET status = @to_state::text, version = version + 1, updated_at = now(),
        active_run_id = CASE WHEN @to_state::text = 'PROVISIONING' THEN sqlc.narg('active_run_id')::text END,
        phase_before = CASE WHEN @to_state::text = 'PROVISIONING' THEN @from_state::text ELSE '' END
    WHERE machines.id = @id AND machines.status = @from_state::text AND machines.version = @version
    RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, node_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'machine', m.id, m.node_id, 'transition', @name, @from_state::text, m.status, @triggered_by, @owner, @actor_id, @comment, @metadata,
        @workflow_id, m.version
    FROM moved m
)
SELECT version FROM moved;

-- name: UpdateMachine :execrows
-- A machine whose specification changes is probed soon. Changes that come one after the other do not have it probed all the time.
UPDATE machines SET labels = @labels, spec = @spec, project_id = sqlc.narg('project_id'), host_key = @host_key, bmc_id = sqlc.narg('bmc_id'), version = version + 1, updated_at = now(),
    next_probe_at = CASE WHEN spec = @spec THEN next_probe_at ELSE least(next_probe_at, now() + interval '10 seconds') END
WHERE id = @id;

-- name: SetMachineAccess :execrows
UPDATE machines SET node_id = sqlc.narg('node_id'), site_id = sqlc.narg('site_id'), host_key = @host_key, bmc_id = sqlc.narg('bmc_id'), version = version + 1, updated_at = now(),
    node_phase = CASE WHEN node_id IS NOT DISTINCT FROM sqlc.narg('node_id') THEN node_phase ELSE '' END,
    next_probe_at = least(next_probe_at, now() + interval '10 seconds')
WHERE id = @id;

-- name: UnlinkFromNode :many
-- Ends the link of the machine of a node that no project has, so that another one can be linked. How it is reached is not known any more then. The link of
-- one that joined a cluster stays until the node was proven clean: nothing else keeps the node from the next tenant.
UPDATE machines SET node_id = NULL, site_id = NULL, host_key = '', node_phase = '', conditions = '[]', version = version + 1, updated_at = now()
WHERE machines.node_id = @node_id::text AND machines.id <> @id AND project_id IS NULL AND active_run_id IS NULL
  AND NOT EXISTS (SELECT FROM machine_clusters c WHERE c.machine_id = machines.id AND c.joined_at IS NOT NULL
      AND NOT EXISTS (SELECT FROM certificates e WHERE e.node_id = @node_id::text AND e.verdict = 'clean' AND coalesce(e.sanitized_since, e.issued_at) > c.joined_at)) RETURNING machines.id;

-- name: ClaimProbes :many
-- Machines without a node whose probe is due, of those that answered last or of those that did not. Others leave them alone until the time given. A time
-- that lies further ahead than a probe sets it is of a clock that has been set back since.
UPDATE machines SET next_probe_at = now() + make_interval(secs => @every_seconds::double precision)
WHERE id = ANY (ARRAY(SELECT m.id FROM machines m
    WHERE m.node_id IS NULL AND m.status <> 'RETIRED'
        AND (m.next_probe_at <= now() OR m.next_probe_at > now() + make_interval(secs => @every_seconds::double precision))
        AND (m.conditions @> '[{"type": "Reachable", "status": false}]' OR m.conditions @> '[{"type": "BMCReachable", "status": false}]') = @silent::boolean
    ORDER BY m.next_probe_at LIMIT @max_rows FOR NO KEY UPDATE SKIP LOCKED))
RETURNING *;

-- name: SetFollowed :execrows
UPDATE machines SET conditions = @conditions, node_phase = @node_phase, version = version + 1, updated_at = now() WHERE id = @id;

-- name: LinkedMachines :many
-- One page, by id, of machines that are linked to a node, with what is known of the node; or the one that is named.
SELECT sqlc.embed(m), n.status AS node_status, d.probed_at AS bmc_probed_at, (coalesce(d.failures, 1) = 0 AND d.answered_at IS NOT NULL)::boolean AS bmc_answers,
    EXISTS (SELECT FROM drift_findings f WHERE f.node_id = n.id AND f.status = 'open' AND f.severity = 'critical')::boolean AS critical_drift,
    EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id AND j.status IN ('failed_retryable', 'failed_manual_intervention'))::boolean AS job_parked
FROM machines m JOIN nodes n ON n.id = m.node_id LEFT JOIN bmcs b ON b.node_id = n.id LEFT JOIN drift_bmcs d ON d.bmc_id = b.id
WHERE m.id > @after::text AND (@named::text = '' OR m.id = @named::text) AND m.status <> 'RETIRED'
ORDER BY m.id LIMIT @max_rows;

-- name: DeleteMACs :exec
DELETE FROM machine_macs WHERE machine_id = @machine_id;

-- name: InsertMACs :exec
INSERT INTO machine_macs (mac, machine_id) SELECT unnest(@macs::text[]), @machine_id;

-- name: MachinesWithMACs :many
SELECT DISTINCT machine_id FROM machine_macs WHERE mac = ANY (@macs::text[]) ORDER BY machine_id;

-- name: Machine :one
SELECT * FROM machines WHERE id = @id;

-- name: ShownMachine :one
-- A machine with its active run, in one statement: they are of one moment.
SELECT sqlc.embed(m), coalesce(r.id, '')::text AS run_id, coalesce(r.status, '')::text AS run_phase, coalesce(r.needs_intervention, false)::boolean AS run_waits
FROM machines m LEFT JOIN runs r ON r.id = m.active_run_id WHERE m.id = @id;

-- name: LockMachine :one
SELECT * FROM machines WHERE id = @id FOR NO KEY UPDATE;

-- name: MachineOfNode :one
SELECT * FROM machines WHERE node_id = @node_id::text;

-- name: ListMachines :many
-- One page, by id. The filter is three lists of one length: all terms must hold. The fields are those of lifecycle/listfilter; a test compares the effective
-- state with that of lifecycle.
SELECT sqlc.embed(m), coalesce(r.id, '')::text AS run_id, coalesce(r.status, '')::text AS run_phase, coalesce(r.needs_intervention, false)::boolean AS run_waits
FROM machines m LEFT JOIN runs r ON r.id = m.active_run_id
WHERE m.id > @after::text AND (@project_id::text = '' OR m.project_id = @project_id::text AND may_use_machine(m.project_id, m.node_id))
  AND NOT EXISTS (SELECT FROM (SELECT unnest(@fields::text[]) AS f, unnest(@negated::boolean[]) AS n, unnest(@wanted::text[]) AS v) t
    WHERE (CASE t.f
        WHEN 'machine_id' THEN m.id
        WHEN 'phase' THEN m.status
        WHEN 'effective_state' THEN CASE
            WHEN m.active_run_id IS NOT NULL THEN 'PROVISIONING'
            WHEN m.status IN ('RMA', 'RETIRED', 'MAINTENANCE') THEN m.status
            WHEN m.conditions @> '[{"type": "InCustomerCluster", "status": true}]'::jsonb THEN 'IN_SERVICE'
            WHEN m.status = 'FACTORY_READY' THEN m.status
            ELSE 'READY' END
        WHEN 'provider' THEN coalesce(m.spec ->> 'provider', '')
        WHEN 'customer_id' THEN coalesce(m.project_id, '')
        WHEN 'target_cluster_ref' THEN coalesce(m.spec ->> 'target_cluster_ref', '')
        ELSE CASE WHEN starts_with(t.f, 'labels.') THEN coalesce(m.labels ->> substr(t.f, 8), '')
            ELSE (m.conditions @> jsonb_build_array(jsonb_build_object('type', t.f, 'status', true))
                OR t.f = 'NeedsIntervention' AND coalesce(r.needs_intervention, false))::text END
        END = t.v) = t.n)
ORDER BY m.id LIMIT @max_rows;

-- name: MayUseMachine :one
SELECT may_use_machine(@project_id::text, sqlc.narg('node_id'))::boolean AS may;

-- name: NodeOccupant :one
SELECT coalesce(node_occupant(@node_id::text), '')::text AS id;

-- name: KeepAllocation :many
-- Has the release of an allocation wait for the transaction. One that another transaction is changing is left out.
SELECT id FROM allocations WHERE id = @id FOR SHARE SKIP LOCKED;

-- name: InsertPlan :exec
INSERT INTO plans (id, display_name, startable_by, steps, created_by) VALUES (@id, @display_name, @startable_by, @steps, @created_by);

-- name: StoreDefaultPlan :exec
-- A plan that the program brings, when it is first used.
INSERT INTO plans (id, display_name, startable_by, steps, created_by) VALUES (@id, @display_name, @startable_by, @steps, 'slipway') ON CONFLICT (id) DO NOTHING;

-- name: Plan :one
SELECT * FROM plans WHERE id = @id;

-- name: PlanSizes :many
SELECT id, size FROM plans WHERE id > @after::text AND (NOT @customers::boolean OR startable_by = 'customer') ORDER BY id LIMIT @max_rows;

-- name: Plans :many
SELECT * FROM plans WHERE id = ANY (@ids::text[]);
