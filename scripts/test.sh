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

# A site of ten thousand nodes says what a pass costs (docs/drift.md). The race detector would make its handshakes a matter of many minutes, and watches the
# same test over a thousand nodes with all the others.
large_site() {
  local code=0 nodes=10000 files
  files=$(ulimit -Hn)
  if [ "$files" != unlimited ] && [ "$files" -lt 12000 ]; then
    nodes=1000
    echo "large site: this machine lets a process open $files files, and ten thousand BMCs take one each: $nodes nodes instead (raise ulimit -Hn)"
  fi
  SLIPWAY_DRIFT_NODES=$nodes TEST_RACE=no suite standard-verbose .test/large.jsonl -run LargeSite ./activities/drift || code=$?
  cat .test/large.jsonl >>"$results"
  return $code
}

# The scrub is tried on real accounts, mounts and loop disks where the machine may be lost: the tests touch only what they made, and a mistake in what they test
# would not. That is CI and containers; on a machine of one's own it takes SLIPWAY_TEST_REAL_HOST=1.
real_host() {
  local missing=() program file disk dir
  if [ -z "${SLIPWAY_TEST_REAL_HOST:-}" ] && [ "${CI:-}" != true ] && [ -z "${SLIPWAY_REQUIRE_PEERS:-}" ] && [ ! -e /.dockerenv ] && [ ! -e /run/.containerenv ] &&
    ! systemd-detect-virt --quiet --container 2>/dev/null; then
    echo "real host: the scrub is not tried on this machine's own kernel, which is no container; as root, SLIPWAY_TEST_REAL_HOST=1 make test does it"
    return
  fi
  if [ -n "${SLIPWAY_TEST_REAL_HOST:-}" ] && [ "$SLIPWAY_TEST_REAL_HOST" != 1 ]; then
    echo "real host: the scrub is not tried on this machine's own kernel, as SLIPWAY_TEST_REAL_HOST says"
    return
  fi
  [ "$(id -u)" -eq 0 ] || missing+=(root)
  for program in useradd userdel losetup blkdiscard mkfs.ext4 mount umount dpkg-query; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    file=$(mktemp) dir=$(mktemp -d)
    truncate -s 1M "$file"
    if disk=$(losetup -f --show "$file" 2>/dev/null); then losetup -d "$disk"; else missing+=("a loop disk (a kernel that gives them, and leave to use them)"); fi
    if mount -t tmpfs -o size=64k none "$dir" 2>/dev/null; then umount "$dir"; else missing+=("leave to mount"); fi
    rm -rf "$file" "$dir"
  fi
  if [ ${#missing[@]} -gt 0 ]; then
    printf 'real host: the scrub is not tried on this kernel, for lack of %s\n' "$(IFS=,; echo "${missing[*]}" | sed 's/,/, /g')"
    return
  fi
  export SLIPWAY_TEST_REAL_HOST=1
  echo "real host: the scrub is tried on accounts, mounts and loop disks that its tests make on this machine and remove"
}

suite() { # suite FORMAT RESULTS PACKAGES...: runs the tests of packages, with a line of JSON for each event in RESULTS
  local format=$1 into=$2
  shift 2
  # Linking several race binaries at a time costs gigabytes; the tests mostly wait, so they may outnumber the cores.
  local flags=(-p "${TEST_PACKAGES_AT_ONCE:-2}" -parallel "${TEST_PARALLEL:-4}" -timeout 25m)
  if [ "${TEST_RACE:-yes}" = no ]; then
    flags+=(-count=1)
  elif [ -z "${TEST_SHORT:-}" ]; then
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
[ -n "${TEST_SHORT:-}" ] || real_host
step "tests" tests
if [ -z "${TEST_SHORT:-}" ]; then
  if [ -z "${TEST_PACKAGES:-}" ]; then
    step "a site of 10,000 nodes" large_site
    step "chaos" chaos
  fi
  step "dev module" bash -c 'cd dev && GOWORK=off go vet ./...'
  step "lint" make --no-print-directory lint
  step "generated code" make --no-print-directory verify
fi
finish
