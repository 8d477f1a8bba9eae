-- Which node a machine was in a cluster is known on when the cluster is deleted: its node is given to nobody (claimable_nodes) until it was proven clean.

-- +goose Up
ALTER TABLE machine_clusters ALTER COLUMN cluster_ref DROP NOT NULL,
    DROP CONSTRAINT machine_clusters_cluster_ref_fkey,
    ADD CONSTRAINT machine_clusters_cluster FOREIGN KEY (cluster_ref) REFERENCES clusters (ref) ON DELETE SET NULL;

-- +goose Down
DELETE FROM machine_clusters WHERE cluster_ref IS NULL;
ALTER TABLE machine_clusters ALTER COLUMN cluster_ref SET NOT NULL,
    DROP CONSTRAINT machine_clusters_cluster,
    ADD CONSTRAINT machine_clusters_cluster_ref_fkey FOREIGN KEY (cluster_ref) REFERENCES clusters (ref) ON DELETE CASCADE;
