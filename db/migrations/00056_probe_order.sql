-- +goose Up
-- The nodes of a site in an order by chance, which a probe of the network draws from without sorting the site.
CREATE INDEX nodes_by_chance ON nodes (site_id, md5(id)) WHERE status <> 'deleted';

-- +goose Down
DROP INDEX nodes_by_chance;
