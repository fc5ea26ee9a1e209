#!/usr/bin/env bash
# Prints the folder of one set of the cluster's programs, building it once into the cache folder.
#
# usage: tests/cluster/programs/build.sh kubernetes | sidecars | provisioner | helm | suite
#
# Everything comes from the Go module proxy, in the exact versions of the go.sum beside each set. The sets
# share a compile cache, so only the first one is slow.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${JFS_PEER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/jfs-peers}

fail() {
  echo "tests/cluster/programs/build.sh: $*" >&2
  exit 1
}

set=${1:-}
module=$set
kubernetes=$(sed -n 's/^require k8s.io\/kubernetes //p' "$here/kubernetes/go.mod")
case $set in
  kubernetes)
    packages=(kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubectl kubelet)
    packages=("${packages[@]/#/k8s.io/kubernetes/cmd/}")
    ;;
  suite)
    module=kubernetes
    packages=(k8s.io/kubernetes/test/images/agnhost github.com/onsi/ginkgo/v2/ginkgo)
    ;;
  sidecars)
    packages=(
      github.com/kubernetes-csi/external-resizer/cmd/csi-resizer
      github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter
      github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller
      cluster/sidecars/csi-node-driver-registrar
    )
    ;;
  provisioner) packages=(github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner) ;;
  helm) packages=(helm.sh/helm/v3/cmd/helm) ;;
  *) fail "unknown set of programs: '$set'" ;;
esac

key=$({ find "$here/$module" -type f | sort | xargs cat && echo "${packages[@]}"; } | sha256sum | cut -c1-16)
folder=$cache/cluster-$set-$key
if [ -d "$folder" ]; then
  echo "$folder"
  exit
fi
command -v go >/dev/null || fail "go is missing: install Go 1.25 or newer"

# The version that the programs report; kubelet and the API server compare versions.
stamp() {
  local major=${kubernetes#v}
  local minor=${major#*.}
  local at
  for at in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    printf -- '-X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s ' \
      "$at" "$kubernetes" "$at" "${major%%.*}" "$at" "${minor%%.*}"
  done
}

mkdir -p "$cache"
# Runs may be concurrent; the second waits for the build of the first.
exec 9>"$cache/cluster-$set.lock"
flock 9
if [ ! -d "$folder" ]; then
  echo "building the cluster's programs ($set), once; the first set takes a quarter of an hour" >&2
  work=$(mktemp -d "$cache/build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mkdir "$work/bin"
  cd "$here/$module"
  export CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false"
  flags=(-trimpath -ldflags "-s -w $(stamp)")
  nice -n 5 go build "${flags[@]}" -o "$work/bin/" "${packages[@]}" >&2
  if [ "$set" = sidecars ]; then
    # The snapshot API and the files of its controller are in the same modules.
    api=$(go list -m -f '{{.Dir}}' github.com/kubernetes-csi/external-snapshotter/client/v8)
    controller=$(go list -m -f '{{.Dir}}' github.com/kubernetes-csi/external-snapshotter/v8)
    mkdir "$work/bin/snapshots"
    cp "$api"/config/crd/snapshot.storage.k8s.io_*.yaml "$controller"/deploy/kubernetes/snapshot-controller/{rbac,setup}-*.yaml "$work/bin/snapshots/"
    chmod -R u+w "$work/bin/snapshots"
  fi
  if [ "$set" = suite ]; then
    nice -n 5 go test -c "${flags[@]}" -o "$work/bin/e2e.test" k8s.io/kubernetes/test/e2e >&2
  fi
  # Last and atomic: a folder at this path is always complete.
  mv "$work/bin" "$folder"
fi
echo "$folder"
