# Tries, confirms or reverts a network configuration of netplan. It is given the verb, the operation, the
# seconds for the confirmation, the folder that stands for / ("" for / itself), how many bytes the
# configuration has (a login that broke off has sent less), and the proof of a confirmation. It answers with
# one line, "slipway-net STATE", and "slipway-net pending PROOF" to a confirmation of an applied change.
# Exit status 3 is a configuration that netplan refuses, 4 another change that is pending, 5 a machine that
# cannot arm its way back, 6 a configuration that did not arrive whole; nothing is changed then.
#
# The way back is on the machine: a timer of systemd that outlives this login, and a service that runs at
# the next boot while the file "pending" is there. Confirmation and rollback exclude each other by a lock.
#
# A confirmation counts only with the proof, which the machine makes when the change is applied. So an answer
# of the machine has travelled over the network of after the change. A request alone shows nothing: it may
# have come over the network of before and have waited.
#
# Only files of its own are flushed to disk. A bare "sync" waits for every file system, and so without end for
# one on a server that the change has cut off.
set -u
verb=$1 op=$2 wait=$3 root=$4 size=$5 proof=$6
PATH=${root:+$root/bin:}/usr/sbin:/usr/bin:/sbin:/bin
export PATH
umask 077
state=$root/var/lib/slipway/net
dir=$state/$op
plans=$root/etc/netplan
units=$root/etc/systemd/system
timer=slipway-net-rollback.timer
boot=slipway-net-boot.service

refuse() {
	code=$1
	shift
	echo "$*" >&2
	exit "$code"
}
status() {
	if [ -f "$dir/result" ]; then
		cat "$dir/result"
	elif [ "$(cat "$state/pending" 2>/dev/null)" = "$op" ]; then
		echo pending
	else
		echo unknown
	fi
}
answer() {
	echo "slipway-net $(status)"
	exit 0
}
lock() {
	exec 9>>"$state/lock" && flock -w "$1" 9 || refuse 4 "the lock of $state is held"
}
put() { # a file that is whole or not there
	cat >"$1.tmp" && sync "$1.tmp" && mv "$1.tmp" "$1" && sync "$(dirname "$1")"
}
disarm() {
	rm -f "$state/pending"
	systemctl stop "$timer" 9>&-
	systemctl disable "$boot" 9>&-
} >/dev/null 2>&1

write_programs() {
	put "$state/rollback" <<'END' || return 1
# Restores the network of before a change that nobody has confirmed. It can be run again at any moment. It
# tries as often as it is told, and holds no lock between two tries. What it cannot restore stays pending, for
# the next boot or call, and is confirmed no more.
set -u
root=$1 tries=$2
PATH=${root:+$root/bin:}/usr/sbin:/usr/bin:/sbin:/bin
export PATH
umask 077
state=$root/var/lib/slipway/net
plans=$root/etc/netplan
restore() {
	: >"$dir/restoring"
	cp -a "$dir/saved/." "$plans/" || return 1
	for file in "$plans"/*.yaml; do
		[ -e "$dir/saved/${file##*/}" ] || [ -L "$dir/saved/${file##*/}" ] || rm -f "$file"
	done
	find "$plans/." ! -type l -exec sync {} + 9>&-
	timeout 120 netplan apply 9>&- || return 1
	echo rolled_back >"$dir/result.tmp" && sync "$dir/result.tmp" && mv "$dir/result.tmp" "$dir/result" && sync "$dir"
}
first=
while :; do
	exec 9>>"$state/lock" && flock 9 || exit 1
	[ -f "$state/pending" ] || exit 0
	op=$(cat "$state/pending")
	first=${first:-$op}
	[ "$op" = "$first" ] || exit 0 # another call has ended that change, and this one is new
	dir=$state/$op
	if [ -f "$dir/result" ] || restore; then
		break
	fi
	exec 9>&-
	tries=$((tries - 1))
	[ "$tries" -gt 0 ] || exit 1
	sleep 10
done
rm -f "$state/pending"
systemctl disable slipway-net-boot.service >/dev/null 2>&1 9>&-
END
	put "$state/apply" <<'END' || return 1
# Applies the change that is pending, apart from the login that has asked for it.
set -u
root=$1 op=$2
PATH=${root:+$root/bin:}/usr/sbin:/usr/bin:/sbin:/bin
export PATH
umask 077
state=$root/var/lib/slipway/net
exec 9>>"$state/lock" && flock 9 || exit 1
[ "$(cat "$state/pending" 2>/dev/null)" = "$op" ] || exit 0
cp "$state/$op/new.yaml" "$root/etc/netplan/90-slipway.yaml.tmp" && mv "$root/etc/netplan/90-slipway.yaml.tmp" "$root/etc/netplan/90-slipway.yaml" || exit 1
sync "$root/etc/netplan/90-slipway.yaml" "$root/etc/netplan"
exec 9>&-
timeout 120 netplan apply || exit 1
sleep 10 # netplan does not wait until its backend has changed the network
cat /proc/sys/kernel/random/uuid >"$state/$op/applied.tmp" && mv "$state/$op/applied.tmp" "$state/$op/applied"
END
	put "$units/slipway-net-rollback.service" <<END || return 1
[Unit]
Description=Restore the network of before a change that nobody has confirmed
[Service]
Type=oneshot
ExecStart=/bin/sh $state/rollback "$root" 30
END
	put "$units/$timer" <<END || return 1
[Unit]
Description=Wait for the confirmation of a change of the network
[Timer]
OnActiveSec=${wait}s
AccuracySec=1s
Unit=slipway-net-rollback.service
END
	put "$units/$boot" <<END || return 1
[Unit]
Description=Restore the network of before a change that a restart has interrupted
ConditionPathExists=$state/pending
[Service]
Type=oneshot
ExecStart=/bin/sh $state/rollback "$root" 5
[Install]
WantedBy=multi-user.target
END
}

try() {
	mkdir -p "$state" "$units" "$plans" || refuse 5 "the machine cannot keep the way back in $state"
	lock 60
	[ "$(status)" = unknown ] || answer
	if [ -f "$state/pending" ]; then
		systemctl is-active --quiet "$timer" 9>&- && refuse 4 "change $(cat "$state/pending") of the network waits for its confirmation"
		# A try that was interrupted before its timer ran.
		exec 9>&-
		sh "$state/rollback" "$root" 1 || refuse 5 "an earlier change of the network cannot be taken back"
		lock 60
	fi
	rm -rf "$dir"
	mkdir -p "$dir/saved" "$dir/check/etc/netplan" || refuse 5 "the machine cannot keep the way back in $dir"
	cat >"$dir/new.yaml"
	if [ "$(wc -c <"$dir/new.yaml")" -ne "$size" ]; then
		rm -rf "$dir"
		refuse 6 "the configuration did not arrive whole; nothing was changed"
	fi
	cp -a "$plans/." "$dir/saved/" && cp -a "$plans/." "$dir/check/etc/netplan/" &&
		cp "$dir/new.yaml" "$dir/check/etc/netplan/90-slipway.yaml" || refuse 5 "the machine cannot save its network configuration"
	if ! netplan generate --root-dir "$dir/check" >"$dir/generate.log" 2>&1 9>&-; then
		head -c 2000 "$dir/generate.log" >&2
		rm -rf "$dir"
		exit 3
	fi
	find "$dir" ! -type l -exec sync {} + 9>&- || refuse 5 "the machine cannot save its network configuration"
	write_programs && systemctl daemon-reload 9>&- && systemctl enable "$boot" >/dev/null 2>&1 9>&- &&
		find "$units" -type d -exec sync {} + 9>&- &&
		echo "$op" | put "$state/pending" && systemctl restart "$timer" 9>&- && systemctl is-active --quiet "$timer" 9>&- || {
		disarm
		refuse 5 "systemd of the machine does not arm the timer that restores the network"
	}
	systemd-run --quiet --collect --unit="slipway-net-apply-$op" /bin/sh "$state/apply" "$root" "$op" >/dev/null 2>&1 9>&- || {
		disarm
		refuse 5 "systemd of the machine does not start the change of the network"
	}
	answer
}

confirm() {
	[ -d "$state" ] || answer
	lock 60
	if [ "$(status)" = pending ] && [ -s "$dir/applied" ] && ! [ -e "$dir/restoring" ]; then
		if [ "$proof" != "$(cat "$dir/applied")" ]; then
			echo "slipway-net pending $(cat "$dir/applied")"
			exit 0
		fi
		echo confirmed | put "$dir/result" || refuse 5 "the machine cannot keep the confirmation"
		disarm
	fi
	answer
}

revert() {
	mkdir -p "$state" && command -v flock >/dev/null || answer # nothing can be tried there either
	lock 150 # a rollback that runs ends first
	if [ "$(status)" = unknown ]; then # a try that comes late begins nothing
		mkdir -p "$dir" && echo rolled_back | put "$dir/result" || refuse 5 "the machine cannot keep that the change was taken back"
	fi
	[ "$(status)" = pending ] || answer
	exec 9>&-
	sh "$state/rollback" "$root" 1 || refuse 5 "the machine cannot restore its network yet"
	systemctl stop "$timer" >/dev/null 2>&1
	answer
}

"$verb"
