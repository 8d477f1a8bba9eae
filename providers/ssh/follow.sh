# Sends the output of an operation while it runs: what op.sh keeps of standard
# output on standard output, and the same for standard error. It ends when the
# operation has ended and everything is sent.
#
#   sh -c SCRIPT slipway-follow BASE ID MAX DIGEST MARK OUTOFFSET ERROFFSET
#
# Both streams begin with a line MARK, since a login script may write before it.
# It reads files and stops nothing, so it may be ended and repeated at any time.
# Its reader holds standard input open. Without a reader it ends: else each lost
# connection would leave one that polls for as long as the operation may take.
# owner.sh stands before this script.
base=$1 id=$2 max=$3 digest=$4 mark=$5 out=$6 err=$7
dir=$base/$id

# send NAME OFFSET sends what was kept since the offset, and sets sent to the new one.
send() {
    sent=$(wc -c <"$dir/$1") || exit 1
    [ "$sent" -gt "$max" ] && sent=$max
    if [ "$sent" -gt "$2" ]; then
        tail -c "+$(($2 + 1))" "$dir/$1" | head -c "$((sent - $2))" || exit 1
    else
        sent=$2
    fi
}

exec 3<&0
{
    cat <&3
    kill $$
} >/dev/null 2>&1 &
watch=$!
exec 3<&-
trap 'kill $watch 2>/dev/null' EXIT

echo "$mark"
echo "$mark" >&2
until [ -d "$dir" ]; do sleep 0.1; done
[ -f "$dir/never" ] || [ "$(cat "$dir/digest")" = "$digest" ] || exit 1
while :; do
    ended=1
    # Asked before the output is read: what an ended operation wrote is complete.
    if [ ! -f "$dir/rc" ] && owner_alive; then ended=0; fi
    send out "$out"; out=$sent
    send err "$err" >&2; err=$sent
    [ $ended -eq 1 ] && exit 0
    sleep 0.2
done
