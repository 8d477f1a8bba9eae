#!/bin/sh
# Asks for a login before the Temporal Web UI. Caddy wants a hash of the password; it is made from the secret at each start.
set -eu
TEMPORAL_UI_HASH=$({ cat /run/secrets/temporal_ui_password; echo; } | caddy hash-password)
export TEMPORAL_UI_HASH
exec caddy run --config /deploy/Caddyfile --adapter caddyfile
