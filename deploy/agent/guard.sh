#!/bin/sh
# Runs before each start of the agent's privileged half. A new version that is on
# trial and has begun too often, or for too long, without proving itself is put
# back here, since it may be too broken to do so itself. The trial file is that
# of agent/selfupdate. SLIPWAY_ROOT is set in tests only.
set -eu
dir=${SLIPWAY_ROOT:-}/opt/slipway-agent
trial=$dir/trial
most=5

[ -f "$trial" ] || exit 0
value() { sed -n "s/^$1=//p" "$trial" | head -n 1; }
[ "$(value outcome)" = trying ] || exit 0
previous=$(value previous)
case $previous in a | b) ;; *) exit 0 ;; esac
starts=$(value starts)
case $starts in '' | *[!0-9]*) starts=0 ;; esac
until=$(value until)
case $until in '' | *[!0-9]*) until=0 ;; esac
starts=$((starts + 1))

# change SED-SCRIPT writes the trial file anew, whole.
change() {
    sed "$1" "$trial" >"$trial.new"
    sync "$trial.new" 2>/dev/null || sync
    mv -f "$trial.new" "$trial"
}

if [ "$starts" -le "$most" ] && [ "$(date +%s)" -le "$until" ]; then
    change "s/^starts=.*/starts=$starts/"
    exit 0
fi
change "s/^starts=.*/starts=$starts/; s/^outcome=.*/outcome=rolled_back/; s/^detail=.*/detail=it was started $starts times and no heartbeat was accepted/"
rm -f "$dir/current.new"
ln -s "$previous" "$dir/current.new"
mv -T "$dir/current.new" "$dir/current"
echo "slipway-agent: $(value version) did not prove itself; the version before it is put back" >&2
