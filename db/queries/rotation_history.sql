-- name: BMCRotationsOfJobs :many
-- The last rotation that each of the jobs began or took over.
SELECT DISTINCT ON (job_id) * FROM bmc_rotations WHERE bmc_id = @bmc_id AND job_id = ANY (@job_ids::text[]) ORDER BY job_id, id DESC;
