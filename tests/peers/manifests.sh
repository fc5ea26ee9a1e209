#!/usr/bin/env bash
# Prints the path of the checker of manifests (tests/manifest-check), building it into the cache folder
# whenever its source changes.
#
# Its packages (the API server's types and validation, Helm, kustomize) come from the Go module proxy,
# by the exact versions that go.sum names.
set -euo pipefail

here=$(cd "$(dirname "$0")/../manifest-check" && pwd)
cache=${JFS_PEER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/jfs-peers}

fail() {
  echo "tests/peers/manifests.sh: $*" >&2
  exit 1
}

version=$(cat "$here"/*.go "$here"/go.mod "$here"/go.sum | sha256sum | cut -c1-16)
binary=$cache/manifest-check-$version
if [ -x "$binary" ]; then
  echo "$binary"
  exit
fi
command -v go >/dev/null || fail "go is missing: install Go 1.25 or newer"

mkdir -p "$cache"
# Two test programs may ask at once; the second waits for the first one's build.
exec 9>"$cache/manifest-check.lock"
flock 9
if [ ! -x "$binary" ]; then
  echo "building the checker of manifests, once; it takes some minutes" >&2
  work=$(mktemp -d "$cache/build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  (cd "$here" && CGO_ENABLED=0 go build -mod=readonly -ldflags "-s -w" -o "$work/check" . >&2)
  # Last and atomic: what is at this path is always a whole program.
  mv "$work/check" "$binary"
fi
echo "$binary"
