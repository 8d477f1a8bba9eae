#!/usr/bin/env bash
# The whole check, as `make test` and CI run it: prerequisites, tests with the race detector on one shared PostgreSQL and one shared Temporal server, the dev
# module, lint, and that generated code is current. Every step runs even after one failed; the summary says which did, and the last line counts the tests.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# A machine that stood still for a second is no deadlock in a workflow: the SDK would let go of a coroutine that still runs, which is a data race.
export TEMPORAL_DEBUG=1

mkdir -p .test
results=.test/results.jsonl
: >"$results"
failed=()
began=$SECONDS

step() { # step NAME COMMAND...: says what starts and how long it took, and remembers a failure
  local name=$1 at=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  if "$@"; then
    printf '== %s: done in %ds\n' "$name" $((SECONDS - at))
  else
    printf '== %s: FAILED after %ds\n' "$name" $((SECONDS - at))
    failed+=("$name")
    return 1
  fi
}

# Chaos keeps all cores busy for minutes, which the deadlines of other tests would feel: a whole run plays it by itself, afterwards, and shows its counts.
tests() {
  # shellcheck disable=SC2206 # a list of packages, split on purpose
  local packages=(${TEST_PACKAGES:-./...})
  if [ -z "${TEST_PACKAGES:-}${TEST_SHORT:-}" ]; then
    mapfile -t packages < <(go list ./... | grep -v '/internal/e2e/chaos$')
  fi
  suite pkgname "$results" "${packages[@]}"
}

chaos() {
  local code=0
  suite standard-verbose .test/chaos.jsonl -timeout 45m ./internal/e2e/chaos || code=$?
  cat .test/chaos.jsonl >>"$results"
  return $code
}

suite() { # suite FORMAT RESULTS PACKAGES...: runs the tests of packages, with a line of JSON for each event in RESULTS
  local format=$1 into=$2
  shift 2
  # Linking several race binaries at a time costs gigabytes; the tests mostly wait, so they may outnumber the cores.
  local flags=(-p "${TEST_PACKAGES_AT_ONCE:-2}" -parallel "${TEST_PARALLEL:-4}" -timeout 25m)
  if [ -z "${TEST_SHORT:-}" ]; then
    if command -v "${CC:-gcc}" >/dev/null; then
      flags+=(-race -count=1)
    else
      echo "no C compiler: testing without the race detector (apt-get install gcc)"
    fi
  else
    flags+=(-short)
  fi
  if [ -x bin/gotestsum ]; then
    bin/testrun run -- bin/gotestsum --format "$format" --format-hide-empty-pkg --jsonfile "$into" -- "${flags[@]}" "$@"
  else
    echo "gotestsum could not be built: plain go test, its output below"
    bin/testrun run -- bash -c 'set -o pipefail; results=$1; shift; go test -json "$@" | tee "$results" |
      sed -nE "s/.*\"Action\":\"output\".*\"Output\":\"(.*)\\\\n\"\}$/\1/p"' go-test "$into" "${flags[@]}" "$@"
  fi
}

finish() {
  printf '\n'
  local counted=0
  bin/testrun count "$results" >.test/count 2>.test/count.err || counted=1
  if [ ${#failed[@]} -gt 0 ] || [ $counted -ne 0 ]; then
    cat .test/count.err
    printf 'FAILED steps: %s (%d minutes)\n' "$(IFS=,; echo "${failed[*]:-counting}")" $(((SECONDS - began + 30) / 60))
    cat .test/count
    exit 1
  fi
  printf 'everything passed (%d minutes)\n' $(((SECONDS - began + 30) / 60))
  cat .test/count
  exit 0
}

echo "make test: the first run on a machine builds a Temporal server and the tools (about 12 minutes on 2 cores); later runs reuse them"
step "test runner" go build -o bin/testrun ./internal/devstack/cmd/testrun || { printf '\n0 passed, 1 failed, 0 skipped\n'; exit 1; }
step "system packages" scripts/system-packages.sh || finish
step "gotestsum" make --no-print-directory bin/gotestsum
step "development Temporal server" bin/testrun temporal || finish
[ -n "${TEST_SHORT:-}" ] || step "Temporal CLI" make --no-print-directory bin/temporal
step "tests" tests
if [ -z "${TEST_SHORT:-}" ]; then
  if [ -z "${TEST_PACKAGES:-}" ]; then
    step "chaos" chaos
  fi
  step "dev module" bash -c 'cd dev && GOWORK=off go vet ./...'
  step "lint" make --no-print-directory lint
  step "generated code" make --no-print-directory verify
fi
finish
