#!/usr/bin/env bash
# Builds the test runner and hands over to it: `scripts/test.sh test`, or `scripts/test.sh proof AREA...`. See test/run.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "building the test runner (the first time on a machine about 1 minute on 2 cores)"
if ! go build -o bin/testrun ./test/run; then
  printf '\nthe test runner does not build\n0 passed, 1 failed, 0 skipped\n'
  exit 1
fi
exec bin/testrun "$@"
