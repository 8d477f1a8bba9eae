#!/usr/bin/env bash
# Builds the test runner and hands over to it: `scripts/test.sh test`, `check`, or `proof AREA...`. See test/run.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "building the test runner (the first time on a machine about 2 minutes on 2 cores; each tenth package is named as it is compiled)"
if ! go build -v -o bin/testrun ./test/run 2>&1 | awk '/[ \t]/ { print; next } ++n % 10 == 0 { print "test runner | " n " packages compiled, now " $0; fflush() }'; then
  printf '\nthe test runner does not build\n0 passed, 1 failed, 0 skipped\n'
  exit 1
fi
exec bin/testrun "$@"
