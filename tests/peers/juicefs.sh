#!/usr/bin/env bash
# Prints the path of a JuiceFS Go client, building it once into the cache folder.
#
# usage: tests/peers/juicefs.sh [VERSION]        (VERSION defaults to v1.4.1)
#
# The source comes from the Go module proxy like any package; always by its exact version, since a
# proxy need not answer lists. `go install` refuses a module with replace directives, so the module
# is copied out of the read-only module cache and built in place.
set -euo pipefail

version=${1:-v1.4.1}
cache=${JFS_PEER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/jfs-peers}
binary=$cache/juicefs-$version

fail() {
  echo "tests/peers/juicefs.sh: $*" >&2
  exit 1
}

[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+ ]] || fail "not an exact version: $version"
if [ -x "$binary" ]; then
  echo "$binary"
  exit
fi
command -v go >/dev/null || fail "go is missing: install Go 1.25 or newer"
command -v cc >/dev/null || fail "a C compiler is missing: apt-get install gcc libc6-dev"

mkdir -p "$cache"
# Two test programs may ask at once; the second waits for the first one's build.
exec 9>"$binary.lock"
flock 9
if [ ! -x "$binary" ]; then
  # Stores and gateways that no test uses: leaving them out halves the build.
  tags=nogateway,nowebdav,nocos,nobos,nohdfs,noibmcos,noobs,noqingstor,noswift,noazure,nogs,noufile,nob2,nonfs
  tags=$tags,nodragonfly,nocifs,nostorj,nobunny,notos,noqiniu,nosftp,nomysql,nopg,noetcd
  work=$(mktemp -d "$cache/build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  source=$(go mod download -json "github.com/juicedata/juicefs@$version" |
    sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
  [ -n "$source" ] || fail "the Go module proxy gave no juicefs $version"
  cp -r --no-preserve=mode "$source" src
  echo "building juicefs $version, once" >&2
  (cd src && go build -tags "$tags" -ldflags "-s -w" -o "$work/juicefs" . >&2)
  # Last and atomic: what is at this path is always a whole program.
  mv "$work/juicefs" "$binary"
fi
echo "$binary"
