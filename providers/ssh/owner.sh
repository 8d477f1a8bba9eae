# What op.sh and follow.sh share: whether the process that runs an operation lives.
# They set dir to the folder of the operation.
set -u
umask 077
boot=$(cat /proc/sys/kernel/random/boot_id)

# started PID prints the start time of a living process; with the pid it names
# one process for as long as the node is up.
started() {
    read -r line 2>/dev/null <"/proc/$1/stat" || return 1
    set -- ${line##*) }
    [ "$1" != Z ] && echo "${20}"
}

owner_alive() {
    read -r pid start at <"$dir/owner" &&
        [ "$at" = "$boot" ] && [ "$(started "$pid" 2>/dev/null)" = "$start" ]
}
