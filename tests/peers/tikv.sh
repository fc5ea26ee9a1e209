#!/usr/bin/env bash
# Prints the path of the TiKV test server (tests/tikv-server), building it into the cache folder
# whenever its source changes.
#
# Its packages come from the Go module proxy, by the exact versions that go.sum names.
set -euo pipefail

here=$(cd "$(dirname "$0")/../tikv-server" && pwd)
cache=${JFS_PEER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/jfs-peers}

fail() {
  echo "tests/peers/tikv.sh: $*" >&2
  exit 1
}

version=$(cat "$here"/*.go "$here"/go.mod "$here"/go.sum | sha256sum | cut -c1-16)
binary=$cache/tikv-server-$version
if [ -x "$binary" ]; then
  echo "$binary"
  exit
fi
command -v go >/dev/null || fail "go is missing: install Go 1.25 or newer"

mkdir -p "$cache"
# Two test programs may ask at once; the second waits for the first one's build.
exec 9>"$cache/tikv-server.lock"
flock 9
if [ ! -x "$binary" ]; then
  echo "building the TiKV test server, once" >&2
  work=$(mktemp -d "$cache/build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  (cd "$here" && CGO_ENABLED=0 go build -mod=readonly -ldflags "-s -w" -o "$work/server" . >&2)
  # Last and atomic: what is at this path is always a whole program.
  mv "$work/server" "$binary"
fi
echo "$binary"
