#!/bin/sh
# Run by the PostgreSQL image on an empty volume, and by you after an upgrade that says so: the roles and databases of Slipway and of Temporal. No login is a
# superuser. Slipway serves as slipway, a member of slipway_app, serves customers as slipway_api, a
# member of slipway_customer, and migrates as slipway_migrate, a member of slipway_owner. It may be repeated.
set -eu
slipway_password=$(cat /run/secrets/slipway_db_password)
customer_password=$(cat /run/secrets/slipway_customer_db_password)
migrate_password=$(cat /run/secrets/slipway_migrate_db_password)
temporal_password=$(cat /run/secrets/temporal_db_password)
psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres \
  --set slipway_password="$slipway_password" --set migrate_password="$migrate_password" --set customer_password="$customer_password" --set temporal_password="$temporal_password" <<'SQL'
SELECT format('CREATE ROLE %I', name) FROM (VALUES ('slipway_owner'), ('slipway_app'), ('slipway_customer'), ('slipway_read'),
    ('slipway'), ('slipway_migrate'), ('slipway_api'), ('temporal')) AS wanted (name) WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec
ALTER ROLE slipway LOGIN PASSWORD :'slipway_password';
ALTER ROLE slipway_migrate LOGIN PASSWORD :'migrate_password';
ALTER ROLE slipway_api LOGIN NOINHERIT PASSWORD :'customer_password';
ALTER ROLE temporal LOGIN PASSWORD :'temporal_password';
GRANT slipway_app TO slipway;
GRANT slipway_customer TO slipway_api;
GRANT slipway_owner TO slipway_migrate;
SELECT format('CREATE DATABASE %I OWNER %I', name, owner) FROM (VALUES ('slipway', 'slipway_owner'), ('temporal', 'temporal'), ('temporal_visibility', 'temporal'))
    AS wanted (name, owner) WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = name) \gexec
-- The migration gives to slipway_owner what a version before the roles made as slipway.
ALTER DATABASE slipway OWNER TO slipway_owner;
GRANT slipway TO slipway_migrate;
SQL
