#!/usr/bin/env bash
# Prints the path of a MinIO server, building it once into the cache folder.
#
# usage: tests/peers/minio.sh
#
# It is the fork that the Go client builds its gateway from: a module proxy has it for sure, and it
# still builds with a Go of today.
set -euo pipefail

module=github.com/juicedata/minio
version=v0.0.0-20260515071949-69a6cfc9da65
cache=${JFS_PEER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/jfs-peers}
binary=$cache/minio-$version

fail() {
  echo "tests/peers/minio.sh: $*" >&2
  exit 1
}

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
  source=$(go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
  [ -n "$source" ] || fail "the Go module proxy gave no minio $version"
  # Its name inside is that of the original, so it is built in place.
  cp -r --no-preserve=mode "$source" src
  echo "building minio $version, once" >&2
  (cd src && go build -ldflags "-s -w" -o "$work/minio" . >&2)
  # Last and atomic: what is at this path is always a whole program.
  mv "$work/minio" "$binary"
fi
echo "$binary"
