#!/usr/bin/env bash
# Runs a command on real RDMA drivers on a machine without RDMA: boots Debian's own kernel with Soft-RoCE in QEMU, shows
# it this machine's file system (what is written there is lost, but for --share), makes two devices, runs the command as
# root in the current directory with this environment, and exits with its exit status. Needs no KVM.
#
# usage: scripts/verbs-vm.sh [--kernel 6.1|6.12] [--seconds N] [--memory MIB] [--share DIR] [--] COMMAND...
#        scripts/verbs-vm.sh --install [--kernel 6.1|6.12]      packages by name, and the kernel
#   --kernel   Debian's kernel of this series (default 6.1)
#   --seconds  limit for boot and command together (default 300); exit status 124 when it is over
#   --share    a folder that the command may write to, as the same path
#
# In the guest rxe0 is on ep0 (10.77.0.1) and rxe1 on ep1 (10.77.0.2), the two ends of one wire; RECLANE_VM=1. Both
# outputs of the command come as standard output. Exit status 125: the machine could not be had, and why.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/lib/setup.sh
. "$root/scripts/lib/setup.sh"

cache=${RECLANE_VM_CACHE:-${CARGO_TARGET_DIR:-$root/target}/verbs-vm}
# In this order; what they depend on comes by itself.
modules=(virtio_pci virtio_console 9p 9pnet_virtio overlay veth crc32_generic crc32c_generic rdma_rxe ib_uverbs)
series=6.1 seconds=300 memory=2048 install=no shares=()

usage() { sed -n '6,14s/^# \{0,1\}//p' "$0"; }
cannot() { fail "verbs-vm: $*"; exit 125; }

while [ $# -gt 0 ]; do
    case $1 in
        --kernel | --seconds | --memory | --share)
            [ $# -ge 2 ] || { usage >&2; exit 2; }
            case $1 in
                --kernel) series=$2 ;;
                --seconds) seconds=$2 ;;
                --memory) memory=$2 ;;
                --share) shares+=("$(cd "$2" && pwd)") || exit 2 ;;
            esac
            shift 2
            ;;
        --install) install=yes; shift ;;
        -h | --help) usage; exit 0 ;;
        --) shift; break ;;
        -*) usage >&2; exit 2 ;;
        *) break ;;
    esac
done
case $series in
    6.1) meta=linux-image-amd64 ;;
    6.12) meta=linux-image-6.12-amd64 ;;
    *) usage >&2; exit 2 ;;
esac
kernel=$cache/$series

# The guest's first program: modules, this machine's files below a layer in memory, then the second program.
write_init() {
    cat >"$1" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc none /proc
$b mount -t sysfs none /sys
$b mount -t devtmpfs none /dev
give_up() { echo "guest: $1"; $b sleep 1; $b poweroff -f; }
while read -r module; do $b insmod "/modules/$module" || echo "guest: insmod $module failed"; done </modules/order
options=trans=virtio,version=9p2000.L,msize=262144
$b mkdir /below /layer /all /control
$b mount -t 9p -o $options,cache=loose,ro all /below || give_up "the file system does not come"
$b mount -t tmpfs -o mode=755,size=90% none /layer
$b mkdir /layer/upper /layer/work
$b mount -t overlay -o lowerdir=/below,upperdir=/layer/upper,workdir=/layer/work none /all || give_up "no overlay"
$b mount -t tmpfs -o mode=755 none /all/run
$b mkdir -p /all/run/control /dev/shm /dev/pts
$b mount -t 9p -o $options,cache=none control /all/run/control || give_up "the control folder does not come"
$b mount -t tmpfs -o mode=1777 none /dev/shm
$b mount -t devpts none /dev/pts
$b ln -sf /proc/self/fd /dev/fd
for at in proc sys dev; do $b mount --move /$at /all/$at; done
exec $b switch_root /all /bin/bash /run/control/second
INIT
    chmod 755 "$1"
}

# fetch_kernel: unpacks the kernel package of the series, keeps the kernel and an initial file system with the modules.
fetch_kernel() {
    local package version scratch
    package=$(apt-cache depends "$meta" 2>/dev/null | awk '/Depends: linux-image-/ { print $2; exit }')
    [ -n "$package" ] || { apt_refresh; package=$(apt-cache depends "$meta" 2>/dev/null | awk '/Depends: linux-image-/ { print $2; exit }'); }
    [ -n "$package" ] || cannot "apt knows no package $meta, so there is no kernel $series"
    version=${package#linux-image-}
    step "fetching the kernel $version"
    mkdir -p "$cache" && scratch=$(mktemp -d "$cache/new.XXXXXX") || cannot "$cache cannot be written"
    chmod 755 "$scratch"
    (cd "$scratch" && apt-get -q download "$package" >apt.log 2>&1) || cannot "apt-get download $package failed: $(tail -n 1 "$scratch/apt.log")"
    mkdir "$scratch/tree" "$scratch/initial"
    dpkg-deb --fsys-tarfile "$scratch"/*.deb | tar -x -C "$scratch/tree" --exclude='*/sound' --exclude='*/drivers/gpu' \
        --exclude='*/drivers/media' --exclude='*/share/doc' || cannot "the kernel package does not unpack"
    [ -d "$scratch/tree/lib/modules" ] || { mkdir -p "$scratch/tree/lib" && mv "$scratch/tree/usr/lib/modules" "$scratch/tree/lib/"; }
    depmod -b "$scratch/tree" "$version" || cannot "depmod failed"
    mkdir -p "$scratch/initial"/{bin,modules,proc,sys,dev}
    cp "$(command -v busybox)" "$scratch/initial/bin/busybox"
    pack_modules "$scratch" "$version"
    write_init "$scratch/initial/init"
    (cd "$scratch/initial" && find . | cpio -o -H newc --quiet -R 0:0) >"$scratch/initrd" || cannot "the initial file system cannot be packed"
    mkdir -p "$kernel"
    cp "$scratch/tree/boot/vmlinuz-$version" "$kernel/vmlinuz" && mv "$scratch/initrd" "$kernel/initrd" && echo "$version" >"$kernel/version"
    rm -rf "$scratch"
    ok "kernel $version in $kernel"
}

pack_modules() {
    local scratch=$1 version=$2 name path file
    for name in "${modules[@]}"; do
        while read -r _ path _; do
            file=$(basename "$path")
            file=${file%.xz}
            file=${file%.zst}
            [ ! -e "$scratch/initial/modules/$file" ] || continue
            case $path in
                *.xz) xz -dc "$path" ;;
                *.zst) zstd -qdc "$path" ;;
                *) cat "$path" ;;
            esac >"$scratch/initial/modules/$file"
            echo "$file" >>"$scratch/initial/modules/order"
        done < <(modprobe -d "$scratch/tree" -S "$version" --ignore-install -D "$name" 2>/dev/null | grep '^insmod')
    done
    [ -e "$scratch/initial/modules/rdma_rxe.ko" ] || cannot "the kernel $version has no module rdma_rxe"
}

# The guest's second program, run by this machine's bash: the wire, the devices, the command, the end.
write_second() {
    local at
    for at in "${!shares[@]}"; do printf 'shares[%d]=%q\n' "$at" "${shares[$at]}"; done
    cat <<'SECOND'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
end() { sync; echo o >/proc/sysrq-trigger; sleep 60; }
trouble() { echo "$*" >/run/control/trouble; end; }
echo 1 >/proc/sys/kernel/sysrq
port=
for folder in /sys/class/virtio-ports/*; do [ "$(cat "$folder/name")" = output ] && port=/dev/${folder##*/}; done
[ -c "$port" ] || trouble "no way out for the output"
for at in "${!shares[@]}"; do
    mkdir -p "${shares[$at]}"
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=mmap "share$at" "${shares[$at]}" || trouble "no share ${shares[$at]}"
done
# Soft-RoCE lives in the first network namespace, so both ends of the wire are in it. A rule that comes before the table
# of local addresses sends what is meant for the other end over the wire all the same.
for file in all/accept_local=1 default/accept_local=1 all/rp_filter=0 default/rp_filter=0 all/arp_ignore=1; do
    echo "${file#*=}" >"/proc/sys/net/ipv4/conf/${file%=*}"
done
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
ip -batch - <<'IP' || trouble "the network cannot be set up"
link set lo up
link add ep0 address 02:00:00:00:00:01 mtu 4200 type veth peer name ep1 address 02:00:00:00:00:02 mtu 4200
addr add 10.77.0.1/24 dev ep0
addr add 10.77.0.2/24 dev ep1
rule add pref 300 lookup local
rule del pref 0
rule add pref 10 iif lo from 10.77.0.1 to 10.77.0.2 lookup 101
rule add pref 11 iif lo from 10.77.0.2 to 10.77.0.1 lookup 102
IP
cat >/run/wire-up <<'UP'
ip -batch - <<'IP'
link set ep0 up
link set ep1 up
route replace 10.77.0.2 dev ep0 src 10.77.0.1 table 101
route replace 10.77.0.1 dev ep1 src 10.77.0.2 table 102
neigh replace 10.77.0.2 lladdr 02:00:00:00:00:02 dev ep0 nud permanent
neigh replace 10.77.0.1 lladdr 02:00:00:00:00:01 dev ep1 nud permanent
IP
UP
sh /run/wire-up || trouble "the wire cannot be set up"
rdma link add rxe0 type rxe netdev ep0 && rdma link add rxe1 type rxe netdev ep1 || trouble "no Soft-RoCE device can be made"
ulimit -l unlimited
ulimit -c 0
touch /run/control/ready
setsid /bin/bash /run/control/command </dev/null >"$port" 2>&1
echo $? >/run/control/status
end
SECOND
}

VM_PACKAGES=(qemu-system-x86 cpio kmod busybox-static iproute2 rdma-core ibverbs-providers ibverbs-utils xz-utils zstd)
have_tools() {
    local tool
    for tool in qemu-system-x86_64 cpio depmod modprobe busybox rdma; do
        command -v "$tool" >/dev/null 2>&1 || [ -x "/sbin/$tool" ] || return 1
    done
    ls /usr/lib/*/libibverbs/librxe-rdmav*.so >/dev/null 2>&1
}
PATH=$PATH:/usr/sbin:/sbin
[ "$(uname -m)" = x86_64 ] || cannot "the guest is an x86-64 machine, and so must this one be"
if ! have_tools; then
    try_packages "${VM_PACKAGES[@]}" || cannot "these packages could not be installed: ${missing_packages[*]}"
fi
[ -s "$kernel/initrd" ] && [ -s "$kernel/version" ] || fetch_kernel
[ "$install" = no ] || exit 0
[ $# -gt 0 ] || { usage >&2; exit 2; }

run=$(mktemp -d) || cannot "no scratch folder"
trap '[ -z "${machine:-}" ] || kill "$machine" 2>/dev/null; rm -rf "$run"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
mkdir "$run/control"
write_second >"$run/control/second"
{
    export -p | grep -vE '^declare -[a-z]*x[a-z]* (BASHOPTS|SHELLOPTS|_|PWD|OLDPWD|SHLVL)='
    printf 'export RECLANE_VM=1\ncd %q || exit 125\nexec' "$PWD"
    printf ' %q' "$@"
    echo
} >"$run/control/command"

accelerator=(-accel "tcg,thread=multi" -cpu "max,la57=off")
if [ -w /dev/kvm ] && { [ -d /sys/module/kvm_intel ] || [ -d /sys/module/kvm_amd ]; }; then
    accelerator=(-accel kvm -cpu host)
fi
machine_options=(-nodefaults -no-user-config -display none -monitor none -no-reboot -M pc -smp 2 -m "$memory"
    "${accelerator[@]}" -kernel "$kernel/vmlinuz" -initrd "$kernel/initrd"
    -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on"
    -chardev "file,id=console,path=$run/console" -serial chardev:console -device virtio-serial-pci
    -chardev "file,id=output,path=$run/output" -device "virtserialport,chardev=output,name=output"
    -virtfs "local,path=/,mount_tag=all,security_model=none,readonly=on,multidevs=remap"
    -virtfs "local,path=$run/control,mount_tag=control,security_model=none")
for at in "${!shares[@]}"; do
    machine_options+=(-virtfs "local,path=${shares[$at]},mount_tag=share$at,security_model=none,multidevs=remap")
done
# A pipe with a reader of its own: QEMU takes the end of its standard input for the end of both directions.
mkfifo "$run/output"
for attempt in first second; do
    cat "$run/output" &
    reader=$!
    timeout -k 5 "$seconds" qemu-system-x86_64 "${machine_options[@]}" </dev/null 2>"$run/qemu" &
    machine=$!
    wait "$machine"
    ended=$?
    machine=
    # Opened once here, so that the reader ends also when QEMU never got so far.
    : 1<>"$run/output"
    wait "$reader"
    # A machine that ended by itself before it was ready is started once more.
    [ $attempt = first ] && [ $ended -eq 0 ] && [ ! -e "$run/control/ready" ] && [ ! -e "$run/control/trouble" ] || break
done
if [ -s "$run/control/status" ]; then
    exit "$(cat "$run/control/status")"
fi
if [ $ended -eq 124 ] || [ $ended -eq 137 ]; then
    fail "verbs-vm: not done within $seconds s$([ -e "$run/control/ready" ] || echo '; the guest never got ready')"
    exit 124
fi
fail "verbs-vm: the guest ended without a result: $(cat "$run/control/trouble" "$run/qemu" 2>/dev/null)"
tail -n 20 "$run/console" 2>/dev/null | tr -d '\r' >&2
exit 125
