# The Kubernetes suite for external storage drivers. suite/driver.yaml describes the driver.

the_external_storage_suite_of_kubernetes_passes() { # at most 2700 s
  snapshots_on
  local status=0
  # Besides what the driver's file leaves out: specs that restart the node's own services, other file systems,
  # Windows, and populators, whose images are not available.
  ginkgo --procs=4 --timeout=40m --no-color -v --focus='External.Storage' \
    --skip='\[Disruptive\]|Windows|ntfs|xfs|ext[34]|any volume data source' "$STATE/bin/e2e.test" -- \
    -kubeconfig "$KUBECONFIG" -provider local -storage.testdriver="$PROJECT/tests/cluster/suite/driver.yaml" \
    -report-dir="$STATE/logs" -node-os-distro=debian -dump-logs-on-failure=false >"$STATE/logs/suite.log" 2>&1 || status=$?
  echo "measured: $(grep -E '^Ran [0-9]+ of' "$STATE/logs/suite.log"); $(grep -oE '[0-9]+ Passed \| [0-9]+ Failed.*' "$STATE/logs/suite.log" | tail -n 1)"
  if [ $status -ne 0 ]; then
    sed -n '/^Summarizing/,$p' "$STATE/logs/suite.log"
    fail "the suite"
  fi
}
