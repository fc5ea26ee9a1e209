# Many volumes at once, and their cost.

a_claim_is_soon_ready_in_a_pod() { # at most 300 s
  local i began times=()
  for i in 1 2 3 4 5 6 7 8 9 10; do
    began=$(date +%s%N)
    claim "soon-$i" 10Mi
    pod "soon-$i" "soon-$i"
    ready "soon-$i"
    times+=($((($(date +%s%N) - began) / 1000000)))
  done
  echo "measured: claim to ready pod, ten in turn, ms: $(printf '%s\n' "${times[@]}" | sort -n | xargs)"
}

a_hundred_concurrent_claims_are_all_mounted() { # at most 1200 s
  local i began
  began=$SECONDS
  for i in $(seq 100); do
    claim "many-$i" 10Mi &
    pod "many-$i" "many-$i" &
    [ $((i % 10)) -ne 0 ] || wait
  done
  wait
  k wait --for=condition=Ready pods --all --timeout=1000s >/dev/null
  echo "measured: 100 claims and pods, from the first to all ready: $((SECONDS - began)) s"
  echo "measured: each from its making to ready, s: $(k get pods -o json | jq -r '[.items[]
    | ((.status.conditions[] | select(.type == "Ready").lastTransitionTime | fromdate) - (.metadata.creationTimestamp | fromdate))]
    | sort | "half within \(.[49]), 99 within \(.[98])"')"
  echo "measured: NodePublishVolume so far, by kubelet's metrics: $(publish_times)"
  echo "measured: memory of the node's driver: $(awk '/VmRSS|VmHWM/ { printf "%s %d MiB ", $1, $2 / 1024 }' "/proc/$(node_process)/status")"
  k delete pods --all --wait --timeout=300s >/dev/null
  k delete pvc --all --wait --timeout=120s >/dev/null
  until_true "no volume of a hundred is left" 120 no_volumes
}
