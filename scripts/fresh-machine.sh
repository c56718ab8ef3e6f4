#!/usr/bin/env bash
# Proof that the README's two commands need nothing but Debian 12, a Rust toolchain and the package registries: makes a
# bare Debian 12 in a folder under target/, puts the committed state of this repository in it, and runs
# scripts/demo.sh and scripts/test.sh there. Needs root, for debootstrap and chroot.
#
# usage: scripts/fresh-machine.sh [--keep] [COMMAND...]
#   --keep     use the folder of the last run again, with what was installed and built in it
#   COMMAND    one line of shell to run in place of the two scripts, with the repository as its folder
#
# How this machine reaches its registries is carried over as it is: apt's and pip's configuration, cargo's without
# credentials, proxy and certificate settings. The Rust toolchain is mounted read-only.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=scripts/lib/setup.sh
. scripts/lib/setup.sh

suite=bookworm
base=${CARGO_TARGET_DIR:-$root/target}/fresh-machine
machine=$base/machine
inside=/srv/reclane

[ "$(id -u)" -eq 0 ] || die "debootstrap and chroot need root: run this script as root"

# All mounts live in a namespace of their own and are gone with it, and so are all processes.
if [ "${RECLANE_FRESH_MACHINE:-}" != inside ]; then
    exec env RECLANE_FRESH_MACHINE=inside unshare --mount --pid --fork --kill-child --propagation private \
        bash "${BASH_SOURCE[0]}" "$@"
fi

keep=no
[ "${1:-}" != --keep ] || { keep=yes; shift; }

host_is_debian_of_suite() {
    [ -r /etc/os-release ] || return 1
    # shellcheck source=/dev/null
    (. /etc/os-release && [ "${ID:-}" = debian ] && [ "${VERSION_CODENAME:-}" = "$suite" ])
}

# The mirror that this machine's apt uses, or nothing (debootstrap then has its own).
host_mirror() {
    host_is_debian_of_suite || return 0
    local files=() file
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        [ ! -f "$file" ] || files+=("$file")
    done
    [ ${#files[@]} -gt 0 ] || return 0
    awk '/^URIs: / { print $2; exit } /^deb / { sub(/^deb +(\[[^]]*\] +)?/, ""); print $1; exit }' "${files[@]}"
}

make_machine() {
    need_packages debootstrap git ca-certificates
    step "making a bare Debian 12 in $machine"
    rm -rf "$machine"
    mkdir -p "$machine" "$base/debs"
    local mirror
    mirror=$(host_mirror)
    debootstrap --variant=minbase --include=ca-certificates --cache-dir="$base/debs" "$suite" "$machine" \
        ${mirror:+"$mirror"} >"$base/debootstrap.log" 2>&1 ||
        die "debootstrap failed: $(tail -n 1 "$base/debootstrap.log") (log: $base/debootstrap.log)"
    ok "$(chroot "$machine" dpkg-query -f '.\n' -W | wc -l) packages"
}

# carry PATH...: files and folders of this machine's configuration, to the same place, where they exist.
carry() {
    local path
    for path in "$@"; do
        [ -e "$path" ] || continue
        mkdir -p "$machine$(dirname "$path")"
        cp -aL "$path" "$machine$(dirname "$path")/"
    done
}

carry_configuration() {
    if host_is_debian_of_suite; then
        rm -f "$machine/etc/apt/sources.list"
        carry /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/keyrings /etc/apt/trusted.gpg.d
    fi
    carry /etc/apt/apt.conf /etc/apt/apt.conf.d /etc/apt/auth.conf /etc/apt/auth.conf.d /etc/pip.conf \
        /etc/resolv.conf /etc/hosts /usr/local/share/ca-certificates "${SSL_CERT_FILE:-/nonexistent}" \
        "${PIP_CERT:-/nonexistent}" "${REQUESTS_CA_BUNDLE:-/nonexistent}"
    local cargo_home=${CARGO_HOME:-$HOME/.cargo} home=$machine/srv/user file
    mkdir -p "$home/.cargo" "$home/.config/pip"
    for file in config config.toml; do
        [ ! -f "$cargo_home/$file" ] || cp "$cargo_home/$file" "$home/.cargo/"
    done
    for file in "$HOME/.pip/pip.conf" "$HOME/.config/pip/pip.conf"; do
        [ ! -f "$file" ] || cp "$file" "$home/.config/pip/pip.conf"
    done
}

carry_sources() {
    [ -z "$(git status --porcelain)" ] || fail "uncommitted changes are not part of this run"
    # Only what was built in an earlier run stays.
    mkdir -p "$machine$inside"
    find "$machine$inside" -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} +
    git archive HEAD | tar -x -C "$machine$inside"
    ok "sources of commit $(git rev-parse --short HEAD)"
}

mount_all() {
    mount -t proc proc "$machine/proc"
    mount --rbind /dev "$machine/dev"
    mount -t sysfs -o ro sysfs "$machine/sys"
    local toolchain
    toolchain=$(rustc --print sysroot)
    mkdir -p "$machine/opt/rust"
    mount --bind "$toolchain" "$machine/opt/rust"
    mount -o remount,bind,ro "$machine/opt/rust"
}

# The settings that say how registries are reached, and nothing else of this environment.
settings=()
collect_settings() {
    local name
    for name in http_proxy https_proxy no_proxy all_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY SSL_CERT_FILE \
        SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_CERT \
        PIP_PROXY PIP_DEFAULT_TIMEOUT CARGO_HTTP_CAINFO CARGO_HTTP_PROXY CARGO_NET_RETRY; do
        [ -z "${!name:-}" ] || settings+=("$name=${!name}")
    done
}

# on_machine LINE: runs a line of shell there.
on_machine() {
    chroot "$machine" /usr/bin/env -i PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        HOME=/srv/user LANG=C.UTF-8 TERM=dumb ${settings[@]+"${settings[@]}"} bash -c "cd $inside && $1" </dev/null
}

passed=0 failed=0
# attempt NAME LINE
attempt() {
    local name=$1 line=$2 started=$SECONDS
    step "$line (log: $base/$name.log)"
    if on_machine "$line" >"$base/$name.log" 2>&1; then
        passed=$((passed + 1))
        ok "$line, $((SECONDS - started)) s"
    else
        failed=$((failed + 1))
        fail "$line, after $((SECONDS - started)) s"
    fi
    tail -n 25 "$base/$name.log" | sed 's/^/      /'
}

need_cargo
if [ "$keep" = no ] || [ ! -d "$machine$inside" ]; then
    make_machine
fi
carry_configuration
carry_sources
mount_all
collect_settings
if [ $# -gt 0 ]; then
    attempt command "$*"
else
    attempt demo scripts/demo.sh
    attempt test scripts/test.sh
fi
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
