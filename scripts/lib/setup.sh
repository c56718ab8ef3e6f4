# shellcheck shell=bash
# Set-up shared by the scripts; source it under `set -euo pipefail`. It prints plain lines and changes nothing but
# missing packages, which are installed by name.

# The oldest Rust that the crate states in Cargo.toml (rust-version).
RUST_MINOR_MIN=95

# What building the library, its C and C++ programs and the data set of the demo takes.
BUILD_PACKAGES=(gcc g++ libc6-dev make cmake pkg-config clang libclang-dev libibverbs-dev librdmacm-dev libgflags-dev)
# What the test script takes beyond that; each is optional there, and a gate without its tool is counted as skipped.
TEST_PACKAGES=(clang-format shellcheck valgrind abigail-tools strace procps)
export BUILD_PACKAGES TEST_PACKAGES

# A headline, a thing that went well, a thing that did not. Failures go to standard error.
step() { printf '== %s\n' "$*"; }
ok() { printf '   ok: %s\n' "$*"; }
fail() { printf '   FAILED: %s\n' "$*" >&2; }
die() { fail "$@"; exit 1; }

# Runs a command as root: directly, or through sudo.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        fail "'$*' needs root: run the script as root, or install sudo"
        return 1
    fi
}

package_present() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]
}

apt_lists_fresh=no

# apt_install NAME: one package, so that what cannot be had is known by name.
apt_install() {
    local log
    log=$(mktemp)
    if as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    sed 's/^/      /' "$log" | tail -n 5 >&2
    rm -f "$log"
    return 1
}

apt_refresh() {
    [ "$apt_lists_fresh" = no ] || return 0
    apt_lists_fresh=yes
    step "apt-get update"
    as_root apt-get update -q -o DPkg::Lock::Timeout=300 >/dev/null ||
        fail "apt-get update failed; going on with the package lists that are there"
}

# try_packages NAME...: installs what is missing. Sets missing_packages to what could not be had; returns 1 if any.
missing_packages=()
try_packages() {
    missing_packages=()
    local name wanted=()
    if ! command -v dpkg-query >/dev/null 2>&1; then
        fail "this is no Debian or Ubuntu; make sure that the equals of these packages are installed: $*"
        return 0
    fi
    for name in "$@"; do
        package_present "$name" || wanted+=("$name")
    done
    [ ${#wanted[@]} -gt 0 ] || return 0
    apt_refresh
    step "installing packages: ${wanted[*]}"
    if apt_install "${wanted[@]}" 2>/dev/null; then
        return 0
    fi
    for name in "${wanted[@]}"; do
        package_present "$name" || apt_install "$name" || missing_packages+=("$name")
    done
    [ ${#missing_packages[@]} -eq 0 ]
}

# need_packages NAME...: as above, but each one that could not be had is named and the script ends.
need_packages() {
    try_packages "$@" && return 0
    local name
    for name in "${missing_packages[@]}"; do
        fail "package $name is missing and could not be installed; install it by hand: apt-get install $name"
    done
    exit 1
}

# need_cargo: a Rust toolchain that is new enough. Toolchains are the user's choice, so none is installed here.
need_cargo() {
    local how="install Rust 1.$RUST_MINOR_MIN or newer with rustup and put ~/.cargo/bin on the PATH"
    if ! command -v cargo >/dev/null 2>&1 && [ -x "${HOME:-/nonexistent}/.cargo/bin/cargo" ]; then
        PATH="$HOME/.cargo/bin:$PATH"
        export PATH
    fi
    command -v cargo >/dev/null 2>&1 || die "cargo is not on the PATH: $how"
    command -v rustc >/dev/null 2>&1 || die "rustc is not on the PATH: $how"
    local version minor
    version=$(rustc --version) || die "rustc does not run: $how"
    minor=$(printf '%s\n' "$version" | sed -n 's/^rustc 1\.\([0-9][0-9]*\)\..*/\1/p')
    [ -n "$minor" ] || die "rustc says '$version', which is no version of the form 1.x: $how"
    [ "$minor" -ge "$RUST_MINOR_MIN" ] || die "found '$version', which is too old: $how"
    ok "$version"
}

# need_pip: python3 with pip, for data sets that are packages. A python that is there already is used as it is.
need_pip() {
    python3 -m pip --version >/dev/null 2>&1 || need_packages python3 python3-pip
    python3 -m pip --version >/dev/null 2>&1 ||
        die "python3 -m pip does not run, though python3-pip is installed: another python3 is first on the PATH ($(command -v python3))"
}

# free_port: prints a TCP port of 127.0.0.1 that was free a moment ago.
free_port() {
    if command -v python3 >/dev/null 2>&1; then
        python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
    else
        perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 1)->sockport, "\n"'
    fi
}
