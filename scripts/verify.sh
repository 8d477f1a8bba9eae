#!/usr/bin/env bash
# Fails when `make generate` would change a file: generated code is committed, and must be what its sources say. Works on a tree with uncommitted changes too.
set -euo pipefail
cd "$(dirname "$0")/.."
picture() { git ls-files -z --cached --others --exclude-standard | sort -z | xargs -0 -r sha256sum 2>/dev/null || true; }
before=$(mktemp) after=$(mktemp)
trap 'rm -f "$before" "$after"' EXIT
picture >"$before"
make --no-print-directory generate
picture >"$after"
if ! diff -q "$before" "$after" >/dev/null; then
  echo "these files were not current; they are now, so look at them and commit them:"
  diff "$before" "$after" | sed -nE 's/^[<>] [0-9a-f]{64}  /  /p' | sort -u
  exit 1
fi
echo "generated code is current"
