#!/usr/bin/env bash
# Prints the path of a JuiceFS Go client of the given version, building it once into the cache folder.
#
# usage: tests/peers/juicefs.sh [VERSION]        (VERSION defaults to v1.4.1)
#
# The module comes from the Go module proxy as an ordinary package. It is copied out of the module
# cache because `go build` must run inside a writable copy with the module's own go.mod.
set -euo pipefail

version=${1:-v1.4.1}
cache=${JFS_PEER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/jfs-peers}
binary=$cache/juicefs-$version
# Storage drivers and gateways that no test uses: leaving them out halves the build.
tags=nogateway,nowebdav,nocos,nobos,nohdfs,noibmcos,noobs,noqingstor,noswift,noazure,nogs,noufile,nob2,nonfs
tags=$tags,nodragonfly,nocifs,nostorj,nobunny,notos,noqiniu,nosftp

mkdir -p "$cache"
# Two test programs may ask at once; the second waits for the first one's build.
exec 9>"$cache/juicefs-$version.lock"
flock 9
if [ ! -x "$binary" ]; then
  command -v go >/dev/null || { echo "go is needed to build the JuiceFS peer: apt-get install golang" >&2; exit 1; }
  work=$(mktemp -d "$cache/build.XXXXXX")
  trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
  cd "$work"
  source=$(go mod download -json "github.com/juicedata/juicefs@$version" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
  [ -n "$source" ] || { echo "the Go module proxy gave no juicefs $version" >&2; exit 1; }
  cp -r "$source" src && chmod -R u+w src && cd src
  revision=${version#v}
  # Without these the client calls itself "unknown" and refuses its own volumes' version gates.
  go build -tags "$tags" -ldflags "-s -w" -o "$work/juicefs" . >&2
  mv "$work/juicefs" "$binary"
  echo "built juicefs $revision" >&2
fi
echo "$binary"
