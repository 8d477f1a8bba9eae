#!/usr/bin/env bash
# Checks proto/ with buf: lint, format, compatibility with the last commit and with the API as it was
# specified. It needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."
buf=bin/buf
"$buf" lint
"$buf" format --diff --exit-code
# buf takes a folder of this checkout for a part of proto/, so it gets copies.
copies=$(mktemp -d)
trap 'rm -rf "$copies"' EXIT
cp -R proto/testdata/contract "$copies/specified"
"$buf" breaking --against "$copies/specified" --config '{"version":"v2","modules":[{"path":"proto","excludes":["proto/testdata"]}],"breaking":{"use":["WIRE_JSON"]}}'
if git cat-file -e HEAD:proto/slipway 2>/dev/null; then
  mkdir "$copies/committed"
  git archive HEAD buf.yaml proto | tar -x -C "$copies/committed"
  "$buf" breaking --against "$copies/committed"
fi
echo "proto/ is well-formed and compatible"
