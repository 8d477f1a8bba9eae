-- name: LockBMCsAt :many
-- The records of what answers at one address, kept as they are until the transaction ends; taken: somebody has the right to log in under it.
SELECT id, login_by, coalesce(login_by <> '' AND login_until >= now(), false)::boolean AS taken, (wrong_logins + open_logins)::integer AS tries
FROM bmcs WHERE address = ANY (@addresses::text[]) OR id = @id ORDER BY id FOR NO KEY UPDATE;

-- name: TakeBMCLogin :one
-- The row as it is once nobody else logs in; no row while another job does.
UPDATE bmcs SET login_by = @login_by, login_until = now() + make_interval(secs => @seconds::double precision)
WHERE id = @id AND (login_by = '' OR login_by = @login_by OR login_until < now()) RETURNING *;

-- name: ReleaseBMCLogin :exec
UPDATE bmcs SET login_by = '', login_until = NULL WHERE id = @id AND login_by = @login_by;

-- name: CountBMCLogin :execrows
-- Counts a try before it is made; a passed window begins the count again. Called under the lock of the address.
UPDATE bmcs SET open_logins = CASE WHEN @new_window::boolean THEN 1 ELSE open_logins + 1 END,
    wrong_logins = CASE WHEN @new_window::boolean THEN 0 ELSE wrong_logins END, login_try_at = @try_at::timestamptz
WHERE id = @id AND login_by = @login_by AND login_until > now() AND auth_blocked_at IS NULL;

-- name: BMCLoginAccepted :exec
WITH accepted AS (
    INSERT INTO bmc_accepted_logins (bmc_id, accepted_at) SELECT b.id, now() FROM bmcs b WHERE b.id = @id
    ON CONFLICT (bmc_id) DO UPDATE SET accepted_at = excluded.accepted_at)
UPDATE bmcs SET open_logins = 0 WHERE bmcs.id = @id;

-- name: BMCLoginUnsent :exec
UPDATE bmcs SET open_logins = greatest(open_logins - 1, 0) WHERE id = @id;

-- name: BMCLoginRejected :exec
UPDATE bmcs SET open_logins = greatest(open_logins - 1, 0), wrong_logins = wrong_logins + 1 WHERE id = @id;

-- name: SetBMCLockout :exec
UPDATE bmcs SET lockout_threshold = @lockout_threshold, lockout_window_s = @lockout_window_s WHERE id = @id;

-- name: OpenBMCRotation :one
SELECT * FROM bmc_rotations WHERE bmc_id = @bmc_id AND finished_at IS NULL;

-- name: LastBMCRotationOfJob :one
SELECT * FROM bmc_rotations WHERE bmc_id = @bmc_id AND job_id = @job_id ORDER BY id DESC LIMIT 1;

-- name: InsertBMCRotation :exec
INSERT INTO bmc_rotations (id, bmc_id, job_id, from_ref)
SELECT @id, b.id, @job_id, b.credential_ref FROM bmcs b WHERE b.id = @bmc_id
ON CONFLICT (bmc_id) WHERE finished_at IS NULL DO NOTHING;

-- name: AdoptBMCRotation :exec
UPDATE bmc_rotations SET job_id = @job_id WHERE id = @id AND finished_at IS NULL AND job_id <> @job_id;

-- name: SetBMCCandidate :execrows
UPDATE bmcs SET candidate_ref = @candidate_ref::text, rotation_state = 'prepared', version = version + 1, updated_at = now()
WHERE id = @id AND candidate_ref = @instead_of::text AND rotation_state IN ('', 'prepared');

-- name: SetBMCRotationTarget :exec
UPDATE bmc_rotations SET to_ref = @to_ref WHERE bmc_id = @bmc_id AND finished_at IS NULL;

-- name: MoveBMCRotation :execrows
-- What is about to be sent is recorded for good with it.
WITH sent AS (
    UPDATE bmc_rotations r SET sent_refs = array_append(r.sent_refs, @candidate_ref::text)
    WHERE r.bmc_id = @id AND r.finished_at IS NULL AND @to_state::text = 'applying' AND NOT @candidate_ref::text = ANY (r.sent_refs))
UPDATE bmcs SET rotation_state = @to_state, version = version + 1, updated_at = now()
WHERE bmcs.id = @id AND bmcs.candidate_ref = @candidate_ref AND bmcs.rotation_state = @from_state;

-- name: CommitBMCCandidate :execrows
UPDATE bmcs SET previous_ref = credential_ref, credential_ref = candidate_ref, candidate_ref = '', rotation_state = '', rotated_at = now(),
    version = version + 1, updated_at = now()
WHERE id = @id AND candidate_ref = @candidate_ref::text AND rotation_state = 'verified';

-- name: DropBMCCandidate :execrows
UPDATE bmcs SET candidate_ref = '', rotation_state = '', version = version + 1, updated_at = now()
WHERE id = @id AND candidate_ref = @candidate_ref::text AND rotation_state = 'prepared';

-- name: FinishBMCRotation :exec
UPDATE bmc_rotations SET finished_at = now(), outcome = @outcome, message = @message WHERE bmc_id = @bmc_id AND finished_at IS NULL;

-- name: ListBMCRotations :many
SELECT * FROM bmc_rotations WHERE bmc_id = @bmc_id AND (@before::text = '' OR id < @before) ORDER BY id DESC LIMIT @max_rows;

-- name: SpentBMCRotations :many
-- Rotations whose secret nobody can need any more: neither slot nor the generation before names it, and another rotation has ended since.
SELECT r.* FROM bmc_rotations r JOIN bmcs b ON b.id = r.bmc_id
WHERE r.bmc_id = @bmc_id AND r.finished_at IS NOT NULL AND r.purged_at IS NULL
  AND r.to_ref NOT IN (b.credential_ref, b.candidate_ref, b.previous_ref)
  AND (SELECT count(*) FROM bmc_rotations n WHERE n.bmc_id = r.bmc_id AND n.finished_at IS NOT NULL AND n.id > r.id) >= 1
ORDER BY r.id LIMIT 20;

-- name: MarkBMCRotationPurged :exec
UPDATE bmc_rotations SET purged_at = coalesce(purged_at, now()) WHERE id = @id;

-- name: LostLogin :one
-- The restore that may have lost the login of a BMC: the stored login is older, and the BMC has rejected it since. tried are the places whose login was tried
-- since.
SELECT r.id, ARRAY(SELECT t.source FROM bmc_recoveries t WHERE t.bmc_id = b.id AND t.restore_id = r.id)::text[] AS tried FROM bmcs b CROSS JOIN (SELECT id, began_at FROM restores ORDER BY id DESC LIMIT 1) r
WHERE b.id = @id AND b.auth_blocked_at >= r.began_at AND b.rotation_state IN ('', 'prepared')
  AND (SELECT max(v.created_at) FROM secret_versions v WHERE v.name = split_part(b.credential_ref, '@', 1)
      AND (strpos(b.credential_ref, '@') = 0 OR v.version::text = split_part(b.credential_ref, '@', 2))) < r.began_at;

-- name: BeginBMCRecovery :execrows
-- Counts the login of a recovery before it is made, unless the BMC's record has changed since the login was found. Called under the lock of the address.
WITH begun AS (
    INSERT INTO bmc_recoveries (bmc_id, restore_id, source) SELECT b.id, @restore_id, @source FROM bmcs b
    WHERE b.id = @id AND b.login_by = @login_by AND b.login_until > now() AND b.auth_blocked_at IS NOT NULL
        AND b.credential_ref = @credential_ref AND b.address = @address AND b.node_id IS NOT DISTINCT FROM sqlc.narg('node_id')
    ON CONFLICT (bmc_id, restore_id, source) DO NOTHING RETURNING bmc_id)
UPDATE bmcs SET open_logins = CASE WHEN @new_window::boolean THEN 1 ELSE open_logins + 1 END,
    wrong_logins = CASE WHEN @new_window::boolean THEN 0 ELSE wrong_logins END, login_try_at = @try_at::timestamptz
WHERE bmcs.id IN (SELECT bmc_id FROM begun);

-- name: DropBMCRecovery :exec
DELETE FROM bmc_recoveries WHERE bmc_id = @id AND restore_id = @restore_id AND source = @source AND adopted_ref = '';

-- name: AdoptBMCLogin :execrows
-- The login that the BMC took becomes its stored login, and logins are allowed again.
WITH adopted AS (
    UPDATE bmc_recoveries SET adopted_ref = @ref::text WHERE bmc_id = @id AND restore_id = @restore_id AND source = @source AND adopted_ref = '' RETURNING bmc_id)
UPDATE bmcs SET previous_ref = credential_ref, credential_ref = @ref::text, auth_blocked_at = NULL, auth_blocked_reason = '',
    version = version + 1, updated_at = now()
WHERE bmcs.id IN (SELECT bmc_id FROM adopted);
