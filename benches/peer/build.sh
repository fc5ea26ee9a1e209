#!/usr/bin/env bash
# Prints the path of the Go side of `cargo bench --bench mdtest`, building it once into the cache
# folder: main.go here, within the source of the JuiceFS Go client.
#
# usage: benches/peer/build.sh [VERSION]        (VERSION defaults to v1.4.1)
set -euo pipefail
cd "$(dirname "$0")"

version=${1:-v1.4.1}
cache=${JFS_PEER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/jfs-peers}
binary=$cache/meta-peer-$version-$(sha256sum main.go | cut -c 1-12)

fail() {
  echo "benches/peer/build.sh: $*" >&2
  exit 1
}

[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+ ]] || fail "not an exact version: $version"
if [ -x "$binary" ]; then
  echo "$binary"
  exit
fi
command -v go >/dev/null || fail "go is missing: https://go.dev/dl"
command -v cc >/dev/null || fail "a C compiler is missing: apt-get install gcc libc6-dev"

# As tests/peers/juicefs.sh: a module with replace directives is built in a copy of its source.
tags=nocos,nobos,nohdfs,noibmcos,noobs,noqingstor,noswift,noazure,nogs,noufile,nob2,nonfs,nodragonfly
tags=$tags,nocifs,nostorj,nobunny,notos,noqiniu,nosftp,nomysql,nopg,noetcd,nogateway,nowebdav
mkdir -p "$cache"
work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
source=$(cd "$work" && go mod download -json "github.com/juicedata/juicefs@$version" |
  sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
[ -n "$source" ] || fail "the Go module proxy gave no juicefs $version"
cp -r --no-preserve=mode "$source" "$work/src"
mkdir "$work/src/meta-peer"
cp main.go "$work/src/meta-peer/"
echo "building the Go side, once" >&2
(cd "$work/src" && go build -tags "$tags" -ldflags "-s -w" -o "$work/meta-peer.bin" ./meta-peer >&2)
mv "$work/meta-peer.bin" "$binary"
echo "$binary"
