#!/usr/bin/env bash
# Prints the path of a test suite of file systems, building it once into the cache folder.
#
# usage: tests/peers/suites.sh [pjdfstest|fsx]        (both by default)
#
# They are programs from the crate registry, by their exact versions and with their own lock files.
set -euo pipefail

declare -A versions=([pjdfstest]=0.2.2 [fsx]=0.3.2)
cache=${JFS_PEER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/jfs-peers}

fail() {
  echo "tests/peers/suites.sh: $*" >&2
  exit 1
}

suite() {
  local name=$1 version=${versions[$1]:-}
  [ -n "$version" ] || fail "unknown suite: $name"
  local root=$cache/$name-$version
  local binary=$root/bin/$name
  if [ ! -x "$binary" ]; then
    command -v cargo >/dev/null || fail "cargo is missing; install Rust with rustup"
    [ "$name" != pjdfstest ] || [ -e /usr/include/sys/acl.h ] ||
      fail "headers of libacl are missing: apt-get install libacl1-dev"
    mkdir -p "$cache"
    # Two test programs may ask at once; the second waits for the first one's build.
    exec 9>"$root.lock"
    flock 9
    if [ ! -x "$binary" ]; then
      echo "building $name $version, once" >&2
      # Unoptimised: the file system is what takes time. What this repository builds with is not theirs.
      env -u CARGO_TARGET_DIR -u RUSTFLAGS cargo install "$name" --version "$version" --locked --debug --quiet \
        --no-track --root "$root" --target-dir "$root.build" >&2
      rm -rf "$root.build"
    fi
    exec 9>&-
  fi
  echo "$binary"
}

[ $# -gt 0 ] || set -- pjdfstest fsx
for name; do suite "$name"; done
