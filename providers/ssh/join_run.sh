# Joins the cluster by the join file of the operation, and deletes that. What an attempt of ours has left is
# reset; files of a cluster that we did not have the machine join are left alone.
trap 'root rm -rf -- "$dir"' EXIT
trap 'exit 143' TERM INT HUP
if ! root test -s "$dir/join.yaml"; then
    echo "the join file is not there" >&2
    exit 66
fi
for file in kubelet.conf bootstrap-kubelet.conf pki/ca.crt; do
    if root test -e "$etc/$file"; then left=yes; fi
done
if [ "${left:-}" = yes ]; then
    if [ "$(root cat -- "$mark" 2>/dev/null)" != "$cluster" ]; then
        echo "$etc has the files of a cluster already" >&2
        exit 67
    fi
    root "$kubeadm" reset -f || exit 68
fi
root sh -c 'umask 077; mkdir -p -- "$(dirname -- "$0")" && printf "%s\n" "$1" >"$0"' "$mark" "$cluster" || exit 69
# No token is in the output, whatever kubeadm writes.
{
    root "$kubeadm" join --config "$dir/join.yaml"
    root sh -c 'echo "$1" >"$0/rc"' "$dir" "$?"
} 2>&1 | sed -u 's/[a-z0-9]\{6\}\.[a-z0-9]\{16\}/[secret]/g'
exit "$(root cat -- "$dir/rc")"
