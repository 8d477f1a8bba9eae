# Runs one command at most once on this node and keeps its result, so that a
# run repeated after a lost connection reads what the first one did.
#
#   sh -c SCRIPT slipway-op BASE ID LIMIT KILL MAX SHOW INLEN DIGEST MARK COMMAND...
#
# BASE/ID is claimed by renaming a complete folder onto it: the rename either
# makes it ours or fails because another run has it. It holds owner (pid, start
# time, boot id), digest (of the command), rc, out, err, and cut when output was
# still coming. One that was stopped before it began has never, rc, out and err. The command's output goes to files through readers that keep
# about MAX bytes, never to the connection, so losing that ends nothing.
#
# The answer is one line "MARK STATE RC OUTBYTES ERRBYTES CUT" on standard
# output, followed for STATE done by at most SHOW bytes of the kept output on both
# streams. owner.sh stands before this script.
base=$1 id=$2 limit=$3 kill=$4 max=$5 show=$6 inlen=$7 digest=$8 mark=$9
shift 9
dir=$base/$id

say() { printf '%s %s %s %s %s %s\n' "$mark" "$1" "${2:-0}" "${3:-0}" "${4:-0}" "${5:-0}"; }
size() { wc -c <"$dir/$1" 2>/dev/null || echo 0; }
uptime_s() { read -r up _ </proc/uptime; echo "${up%%.*}"; }

# stage prepares all that is needed beside the final place. Nothing has run yet,
# so a failure here is harmless.
stage() {
    mkdir -p -- "$base" && new=$(mktemp -d "$base/.new.XXXXXXXXXX") || return 1
    trap 'rm -rf -- "$new"' EXIT
    printf '%s %s %s\n' "$$" "$(started $$)" "$boot" >"$new/owner" &&
        printf '%s\n' "$digest" >"$new/digest" &&
        : >"$new/out" && : >"$new/err" && mkfifo "$new/o" "$new/e" &&
        head -c "$inlen" >"$new/in"
}

# keep NAME stores the first MAX+1 bytes or a little more and swallows the rest.
# The file size limit ends cat there; head would hold back what it has read for
# as long as the pipe is open.
keep() {
    (
        ulimit -c 0
        ulimit -f $((max / 512 + 1))
        exec cat >"$dir/$1"
    )
    cat >/dev/null
    : >"$dir/$1.end"
}

run() {
    keep out <"$dir/o" >/dev/null 2>&1 &
    keep err <"$dir/e" >/dev/null 2>&1 &
    began=$(uptime_s)
    timeout -k "$kill" "$limit" "$@" <"$dir/in" >"$dir/o" 2>"$dir/e"
    rc=$?
    # 137 at the limit is timeout's own SIGKILL.
    [ $rc -eq 137 ] && [ $(($(uptime_s) - began)) -ge "$limit" ] && rc=124
    # A background process may hold the pipes open: its output is not waited for.
    tries=0
    until [ -f "$dir/out.end" ] && [ -f "$dir/err.end" ]; do
        tries=$((tries + 1))
        if [ $tries -gt 40 ]; then : >"$dir/cut"; break; fi
        sleep 0.05
    done
    rm -f -- "$dir/in" "$dir/o" "$dir/e" "$dir/out.end" "$dir/err.end"
    echo $rc >"$dir/rc.part" && sync "$dir/rc.part" "$dir/out" "$dir/err" 2>/dev/null
    mv -- "$dir/rc.part" "$dir/rc" && sync "$dir" 2>/dev/null
}

deliver() {
    cut=0
    [ -f "$dir/cut" ] && cut=1
    say "done" "$(cat "$dir/rc")" "$(size out)" "$(size err)" $cut
    head -c "$show" "$dir/out"
    head -c "$show" "$dir/err" >&2
}

if [ ! -d "$dir" ]; then
    stage 2>/dev/null || { say nostate; exit 0; }
    # Input cut short by a lost connection must not reach the command.
    [ "$(wc -c <"$new/in")" -eq "$inlen" ] || { say noinput; exit 0; }
    sync "$new"/owner "$new"/digest "$new" 2>/dev/null
    if mv -T -- "$new" "$dir" 2>/dev/null; then
        # The claim must survive a power cut, or the command could run again.
        sync "$base" 2>/dev/null || sync
        run "$@"
    fi
    [ -d "$dir" ] || { say nostate; exit 0; }
fi

[ -f "$dir/never" ] || [ "$(cat "$dir/digest")" = "$digest" ] || { say conflict; exit 0; }
end=$(($(uptime_s) + limit))
while :; do
    alive=1
    owner_alive || alive=0
    if [ -f "$dir/rc" ]; then deliver; exit 0; fi
    # Asked in this order: an owner that was gone before no result was seen
    # cannot write one any more.
    if [ $alive -eq 0 ]; then rm -f -- "$dir/in"; say lost; exit 0; fi
    if [ "$(uptime_s)" -ge "$end" ]; then say running; exit 0; fi
    sleep 0.1
done
