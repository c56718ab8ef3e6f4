# shellcheck shell=bash
# The data set of the demo: MovieLens-100K as one file, out of the Python package that carries it. It is never part of
# this repository. Source it after setup.sh.

ML100K_PACKAGE=recbole==1.2.1
ML100K_MEMBER=recbole/dataset_example/ml-100k/ml-100k.inter
ML100K_SHA256=4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff

ml100k_is_good() {
    [ -f "$1" ] && printf '%s  %s\n' "$ML100K_SHA256" "$1" | sha256sum --check --status -
}

# fetch_ml100k FOLDER: makes sure that FOLDER/ml-100k.inter is the file with the pinned checksum; fetches it if need be.
fetch_ml100k() {
    local folder=$1 file=$1/ml-100k.inter log wheel
    if ml100k_is_good "$file"; then
        ok "data set: $file (cached)"
        return 0
    fi
    need_pip
    mkdir -p "$folder"
    rm -rf "$folder/wheel"
    log=$folder/pip.log
    step "fetching MovieLens-100K (package $ML100K_PACKAGE)"
    if ! python3 -m pip download --no-deps --only-binary=:all: --disable-pip-version-check \
        --dest "$folder/wheel" "$ML100K_PACKAGE" >"$log" 2>&1; then
        tail -n 10 "$log" | sed 's/^/      /' >&2
        die "the data set cannot be had: 'python3 -m pip download --no-deps $ML100K_PACKAGE' failed (log: $log)." \
            "Give pip a way to a package index, or put ml-100k.inter of that package at $file"
    fi
    wheel=$(find "$folder/wheel" -name '*.whl' | head -n 1)
    [ -n "$wheel" ] || die "pip left no wheel in $folder/wheel (log: $log)"
    python3 - "$wheel" "$ML100K_MEMBER" "$file" <<'PYTHON' || die "$wheel has no readable $ML100K_MEMBER"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[3], "wb") as out:
    out.write(wheel.read(sys.argv[2]))
PYTHON
    ml100k_is_good "$file" ||
        die "$file is not the expected file: its SHA-256 is $(sha256sum "$file" | cut -d ' ' -f 1), not $ML100K_SHA256"
    rm -rf "$folder/wheel"
    ok "data set: $file"
}
