#!/bin/sh
# Installs the Slipway agent or brings an installation up to date. It may be run
# again: what is right already stays as it is. Run it as root, in the directory
# that holds it with the units and guard.sh beside it.
#
#   install.sh --binary FILE --sha256 SUM --config FILE [--token FILE] [--task-keys FILE] [--gpu-pattern FILE] [--no-wait]
#
# --gpu-pattern is the program that looks into the memory of GPUs, for nodes that
# have some. With --no-wait it does not wait until the services have started: cloud-init
# runs it in the middle of a boot.
#
# A configuration with simulated: true is that of a made-up node, whose agent
# does its tasks in one process: the privileged half is not installed then.
#
# SLIPWAY_ROOT is set in tests only: everything lies below it, and nobody is
# given anything.
set -eu
umask 022
root=${SLIPWAY_ROOT:-}
here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
user=slipway-agent
opt=$root/opt/slipway-agent
socket=/run/slipway/helper.sock
binary='' sum='' config='' token='' keys='' pattern='' block=''
units='slipway-agent-helper.socket slipway-agent-helper.service slipway-agent-metadata.socket slipway-agent.service'

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    if [ "$1" = --no-wait ]; then
        block=--no-block
        shift
        continue
    fi
    [ $# -ge 2 ] || fail "$1 needs a value"
    case $1 in
    --binary) binary=$2 ;;
    --sha256) sum=$2 ;;
    --config) config=$2 ;;
    --token) token=$2 ;;
    --task-keys) keys=$2 ;;
    --gpu-pattern) pattern=$2 ;;
    *) fail "unknown option $1; it takes --binary --sha256 --config --token --task-keys --gpu-pattern --no-wait" ;;
    esac
    shift 2
done

# All is checked before anything is changed.
[ -n "$binary" ] && [ -n "$sum" ] && [ -n "$config" ] || fail "--binary, --sha256 and --config are needed"
for f in "$binary" "$config" ${token:+"$token"} ${keys:+"$keys"} ${pattern:+"$pattern"} "$here/guard.sh" "$here/slipway-agent.service" "$here/slipway-agent-helper.service" "$here/slipway-agent-helper.socket" "$here/slipway-agent-metadata.socket"; do
    [ -f "$f" ] || fail "there is no file $f"
done
[ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "run it as root"
case $sum in *[!0-9a-f]*) fail "the sha256 must be 64 lower-case hex digits" ;; esac
[ ${#sum} -eq 64 ] || fail "the sha256 must be 64 lower-case hex digits"
is_right() { [ -f "$1" ] && [ "$(sha256sum <"$1")" = "$sum  -" ]; }
is_right "$binary" || fail "$binary does not have the sha256 that is expected"
if grep -q '^simulated: *true *$' "$config"; then
    units=slipway-agent.service
else
    grep -q "^helper_socket: *$socket *\$" "$config" || fail "the configuration must say: helper_socket: $socket"
fi
grep -q "^token_file: */var/lib/slipway-agent/" "$config" || fail "the configuration must say: token_file: /var/lib/slipway-agent/token (the agent removes it, and may write nothing else)"

own() { [ -n "$root" ] || chown "$@"; }

# put FILE PATH MODE OWNER writes PATH whole, if it is not as it should be.
put() {
    if ! cmp -s "$1" "$2"; then
        cp "$1" "$2.new"
        chmod "$3" "$2.new"
        own "$4" "$2.new"
        mv -f "$2.new" "$2"
    fi
    chmod "$3" "$2"
    own "$4" "$2"
}

if ! getent passwd "$user" >/dev/null; then
    useradd --system --user-group --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin "$user"
fi

mkdir -p "$opt/a" "$opt/b" "$root/etc/slipway" "$root/etc/systemd/system" "$root/usr/local/bin"
mkdir -p -m 0700 "$root/var/lib/slipway-agent" "$root/var/lib/slipway-agent-helper"
own "$user:$user" "$root/var/lib/slipway-agent"
own root:root "$opt" "$opt/a" "$opt/b" "$root/etc/slipway" "$root/var/lib/slipway-agent-helper"
chmod 0755 "$opt" "$opt/a" "$opt/b" "$root/etc/slipway"

if [ -f "$opt/trial" ] && grep -q '^outcome=trying$' "$opt/trial"; then
    fail "an update is on trial; try again in a few minutes"
fi
now=$(readlink "$opt/current" 2>/dev/null || echo none)
case $now in
a) next=b ;;
*) next=a ;;
esac
if ! is_right "$opt/$now/slipway-agent"; then
    put "$binary" "$opt/$next/slipway-agent" 0755 root:root
    is_right "$opt/$next/slipway-agent" || fail "the agent was not copied right"
    rm -f "$opt/current.new"
    ln -s "$next" "$opt/current.new"
    mv -T "$opt/current.new" "$opt/current"
fi
ln -sfn /opt/slipway-agent/current/slipway-agent "$root/usr/local/bin/slipway-agent"
[ -z "$pattern" ] || put "$pattern" "$root/usr/local/bin/slipway-gpu-pattern" 0755 root:root
put "$here/guard.sh" "$opt/guard" 0755 root:root
put "$config" "$root/etc/slipway/agent.yaml" 0640 "root:$user"
[ -z "$keys" ] || put "$keys" "$root/etc/slipway/task-keys.json" 0644 root:root
[ -z "$token" ] || put "$token" "$root/var/lib/slipway-agent/token" 0600 "$user:$user"
for unit in $units; do
    put "$here/$unit" "$root/etc/systemd/system/$unit" 0644 root:root
done

if [ -z "$root" ] && command -v systemd-analyze >/dev/null; then
    systemd-analyze verify /etc/systemd/system/slipway-agent.service /etc/systemd/system/slipway-agent-helper.service ||
        echo "install.sh: systemd-analyze has something to say of the units, above" >&2
fi
systemctl daemon-reload
# shellcheck disable=SC2086 # names of units, and an option or nothing
systemctl enable $units
for unit in $units; do
    # shellcheck disable=SC2086
    systemctl restart $block "$unit"
done
