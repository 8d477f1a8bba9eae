# Ends the command of an operation: timeout(1) gets SIGTERM, passes it on, and
# follows it with SIGKILL. It waits until the result is there.
#
#   sh -c SCRIPT slipway-stop BASE ID MARK
#
# The answer is one line "MARK STATE": absent, ended or lost. owner.sh stands before
# this script.
base=$1 id=$2 mark=$3
dir=$base/$id
[ -d "$dir" ] || { echo "$mark absent"; exit 0; }
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
