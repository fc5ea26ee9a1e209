#!/usr/bin/env bash
# The first process in the cluster's namespaces: starts the cluster, installs the driver, runs scenarios.
# Called by tests/cluster/run.sh only.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export PROJECT=${here%/tests/cluster} STATE=$1 GROUP=$2
shift 2
export PATH=$STATE/bin:$PATH KUBECONFIG=$STATE/admin.conf CONTAINERD_ADDRESS=$STATE/containerd.sock

# shellcheck source=tests/cluster/node.sh
. "$here/node.sh"
# shellcheck source=tests/cluster/lib.sh
. "$here/lib.sh"

began=$SECONDS
prepare_directories
start_node
install_driver
echo "the cluster is up, with the driver, after $((SECONDS - began)) s"

if [ "${1:-}" = -- ]; then
  shift
  "$@"
  exit
fi

# In this order: later scenarios rely on what earlier ones check. permissions.sh comes before other_installs.sh: requests of
# an account that is deleted with its driver are refused.
files=(default_install volumes quotas read_only failures examples restarts kept_mounts outages many_volumes permissions other_installs kubernetes_suite)
passed=0 failed=()
for file in "${files[@]}"; do
  for name in $(scenarios_of "$here/scenarios/$file.sh"); do
    sentence=${name//_/ }
    if [ $# -gt 0 ] && ! grep -qF "$(printf '%s\n' "$@")" <<<"$sentence" && [[ " $* " != *" $file "* ]]; then continue; fi
    at=$SECONDS
    if run_scenario "$here/scenarios/$file.sh" "$name" >"$STATE/logs/scenario-$name.log" 2>&1; then
      passed=$((passed + 1))
      printf 'ok      %s (%d s)\n' "$sentence" $((SECONDS - at))
    else
      failed+=("$sentence")
      printf 'FAILED  %s (%d s)\n' "$sentence" $((SECONDS - at))
      sed 's/^/        /' "$STATE/logs/scenario-$name.log" | tail -n 80
    fi
    # Measurements of the scenario.
    sed -n 's/^measured: /        /p' "$STATE/logs/scenario-$name.log"
  done
done

printf '\n%d scenarios passed, %d failed\n' "$passed" "${#failed[@]}"
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
[ "$passed" -gt 0 ] || { echo "no scenario has such a name"; exit 1; }
