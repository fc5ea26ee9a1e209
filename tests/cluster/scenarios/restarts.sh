# Restarts of kubelet, and deletions, while pods use volumes.

pods_continue_while_kubelet_is_killed_and_restarted() {
  claim lasting 10Mi
  pod user lasting
  ready user
  kill -9 "$(cat "$STATE/kubelet.pid")"
  # At once, as a service manager would, while the volume is in use.
  start_kubelet
  until_true "kubelet" 120 within user 'echo on >/data/f'
  pod later lasting
  ready later
  same "what the later pod reads" "$(within later 'cat /data/f')" on
  k delete pod user later --wait --timeout=90s >/dev/null
  same "mounts" "$(mounts_of "$(volume_of lasting)" | grep '/mount$')" ""
}

deleting_claims_while_pods_write_leaves_nothing() {
  local i
  for i in 1 2 3 4 5; do
    claim "busy-$i" 50Mi
    COMMAND='while dd if=/dev/urandom of=/data/$RANDOM bs=256k count=8; do rm -f /data/1*; done; sleep infinity' pod "busy-$i" "busy-$i"
  done
  ready busy-1 busy-2 busy-3 busy-4 busy-5
  local volumes
  volumes=$(k get pvc -o jsonpath='{.items[*].spec.volumeName}')
  k delete pvc --all --wait=false >/dev/null
  k delete pods --all --wait --timeout=120s >/dev/null
  local volume
  for volume in $volumes; do
    kubectl wait --for=delete "pv/$volume" --timeout=90s >/dev/null
    same "mounts of $volume" "$(mounts_of "$volume")" ""
  done
}
