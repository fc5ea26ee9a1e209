# Mounts that survive the driver, because the keeper of the node holds them.

a_rollout_of_the_driver_costs_a_writer_no_error_no_line_and_no_lock() { # at most 420 s
  claim kept 50Mi
  journal kept
  protected || fail "the volume is not protected"
  kubectl -n kube-system rollout restart daemonset/jfs-csi-node >/dev/null
  rolled_out
  journal_goes_on "a rollout of the driver"
  # The new process can be replaced as well.
  kubectl -n kube-system rollout restart daemonset/jfs-csi-node >/dev/null
  rolled_out
  journal_goes_on "the next rollout"
  protected || fail "the volume is not protected any more"
}

deleting_the_drivers_pod_costs_a_writer_no_error_no_line_and_no_lock() { # at most 420 s
  claim kept 50Mi
  journal kept
  replace_node_pod
  journal_goes_on "deletion of the driver's pod"
  protected || fail "the volume is not protected any more"
}

killing_the_driver_costs_a_writer_no_stored_line_and_no_lock() { # at most 420 s
  claim kept 50Mi
  journal kept
  local old
  old=$(node_process)
  kill -9 "$old"
  until_true "another process of the driver" 120 another_process "$old"
  until_true "more lines" 90 journal_has $(($(within writer 'cat /tmp/stored') + 20))
  # A line that was written but not stored is lost with the process, and the writer is told so.
  echo "measured: errors of a writer whose driver was killed: $(within writer 'cat /tmp/failed 2>/dev/null | wc -l')"
  echo "measured: pause over kill -9 of the driver: $(within writer 'cat /tmp/pause')0 ms"
  if ! within writer 'test -e /tmp/failed'; then journal_is_whole; fi
  same "stored lines that are missing" "$(within writer 'n=$(cat /tmp/stored); seq 1 $n >/tmp/all; uniq /data/journal | head -n $n | diff - /tmp/all')" ""
  until_true "protection" 60 protected
}

a_keeper_that_was_replaced_protects_again() { # at most 420 s
  claim kept 50Mi
  journal kept
  kubectl -n kube-system delete pod "$(keeper_pod)" --timeout=60s >/dev/null
  until_true "another keeper" 60 keeper_process
  until_true "protection" 60 protected
  journal_goes_on "deletion of the keeper's pod"
  replace_node_pod
  journal_goes_on "deletion of the driver's pod, with the new keeper"
}

the_keeper_holds_nothing_for_pods_that_are_gone() {
  claim kept 50Mi
  pod user kept
  ready user
  [ "$(kept_connections)" -gt 0 ] || fail "the keeper holds no connection"
  kubectl drain "$NODE" --ignore-daemonsets --delete-emptydir-data --force --pod-selector=scenario=yes --timeout=90s >/dev/null
  kubectl uncordon "$NODE" >/dev/null
  gone pod/user
  same "connections that the keeper holds" "$(kept_connections)" 0
}

a_pod_continues_after_driver_and_keeper_were_killed() { # at most 420 s
  claim lasting 10Mi
  MOUNT=', mountPropagation: HostToContainer' pod user lasting
  ready user
  within user 'echo before >/data/f && sync'
  kill -9 "$(node_process)" "$(keeper_process)"
  until_true "the file again, in the pod" 240 within user 'cat /data/f'
  within user 'echo after >>/data/f'
  same "the file" "$(within user 'cat /data/f' | xargs)" "before after"
  until_true "protection" 60 protected
  # No dead mount remains beneath, and the volume can still be deleted.
  k delete pod user --wait --timeout=90s >/dev/null
  same "mounts" "$(mounts_of "$(volume_of lasting)" | grep '/mount$')" ""
}
