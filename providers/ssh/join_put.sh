# Writes the join file of an operation from standard input: as root alone, in memory alone, and whole.
dir=$0 length=$1
root sh -c 'umask 077; mkdir -p -- "$0"' "$dir" || exit 71
case $(root stat -f -c %T -- "$dir") in
tmpfs | ramfs) ;;
*)
    root rmdir -- "$dir"
    exit 72
    ;;
esac
root sh -c 'umask 077; cat >"$0.part" && [ "$(wc -c <"$0.part")" -eq "$1" ] && mv -- "$0.part" "$0"' "$dir/join.yaml" "$length" || exit 73
