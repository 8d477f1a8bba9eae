-- name: TakeLogSeq :one
-- The number of the next chunk of a run. The lock of the row holds until the transaction ends.
INSERT INTO run_log_heads (run_id, seq) VALUES (@run_id, 1) ON CONFLICT (run_id) DO UPDATE SET seq = run_log_heads.seq + 1 RETURNING seq;

-- name: InsertLog :execrows
-- A chunk that a worker before has stored already stays.
INSERT INTO run_logs (run_id, seq, step, attempt, stream, next, data) VALUES (@run_id, @seq, @step, @attempt, @stream, @next, @data)
ON CONFLICT ON CONSTRAINT run_logs_place_unique DO NOTHING;

-- name: LogOffsets :many
-- Where each stream of an attempt goes on.
SELECT stream, max(next)::bigint AS next FROM run_logs WHERE run_id = @run_id AND step = @step AND attempt = @attempt GROUP BY stream;

-- name: CountLog :one
-- Adds a chunk to what is stored of its step, and returns how much that is.
UPDATE run_log_heads SET bytes = jsonb_set(bytes, ARRAY[@step::text], to_jsonb(coalesce((bytes ->> @step::text)::bigint, 0) + @size::bigint))
WHERE run_id = @run_id RETURNING (bytes ->> @step::text)::bigint AS stored;

-- name: RecountLogs :one
-- Counts again how much of a step is stored.
UPDATE run_log_heads SET bytes = jsonb_set(bytes, ARRAY[@step::text],
    to_jsonb((SELECT coalesce(sum(octet_length(l.data)), 0)::bigint FROM run_logs l WHERE l.run_id = @run_id AND l.step = @step::text)))
WHERE run_log_heads.run_id = @run_id RETURNING (bytes ->> @step::text)::bigint AS stored;

-- name: TrimLogs :exec
-- Drops the oldest chunks of a step behind its first bytes, as many as are too much, and says on the oldest that stays how much was dropped before it.
-- The last chunk of each stream of the attempt stays: LogOffsets reads there where the stream goes on.
WITH placed AS (
    SELECT l.seq, l.gap, octet_length(l.data) AS size, sum(octet_length(l.data)) OVER (ORDER BY l.seq) AS upto
    FROM run_logs l WHERE l.run_id = @run_id AND l.step = @step
), late AS (
    SELECT seq, gap, size, sum(size) OVER (ORDER BY seq) - size AS before FROM placed WHERE upto > @first::bigint
), ends AS (
    SELECT DISTINCT ON (l.stream) l.seq FROM run_logs l WHERE l.run_id = @run_id AND l.step = @step AND l.attempt = @attempt ORDER BY l.stream, l.next DESC
), gone AS (
    DELETE FROM run_logs d USING late WHERE d.run_id = @run_id AND d.seq = late.seq AND late.before < @excess::bigint
        AND d.seq < (SELECT max(seq) FROM late) AND d.seq NOT IN (SELECT seq FROM ends)
    RETURNING d.seq, octet_length(d.data) + d.gap AS size
)
UPDATE run_logs u SET gap = u.gap + (SELECT sum(size) FROM gone)
WHERE u.run_id = @run_id AND u.seq = (SELECT min(seq) FROM late WHERE seq > (SELECT max(seq) FROM gone));

-- name: LogsAfter :many
SELECT * FROM run_logs WHERE run_id = @run_id AND seq > @after::bigint ORDER BY seq LIMIT @max_rows;

-- name: LogHead :one
-- The last chunk of a run, and the last one that was deleted for its age.
SELECT coalesce(max(seq), 0)::bigint AS last, coalesce(max(pruned), 0)::bigint AS pruned FROM run_log_heads WHERE run_id = @run_id;

-- name: PruneLogs :one
-- Deletes a batch of old chunks, and notes the last one of each run.
WITH gone AS (
    DELETE FROM run_logs WHERE (run_id, seq) IN (SELECT l.run_id, l.seq FROM run_logs l WHERE l.at < @before::timestamptz ORDER BY l.at LIMIT @max_rows)
    RETURNING run_id, seq
), noted AS (
    UPDATE run_log_heads h SET pruned = greatest(h.pruned, g.last) FROM (SELECT run_id, max(seq) AS last FROM gone GROUP BY run_id) g WHERE h.run_id = g.run_id
)
SELECT count(*) FROM gone;
