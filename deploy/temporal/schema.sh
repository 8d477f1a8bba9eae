#!/bin/sh
# Brings Temporal's two databases to the schema of this version. Safe to repeat: setup-schema is only run on an empty database.
set -eu
SQL_PASSWORD=$(cat /run/secrets/temporal_db_password)
export SQL_PASSWORD
for database in temporal temporal_visibility; do
  case $database in
    temporal) schema=temporal ;;
    temporal_visibility) schema=visibility ;;
  esac
  tool() { temporal-sql-tool --plugin postgres12 --endpoint postgres --port 5432 --user temporal --database "$database" "$@"; }
  tool setup-schema --version 0.0
  tool update-schema --schema-dir "/etc/temporal/schema/postgresql/v12/$schema/versioned"
done
echo "the Temporal schema is current"
