-- name: NodeDrives :one
SELECT * FROM node_drives WHERE node_id = @node_id;

-- name: RecordDrives :exec
INSERT INTO node_drives (node_id, drives, source) VALUES (@node_id, @drives, @source)
ON CONFLICT (node_id) DO UPDATE SET drives = excluded.drives, source = excluded.source, recorded_at = now();

-- name: FreezeDrives :exec
-- A record that is there stays.
INSERT INTO node_drives (node_id, drives, source) VALUES (@node_id, @drives, @source) ON CONFLICT (node_id) DO NOTHING;

-- name: ForgetDrives :exec
DELETE FROM node_drives WHERE node_id = @node_id;
