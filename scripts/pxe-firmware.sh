#!/usr/bin/env bash
# make test-pxe: a real iPXE firmware and a real Linux kernel in QEMU boot from a Slipway. Needs Debian or Ubuntu with apt; what is missing is installed
# when this runs as root. Kernel and initrd are made once, in .test/pxe.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/.test/pxe

need() {
  command -v qemu-system-x86_64 >/dev/null && [ -e /usr/lib/ipxe/qemu/pxe-virtio.rom ] && return
  if [ "$(id -u)" != 0 ]; then
    echo "install qemu-system-x86 and ipxe-qemu first: sudo apt-get install -y --no-install-recommends qemu-system-x86 ipxe-qemu" >&2
    exit 1
  fi
  echo "installing qemu-system-x86 and ipxe-qemu"
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends qemu-system-x86 ipxe-qemu >/dev/null
}

# The installer: busybox and the drivers of QEMU's network card. It asks its seed for user-data, as cloud-init does, and runs it.
image() {
  [ -e "$out/initrd" ] && return
  rm -rf "$out" && mkdir -p "$out/deb" "$out/root/bin" "$out/root/modules"
  kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
  echo "fetching $kernel and busybox-static"
  (cd "$out/deb" && apt-get download -qq "$kernel" busybox-static 2>/dev/null && for d in *.deb; do dpkg -x "$d" x; done)
  cp "$out"/deb/x/boot/vmlinuz-* "$out/vmlinuz"
  cp "$out/deb/x/bin/busybox" "$out/root/bin/busybox"
  for m in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover net_failover virtio_net; do
    find "$out/deb/x/lib/modules" -name "$m.ko" -exec cp {} "$out/root/modules/" \;
  done
  cat > "$out/root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /etc /sbin /usr/bin /usr/sbin
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for m in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover net_failover virtio_net; do insmod /modules/$m.ko; done
ip link set eth0 up
udhcpc -i eth0 -s /dhcp -n -q
for word in $(cat /proc/cmdline); do
  case $word in ds=*) seed=${word#*;s=} ;; esac
done
echo "installer: asks its seed"
wget -q -O /user-data "${seed}user-data" && sh /user-data
echo "installer: restarts"
reboot -f
INIT
  cat > "$out/root/dhcp" <<'DHCP'
#!/bin/busybox sh
[ "$1" = bound ] && ip addr add "$ip/24" dev "$interface" && ip route add default via "$router"
DHCP
  chmod +x "$out/root/init" "$out/root/dhcp"
  (cd "$out/root" && find . | bin/busybox cpio -o -H newc 2>/dev/null | gzip -9 > "$out/initrd.new")
  mv "$out/initrd.new" "$out/initrd"
}

need
image
SLIPWAY_TEST_PXE=$out go test -count=1 -v -timeout 15m -run Firmware ./sim/pxe/...
