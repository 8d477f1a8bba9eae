#!/bin/sh
# Temporal's image takes the password from the environment only; it is read from the secret here, so that it stands in no compose file.
set -eu
POSTGRES_PWD=$(cat /run/secrets/temporal_db_password)
export POSTGRES_PWD
exec /etc/temporal/entrypoint.sh
