#!/usr/bin/env bash
# Starts a one-node Kubernetes cluster, installs the driver with the unchanged manifests, and runs the
# scenarios of tests/cluster/scenarios on it.
#
# usage: tests/cluster/run.sh [WORD...]         the scenarios with one of the words in their name, and those of a file
#                                               of that name; all without
#        tests/cluster/run.sh -- COMMAND...     COMMAND in a cluster with the driver, to look around
#
# Everything runs in its own network, mount and PID namespaces: when their first process ends, for whatever
# reason, all others end, and mounts and addresses disappear. Files and control groups remain in two places,
# and are removed here, also after a run that was killed.
#
# JFS_CSI names a driver that is already built; jfs-keeper is beside it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/../.." && pwd)
state=${XDG_CACHE_HOME:-$HOME/.cache}/jfs/cluster
# Two runs with different folders do not affect each other.
group=jfs-cluster-$(sha256sum <<<"$state" | cut -c1-8)

fail() {
  echo "tests/cluster/run.sh: $*" >&2
  exit 1
}

[ "$(id -u)" -eq 0 ] || fail "run it as root: only root can create the namespaces"
for program in containerd runc etcd dnsmasq iptables ip conntrack openssl jq busybox redis-server strip; do
  command -v "$program" >/dev/null || fail "$program is missing; run: ./check cluster"
done

driver=${JFS_CSI:-}
if [ -z "$driver" ]; then
  target=${CARGO_TARGET_DIR:-$project/target}
  (cd "$project" && cargo build --locked --quiet --profile suites --bin jfs-csi --bin jfs-keeper --target-dir "$target" >&2)
  driver=$target/suites/jfs-csi
fi

remove_groups() {
  local root tries
  # Repeats until the last process in them is gone.
  for tries in $(seq 50); do
    if ! compgen -G "/sys/fs/cgroup/*/$group" >/dev/null && [ ! -d "/sys/fs/cgroup/$group" ]; then return 0; fi
    [ "$tries" -eq 1 ] || sleep 0.2
    remove_empty_groups
  done
}

remove_empty_groups() {
  local root
  for root in /sys/fs/cgroup/*/"$group" /sys/fs/cgroup/"$group"; do
    if [ -d "$root" ]; then find "$root" -depth -type d -exec rmdir {} \; 2>/dev/null || true; fi
  done
}

mkdir -p "$(dirname "$state")"
exec 8>"$state.lock"
flock -n 8 || fail "another run uses $state"
remove_groups
rm -rf "$state"
mkdir -p "$state"/{images,logs,bin}

finish() {
  local status=$?
  set +e
  if [ -n "${inside:-}" ]; then
    kill -KILL "$inside" 2>/dev/null || true
    wait "$inside" 2>/dev/null || true
  fi
  remove_groups
  if [ "$status" -ne 0 ] && [ -d "$state/logs" ]; then
    rm -rf "$state.logs"
    mv "$state/logs" "$state.logs"
    echo "tests/cluster/run.sh: logs are in $state.logs" >&2
  fi
  rm -rf "$state"
}
trap finish EXIT
trap 'exit 130' INT TERM

sets=(kubernetes sidecars helm)
# The suite of Kubernetes takes long to build, and its programs are for nothing else.
if [ $# -eq 0 ] || grep -qE 'suite|external|kubernetes' <<<"$*"; then sets+=(suite); fi
for set in "${sets[@]}"; do
  built=$("$here/programs/build.sh" "$set")
  ln -sf "$built"/* "$state/bin/"
done
"$here/images.sh" "$state/images" "$driver" "${sets[@]}"

# Ends with this shell, and everything inside with it. In the background, so that a signal is handled at once.
setpriv --pdeathsig KILL \
  unshare --net --mount --pid --ipc --uts --fork --kill-child --mount-proc --propagation private \
  "$here/inside.sh" "$state" "$group" "$@" 8>&- <&0 &
inside=$!
wait "$inside"
