# Prints what a machine says before it joins a cluster, a line for each fact. It changes nothing.
boot=$0 uuid=$1 kubeadm=$2 etc=$3 mark=$4 dir=$5 op=$6
echo "boot $(cat -- "$boot" 2>/dev/null)"
echo "uuid $(root cat -- "$uuid" 2>/dev/null)"
echo "kubeadm $("$kubeadm" version -o short 2>/dev/null)"
for file in kubelet.conf bootstrap-kubelet.conf pki/ca.crt; do
    if root test -e "$etc/$file"; then echo joined; fi
done
echo "mark $(root cat -- "$mark" 2>/dev/null)"
if root test -e "$dir/join.yaml"; then echo file; fi
if test -d "$op"; then echo begun; fi
