#!/usr/bin/env bash
# Prints the path of csi-sanity, the conformance test of CSI drivers, building it once into the cache
# folder.
#
# usage: tests/peers/csi-sanity.sh [VERSION]        (VERSION defaults to v5.6.0)
#
# The source comes from the Go module proxy like any package; always by its exact version, since a
# proxy need not answer lists. The module is copied out of the read-only module cache and built in
# place, with the versions that its own go.sum names.
set -euo pipefail

version=${1:-v5.6.0}
cache=${JFS_PEER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/jfs-peers}
binary=$cache/csi-sanity-$version

fail() {
  echo "tests/peers/csi-sanity.sh: $*" >&2
  exit 1
}

[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+ ]] || fail "not an exact version: $version"
if [ -x "$binary" ]; then
  echo "$binary"
  exit
fi
command -v go >/dev/null || fail "go is missing: install Go 1.25 or newer"

mkdir -p "$cache"
# Two test programs may ask at once; the second waits for the first one's build.
exec 9>"$binary.lock"
flock 9
if [ ! -x "$binary" ]; then
  work=$(mktemp -d "$cache/build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  source=$(go mod download -json "github.com/kubernetes-csi/csi-test/v5@$version" |
    sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
  [ -n "$source" ] || fail "the Go module proxy gave no csi-test $version"
  cp -r --no-preserve=mode "$source" src
  echo "building csi-sanity $version, once" >&2
  (cd src && GOFLAGS=-mod=mod CGO_ENABLED=0 go build -ldflags "-s -w" -o "$work/csi-sanity" ./cmd/csi-sanity >&2)
  # Last and atomic: what is at this path is always a whole program.
  mv "$work/csi-sanity" "$binary"
fi
echo "$binary"
