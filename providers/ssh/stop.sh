# Ends the command of an operation: timeout(1) gets SIGTERM, passes it on, and
# follows it with SIGKILL. It waits until the result is there. An operation that
# has not begun gets that result here: a worker that hung may send it later.
#
#   sh -c SCRIPT slipway-stop BASE ID MARK
#
# The answer is one line "MARK STATE": absent, ended, lost or nostate. owner.sh stands
# before this script.
base=$1 id=$2 mark=$3
dir=$base/$id
if [ ! -d "$dir" ]; then
    # Where no folder can be made, no operation can begin either.
    mkdir -p -- "$base" && new=$(mktemp -d "$base/.new.XXXXXXXXXX") || { echo "$mark absent"; exit 0; }
    trap 'rm -rf -- "$new"' EXIT
    : >"$new/never" && : >"$new/out" && : >"$new/err" && echo 143 >"$new/rc" && sync "$new"/* "$new" 2>/dev/null
    if mv -T -- "$new" "$dir" 2>/dev/null; then
        sync "$base" 2>/dev/null || sync
        echo "$mark absent"
        exit 0
    fi
    [ -d "$dir" ] || { echo "$mark nostate"; exit 0; }
fi
sent=
while [ ! -f "$dir/rc" ]; do
    # What an owner that has just ended left is there.
    owner_alive || { [ -f "$dir/rc" ] && break; echo "$mark lost"; exit 0; }
    for child in $(cat "/proc/$pid/task/$pid/children"); do
        if [ "$child" != "$sent" ] && [ "$(cat "/proc/$child/comm" 2>/dev/null)" = timeout ]; then
            kill -TERM "$child" && sent=$child
        fi
    done
    sleep 0.1
done
echo "$mark ended"
