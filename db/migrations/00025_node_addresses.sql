-- The source of the addresses of a node, and since when it names them. The build before stores
-- addresses without either, so nothing demands them.

-- +goose Up
ALTER TABLE nodes
    ADD COLUMN ip_addresses_source text NOT NULL DEFAULT '' CHECK (ip_addresses_source IN ('', 'maas', 'agent', 'installer')),
    ADD COLUMN ip_addresses_at timestamptz;
UPDATE nodes SET ip_addresses_source = CASE lifecycle WHEN 'pxe' THEN 'installer' ELSE 'maas' END, ip_addresses_at = updated_at
WHERE cardinality(ip_addresses) > 0;
