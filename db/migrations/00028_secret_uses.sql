-- What a secret may be used for, and the networks of a site's BMCs.

-- +goose Up
CREATE TABLE secret_uses (
    name       text PRIMARY KEY CHECK (name <> ''),
    use        jsonb NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- The host of a BMC's address as a network of one address; null for a name.
-- +goose StatementBegin
CREATE FUNCTION slipway_host_network(address text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    host text := regexp_replace(regexp_replace(address, '^[a-z]+://', ''), '/.*$', '');
BEGIN
    host := CASE WHEN host LIKE '[%' THEN substring(host FROM '^\[([^]]*)\]') WHEN host LIKE '%:%:%' THEN host ELSE split_part(host, ':', 1) END;
    RETURN host(host::inet) || CASE WHEN family(host::inet) = 4 THEN '/32' ELSE '/128' END;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- The use of what is stored follows from who refers to it. A secret that nobody refers to, or that two kinds of things
-- do, gets none: it cannot be used until an administrator states its use.
INSERT INTO secret_uses (name, use)
SELECT name, jsonb_strip_nulls(jsonb_build_object('kind', min(kind), 'sites', jsonb_agg(DISTINCT site) FILTER (WHERE site <> ''),
    'networks', jsonb_agg(DISTINCT network) FILTER (WHERE network <> '')))
FROM (
    SELECT split_part(r.ref, '@', 1) AS name, 'bmc_login' AS kind, n.site_id AS site,
        CASE WHEN coalesce(n.site_id, '') = '' THEN slipway_host_network(b.address) END AS network
    FROM bmcs b LEFT JOIN nodes n ON n.id = b.node_id
    CROSS JOIN LATERAL (VALUES (b.credential_ref), (b.candidate_ref), (b.previous_ref)) AS r (ref)
    UNION ALL
    SELECT split_part(spec ->> 'maas_api_key_ref', '@', 1), 'maas_key', id, NULL FROM sites
    UNION ALL
    SELECT split_part(spec ->> 'ssh_key_ref', '@', 1), 'ssh_key', id, NULL FROM sites
    UNION ALL
    SELECT split_part(spec ->> 'site_bootstrap_bundle_ref', '@', 1), 'bootstrap_bundle', site_id, NULL FROM profiles
) AS referred
WHERE name <> '' AND EXISTS (SELECT 1 FROM secret_versions v WHERE v.name = referred.name)
GROUP BY name
HAVING count(DISTINCT kind) = 1 AND (bool_or(site <> '') OR bool_or(network <> ''));

-- The BMCs that a site has go on working; other addresses wait for an administrator who names the site's networks. A
-- simulated site has its BMCs on loopback. A region that is reached over plain HTTP stays reachable.
UPDATE sites SET spec = spec
    || CASE WHEN found.networks IS NULL THEN '{}' ELSE jsonb_build_object('bmc_networks', found.networks) END
    || CASE WHEN spec ->> 'maas_url' ILIKE 'http://%' AND NOT coalesce((spec ->> 'simulated')::boolean, false) THEN '{"maas_plain_http": true}'::jsonb ELSE '{}' END,
    version = version + 1, updated_at = now()
FROM (
    SELECT s.id, CASE WHEN coalesce((s.spec ->> 'simulated')::boolean, false) THEN '["127.0.0.0/8"]'::jsonb
        ELSE (SELECT jsonb_agg(DISTINCT slipway_host_network(b.address)) FROM bmcs b JOIN nodes n ON n.id = b.node_id
            WHERE n.site_id = s.id AND slipway_host_network(b.address) IS NOT NULL) END AS networks
    FROM sites s
) AS found
WHERE found.id = sites.id;

DROP FUNCTION slipway_host_network(text);

-- +goose Down
DROP TABLE secret_uses;
UPDATE sites SET spec = spec - 'bmc_networks' - 'maas_plain_http';
