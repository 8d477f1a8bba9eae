#!/bin/sh
# Makes the passwords that docker-compose.yaml mounts, once: what is there is never overwritten. The key that seals stored credentials is not among them:
# Slipway makes it in its volume when it first starts (docs/run/backup.md).
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
chmod 700 secrets # the folder keeps others out; the files stay readable, because containers read them as users of their own

random() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }
put() { # put NAME VALUE
  [ -s "secrets/$1" ] && return
  printf '%s' "$2" >"secrets/$1.new"
  chmod 644 "secrets/$1.new"
  mv "secrets/$1.new" "secrets/$1"
  echo "made deploy/secrets/$1"
}
put postgres_password "$(random)"
put slipway_db_password "$(random)"
put slipway_migrate_db_password "$(random)"
put slipway_customer_db_password "$(random)"
put temporal_db_password "$(random)"
put temporal_ui_password "$(random)"
put database_url "postgres://slipway:$(cat secrets/slipway_db_password)@postgres:5432/slipway?sslmode=disable"
put database_customer_url "postgres://slipway_api:$(cat secrets/slipway_customer_db_password)@postgres:5432/slipway?sslmode=disable"
put database_owner_url "postgres://slipway_migrate:$(cat secrets/slipway_migrate_db_password)@postgres:5432/slipway?sslmode=disable"
