#!/bin/sh
# Run once by the PostgreSQL image on an empty volume: one role and its databases for Slipway, one for Temporal. Neither is a superuser.
set -eu
slipway_password=$(cat /run/secrets/slipway_db_password)
temporal_password=$(cat /run/secrets/temporal_db_password)
psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres \
  --set slipway_password="$slipway_password" --set temporal_password="$temporal_password" <<'SQL'
CREATE ROLE slipway LOGIN PASSWORD :'slipway_password';
CREATE DATABASE slipway OWNER slipway;
CREATE ROLE temporal LOGIN PASSWORD :'temporal_password';
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
SQL
