-- What gave way to newer entries of a BMC's log is known by itself: the clock of a BMC may be years off and jump, so that a time tells nothing.

-- +goose Up
ALTER TABLE bmc_log_reads DROP COLUMN floors,
    ADD COLUMN gone bytea NOT NULL DEFAULT '' CHECK (octet_length(gone) <= 65536), -- the first 8 bytes of the digests of entries that gave way last
    ADD COLUMN cursors jsonb NOT NULL DEFAULT '{}' CHECK (octet_length(cursors::text) <= 4096); -- where a log is read on, by its service

-- A machine says its system UUID itself. One that lies is in the way within its own cluster and in no other customer's.
ALTER TABLE machine_clusters DROP CONSTRAINT machine_clusters_uuid_unique, ADD CONSTRAINT machine_clusters_uuid_unique UNIQUE (cluster_ref, system_uuid);

-- +goose Down
DELETE FROM machine_clusters m USING machine_clusters o WHERE o.system_uuid = m.system_uuid AND o.machine_id < m.machine_id;
ALTER TABLE machine_clusters DROP CONSTRAINT machine_clusters_uuid_unique, ADD CONSTRAINT machine_clusters_uuid_unique UNIQUE (system_uuid);
ALTER TABLE bmc_log_reads DROP COLUMN gone, DROP COLUMN cursors, ADD COLUMN floors jsonb NOT NULL DEFAULT '{}';
