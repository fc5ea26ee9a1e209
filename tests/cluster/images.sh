#!/usr/bin/env bash
# Builds the images of the cluster, as archives that containerd imports, without a daemon.
#
# usage: tests/cluster/images.sh FOLDER JFS_CSI [SET...]
#
# With `suite` among the sets, also the images of the Kubernetes suite.
#
# They have the names in the manifests and examples of the project, so that a test uses those unchanged. Their
# contents:
#
#   jfs-csi          JFS_CSI and the jfs-keeper beside it, in the layout of deploy/Dockerfile, with shared libraries
#   csi-* sidecars   the real ones, in the newest available versions, whatever the tag says; the registrar is a
#                    replacement, see programs/sidecars
#   redis, minio     Debian's Redis, and the MinIO of the other tests
#   busybox, pause   Debian's BusyBox, with flock of util-linux
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/../.." && pwd)
out=$1 driver=$2
work=$(mktemp -d "$out/images.XXXXXX")
trap 'rm -rf "$work"' EXIT

# image NAME FOLDER [ENTRYPOINT...]: builds an archive of one layer.
image() {
  local name=$1 root=$2 layer config manifest
  shift 2
  local made=$work/made
  mkdir -p "$made/blobs/sha256"
  # Moves a file to the path of its digest, and prints the digest.
  blob() {
    local sum
    sum=$(sha256sum "$1" | cut -d' ' -f1)
    mv "$1" "$made/blobs/sha256/$sum"
    echo "sha256:$sum"
  }
  tar -C "$root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$work/layer" .
  layer=$(blob "$work/layer")
  jq -n --arg layer "$layer" '$ARGS.positional as $entry | {
    architecture: "amd64", os: "linux",
    config: {Entrypoint: $entry, Env: ["PATH=/usr/bin:/bin"], WorkingDir: "/"},
    rootfs: {type: "layers", diff_ids: [$layer]}}' --args -- "$@" >"$work/config"
  descriptor() { # DIGEST TYPE
    jq -n --arg digest "$1" --arg type "application/vnd.oci.image.$2" \
      --argjson size "$(stat -c %s "$made/blobs/sha256/${1#sha256:}")" '{mediaType: $type, digest: $digest, size: $size}'
  }
  config=$(blob "$work/config")
  jq -n --argjson config "$(descriptor "$config" config.v1+json)" --argjson layer "$(descriptor "$layer" layer.v1.tar)" \
    '{schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json", config: $config, layers: [$layer]}' >"$work/manifest"
  manifest=$(blob "$work/manifest")
  jq -n --arg name "$name" --argjson manifest "$(descriptor "$manifest" manifest.v1+json)" \
    '{schemaVersion: 2, manifests: [$manifest + {annotations: {"io.containerd.image.name": $name}}]}' >"$made/index.json"
  echo '{"imageLayoutVersion":"1.0.0"}' >"$made/oci-layout"
  tar -C "$made" -cf "$out/$(tr '/:' '__' <<<"$name").tar" .
  rm -rf "$made"
}

# install_program PROGRAM FOLDER: copies it to /usr/bin in there, with its shared libraries.
install_program() {
  mkdir -p "$2/usr/bin" "$2/tmp"
  chmod 1777 "$2/tmp"
  cp -L "$1" "$2/usr/bin/"
  # A static program has no shared libraries.
  { ldd "$1" 2>/dev/null | grep -o '/lib[^ ]*' || true; } | while read -r library; do
    mkdir -p "$2$(dirname "$library")"
    cp -L "$library" "$2$library"
  done
}

# named NAME: prints the name of an image after kustomize, with `newName` and `newTag` of its entry in `images`.
named() {
  awk -v name="$1" '$2 == "name:" || $1 == "name:" { at = $NF }
    at == name && $1 == "newName:" { printf "%s", $2 }
    at == name && $1 == "newTag:" { print ":" $2; exit }' "$project"/deploy/kubernetes/{base,components/*}/kustomization.yaml
}

# The layout of deploy/Dockerfile.
root=$work/jfs-csi
install_program "$driver" "$root"
mv "$root/usr/bin/$(basename "$driver")" "$root/usr/bin/jfs-csi" 2>/dev/null || true
install_program "$(dirname "$driver")/jfs-keeper" "$root"
strip "$root/usr/bin/jfs-csi" "$root/usr/bin/jfs-keeper"
install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
printf '%s:x:%d:%d::/:/none\n' root 0 0 nonroot 65532 65532 nobody 65534 65534 >"$root/etc/passwd"
printf '%s:x:%d:\n' root 0 nonroot 65532 nogroup 65534 >"$root/etc/group"
image "docker.io/library/$(named jfs-csi)" "$root" /usr/bin/jfs-csi

sidecars=$("$here/programs/build.sh" sidecars)
provisioner=$("$here/programs/build.sh" provisioner)
for program in "$provisioner/csi-provisioner" "$sidecars"/csi-{resizer,snapshotter,node-driver-registrar}; do
  name=$(basename "$program")
  install_program "$program" "$work/$name"
  image "$(named "$name")" "$work/$name" "/usr/bin/$name"
  rm -rf "${work:?}/$name"
done

install_program "$sidecars/snapshot-controller" "$work/snapshot-controller"
image "$(awk '$1 == "image:" { print $2 }' "$sidecars/snapshots/setup-snapshot-controller.yaml")" \
  "$work/snapshot-controller" /usr/bin/snapshot-controller
rm -rf "$work/snapshot-controller"

examples=$project/deploy/examples
root=$work/redis
install_program "$(command -v redis-server)" "$root"
# Like the image of that name: no protected mode.
image "docker.io/library/$(grep -oh 'redis:[0-9.]*$' "$examples/backend.yaml")" "$root" /usr/bin/redis-server --protected-mode no
minio=$("$project/tests/peers/minio.sh")
root=$work/minio
install_program "$minio" "$root"
image "docker.io/$(grep -oh 'minio/minio:.*$' "$examples/backend.yaml")" "$root" "/usr/bin/$(basename "$minio")"

root=$work/busybox
mkdir -p "$root"/{bin,tmp,etc,root,proc,sys,dev}
chmod 1777 "$root/tmp"
cp /bin/busybox "$root/bin/"
for applet in $(/bin/busybox --list); do [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"; done
install_program "$(command -v flock)" "$root"
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
image docker.io/library/busybox:1.37 "$root"
image registry.k8s.io/pause:3.10 "$root" /bin/sleep infinity

[[ " $* " == *" suite "* ]] || exit 0

# The images that the Kubernetes suite runs. Of two of them it uses only a shell.
image registry.k8s.io/e2e-test-images/busybox:1.37.0-1 "$root"
image registry.k8s.io/pause:3.10.1 "$root" /bin/sleep infinity
install_program /bin/bash "$root"
mv "$root/usr/bin/bash" "$root/bin/"
image registry.k8s.io/e2e-test-images/nginx:1.14-4 "$root"
image registry.k8s.io/e2e-test-images/jessie-dnsutils:1.7 "$root"
install_program "$("$here/programs/build.sh" suite)/agnhost" "$root"
mv "$root/usr/bin/agnhost" "$root/"
image registry.k8s.io/e2e-test-images/agnhost:2.56 "$root" /agnhost
