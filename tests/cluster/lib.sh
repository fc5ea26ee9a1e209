# Functions for scenarios. Sourced by inside.sh and, with a namespace of its own, by every scenario.

NODE_PODS=app.kubernetes.io/name=jfs-csi,app.kubernetes.io/component=node
KEEPER_PODS=app.kubernetes.io/name=jfs-csi,app.kubernetes.io/component=keeper
CONTROLLER_PODS=app.kubernetes.io/name=jfs-csi,app.kubernetes.io/component=controller

# scenarios_of FILE: prints the scenarios in a file, which are all its functions.
scenarios_of() { sed -n 's/^\([a-z][a-z0-9_]*\)() {.*/\1/p' "$1"; }

# run_scenario FILE NAME: runs it in a new shell, within the time limit on its first line.
run_scenario() {
  local limit
  limit=$(sed -n "s/^$2() { # at most \([0-9]*\) s\$/\1/p" "$1")
  # shellcheck disable=SC2016
  timeout --kill-after=60 "${limit:-240}" bash -euo pipefail -c \
    '. "$1/node.sh"; . "$1/lib.sh"; . "$2"; begin "$3"; "$3"' scenario "$PROJECT/tests/cluster" "$1" "$2"
}

# begin NAME: creates a namespace, which is deleted with its content when the scenario ends.
begin() {
  ns=s-$(sha256sum <<<"$1" | cut -c1-8)
  kubectl create namespace "$ns" >/dev/null
  trap finish EXIT
}

finish() {
  local status=$?
  set +e
  if [ $status -ne 0 ]; then show_state; fi
  if ! kubectl delete namespace "$ns" --timeout=60s >/dev/null; then
    kubectl -n "$ns" delete pods --all --grace-period=0 --force
    [ $status -ne 0 ] || status=1
  fi
  # What is not in the namespace. Secrets last, since volumes are deleted with them.
  local made
  if [ ${#MADE[@]} -gt 0 ]; then until_true "no volume is left" 60 no_volumes; fi
  for made in "${MADE[@]}"; do kubectl delete --ignore-not-found --timeout=90s $made >/dev/null; done
  for made in "${STARTED[@]}"; do stop "$made"; done
  exit $status
}
MADE=() STARTED=()

# show_state: prints what helps to find the cause of a failure.
show_state() {
  echo "-- objects and events"
  kubectl -n "$ns" get pods,pvc -o wide
  kubectl get events -A --sort-by=.lastTimestamp -o custom-columns=ON:.involvedObject.name,WHY:.reason,TEXT:.message --no-headers |
    tail -n 15 | cut -c1-400
  echo "-- the node's log"
  kubectl -n kube-system logs -l "$NODE_PODS" --tail=15 | cut -c1-400
  echo "-- the keeper's log"
  kubectl -n kube-system logs -l "$KEEPER_PODS" --tail=15 | cut -c1-400
  echo "-- the controller's log"
  kubectl -n kube-system logs -l "$CONTROLLER_PODS" -c jfs-csi --tail=10 --prefix=false | cut -c1-400
}

fail() {
  echo "failed: $*"
  exit 1
}

# same WHAT ACTUAL EXPECTED
same() { [ "$2" = "$3" ] || fail "$1: '$2' instead of '$3'"; }

# contains WHAT TEXT PART
contains() { [[ $2 == *"$3"* ]] || fail "$1 does not contain '$3': $2"; }

k() { kubectl -n "$ns" "$@"; }

# claim NAME SIZE [MODE] [CLASS]
claim() {
  k apply -f - >/dev/null <<EOF
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: $1}
spec:
  accessModes: [${3:-ReadWriteMany}]
  storageClassName: ${4:-juicefs}
  resources: {requests: {storage: $2}}
  ${CLAIM:-}
EOF
}

# pod NAME CLAIM: creates an idle pod with the claim at /data. MOUNT, VOLUME and SPEC are added to its spec,
# COMMAND replaces what it runs.
pod() {
  k apply -f - >/dev/null <<EOF
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {scenario: "yes"}}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  ${SPEC:-}
  containers:
    - name: shell
      image: busybox:1.37
      command: [sh, -c, '${COMMAND:-sleep infinity}']
      volumeMounts: [{name: data, mountPath: /data${MOUNT:-}}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: $2${VOLUME:-}}}]
EOF
}

# ready POD...: waits until they are ready.
ready() { k wait --for=condition=Ready "${@/#/pod/}" --timeout=120s >/dev/null; }

# gone KIND/NAME...: waits until they are deleted.
gone() { k wait --for=delete "$@" --timeout=120s >/dev/null; }

# within POD COMMAND: runs a shell command in the pod.
within() { k exec "$1" -- timeout 60 sh -c "$2"; }

# events NAME: prints the events of an object, which its user sees.
events() { k get events --field-selector "involvedObject.name=$1" -o custom-columns=WHY:.reason,TEXT:.message --no-headers; }

# expect_event NAME TEXT: waits for an event of the object that contains the text.
expect_event() {
  until_true "an event of $1 with '$2'" 120 has_event "$@" || fail "$(events "$1")"
}
has_event() { events "$1" | grep -qF "$2"; }

# volume_of CLAIM: prints the name of its PV.
volume_of() { k get pvc "$1" -o jsonpath='{.spec.volumeName}'; }

# mounts_of VOLUME: prints its mount points on the node.
mounts_of() { awk -v volume="$1" 'index($5, volume) { print $5 }' /proc/self/mountinfo; }

keeper_pod() { kubectl -n kube-system get pod -l "$KEEPER_PODS" -o jsonpath='{.items[0].metadata.name}'; }
keeper_process() { pgrep -f -- '^/usr/bin/jfs-keeper'; }

node_pod() { kubectl -n kube-system get pod -l "$NODE_PODS" -o jsonpath='{.items[0].metadata.name}'; }

# The process id of the node's driver, as seen here.
node_process() { pgrep -f -- '^/usr/bin/jfs-csi --mode=node'; }

registered() { [ "$(kubectl get csinode "$NODE" -o jsonpath='{.spec.drivers[*].name}')" = csi.juicefs.com ]; }

bound() { [ "$(k get pvc "$1" -o jsonpath='{.status.phase}')" = Bound ]; }

size_is() { [ "$(k get pvc "$1" -o jsonpath='{.status.capacity.storage}')" = "$2" ]; }
grown() { [ "$(within user "df -k /data | awk 'END { print \$2 }'")" = 30720 ]; }

# used_at_least CLAIM BYTES: by kubelet's metrics.
used_at_least() {
  local used
  used=$(kubectl get --raw "/api/v1/nodes/$NODE/proxy/metrics" |
    awk -v claim="persistentvolumeclaim=\"$1\"" -v ns="namespace=\"$ns\"" \
      'index($1, "kubelet_volume_stats_used_bytes{") == 1 && index($1, claim) && index($1, ns) { printf "%d", $2 }')
  [ "${used:-0}" -ge "$2" ]
}

has_event_matching() { events "$1" | grep -qE "$2"; }

# secret NAME KEYS: creates a Secret in the driver's namespace. KEYS is the inside of a map.
secret() {
  MADE+=("-n kube-system secret/$1-$ns")
  kubectl -n kube-system apply -f - >/dev/null <<EOF
apiVersion: v1
kind: Secret
metadata: {name: $1-$ns}
stringData: {$2}
EOF
}

# class NAME SECRET [MORE]: creates a StorageClass, named after NAME and the scenario's namespace.
class() {
  MADE+=("storageclass/$1-$ns")
  local what parameters=
  for what in provisioner node-publish controller-expand; do
    parameters+="csi.storage.k8s.io/$what-secret-name: $2, csi.storage.k8s.io/$what-secret-namespace: kube-system, "
  done
  kubectl apply -f - >/dev/null <<EOF
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: $1-$ns}
provisioner: csi.juicefs.com
allowVolumeExpansion: true
parameters: {$parameters}
${3:-}
EOF
}

# example NAME: applies it unchanged, and deletes it with the scenario.
example() {
  MADE=("-f $PROJECT/deploy/examples/$1.yaml" "${MADE[@]}")
  kubectl apply -f "$PROJECT/deploy/examples/$1.yaml" >/dev/null
}

# kilobytes POD MOUNTPOINT: prints the size that a program in the pod sees; in the examples' namespace.
kilobytes() { kubectl exec "$1" -- df -k "$2" | awk 'END { print $2 }'; }
listed() { [ "$(kubectl exec "$1" -- ls "$2" | wc -l)" -ge "$3" ]; }
shows() { [ "$(kilobytes "$1" "$2")" = "$3" ]; }

# class_pod CLASS: creates a pod that writes to a claim of the class.
class_pod() {
  claim of-class 10Mi ReadWriteMany "$1"
  pod of-class of-class
  ready of-class
  within of-class 'echo x >/data/f && cat /data/f' >/dev/null
}

# Servers with persistent data, on the node's address.
start_redis() {
  mkdir -p "$STATE/redis"
  start redis redis-server --bind "$NODE_ADDRESS" --port 6379 --protected-mode no --dir "$STATE/redis" --appendonly yes --save ''
}
start_s3() {
  MINIO_ROOT_USER=jfs-demo MINIO_ROOT_PASSWORD=jfs-demo-password \
    start s3 "$("$PROJECT/tests/peers/minio.sh")" server --quiet --address "$NODE_ADDRESS:9000" "$STATE/objects"
}

# outage SERVER SECONDS: a pod writes files one after another; none that was written may be lost.
outage() {
  STARTED=(redis s3)
  start_redis
  start_s3
  until_true "the servers" 30 bash -c "echo >/dev/tcp/$NODE_ADDRESS/6379 && echo >/dev/tcp/$NODE_ADDRESS/9000"
  secret kept "name: kept, metaurl: 'redis://$NODE_ADDRESS:6379/1', storage: minio, bucket: 'http://$NODE_ADDRESS:9000/kept',
    access-key: jfs-demo, secret-key: jfs-demo-password"
  class kept "kept-$ns"
  claim kept 100Mi ReadWriteMany "kept-$ns"
  COMMAND='i=0; while [ ! -e /tmp/stop ]; do i=$((i + 1));
    if dd if=/dev/zero of=/data/$i bs=64k count=1 conv=fsync 2>/dev/null; then echo $i >>/tmp/written; else echo $i >>/tmp/refused; fi;
    sleep 0.2; done; sleep infinity' pod writer kept
  ready writer
  until_true "some files" 30 written_more 5
  stop "$1"
  sleep "$2"
  "start_$1"
  local before
  before=$(within writer 'wc -l </tmp/written')
  until_true "files after the outage" 120 written_more $((before + 10))
  within writer 'touch /tmp/stop; sleep 2; cd /data; for i in $(cat /tmp/written); do
    [ "$(stat -c %s $i)" = 65536 ] || { echo "lost: $i"; exit 1; }; cat $i >/dev/null || exit 1; done'
  echo "measured: files refused during $2 s without $1: $(within writer 'cat /tmp/refused 2>/dev/null | wc -l')"
  k delete pod writer --wait --timeout=60s >/dev/null
  k delete pvc kept --wait --timeout=60s >/dev/null
}
written_more() { [ "$(within writer 'wc -l </tmp/written')" -ge "$1" ]; }

# publish_times: prints how many calls took how long.
publish_times() {
  kubectl get --raw "/api/v1/nodes/$NODE/proxy/metrics" |
    sed -n 's/^csi_operations_seconds_bucket{.*grpc_status_code="OK".*NodePublishVolume.*le="\([^"]*\)"} \([0-9]*\)$/\2 within \1 s/p' |
    head -n 4 | paste -sd, -
}

# no_volumes: whether no volume of this scenario is left, except for those that outlive their claim.
no_volumes() {
  [ -z "$(kubectl get pv -o json | jq -r --arg ns "$ns" '.items[].spec
    | select(.claimRef.namespace == $ns and .persistentVolumeReclaimPolicy == "Delete")')" ]
}

# api_requests_of ACCOUNT FILTER: prints verbs, groups and kinds of the account's API requests.
api_requests_of() {
  jq -r --arg user "system:serviceaccount:kube-system:$1" "select(.user.username == \$user and .objectRef) | $2
    | \"\(.verb) \(.objectRef.apiGroup // \"\") \(.objectRef.resource)\(if .objectRef.subresource then \"/\" + .objectRef.subresource else \"\" end)\"" \
    "$STATE/audit.log" | sort -u
}

no_snapshots() { [ -z "$(kubectl get volumesnapshotcontents -o name)" ]; }

# rolled_out: waits until the node has the pod that its DaemonSet describes, and no other.
rolled_out() {
  kubectl -n kube-system rollout status daemonset/jfs-csi-node --timeout=200s >/dev/null
  until_true "one pod of the driver" 200 one_node_pod
}
one_node_pod() { [ "$(kubectl -n kube-system get pod -l "$NODE_PODS" -o name | wc -l)" = 1 ]; }

# replace_node_pod: deletes the driver's pod, and waits for the next one.
replace_node_pod() {
  kubectl -n kube-system delete pod "$(node_pod)" --timeout=200s >/dev/null
  until_true "another pod of the driver" 60 node_pod
  kubectl -n kube-system wait --for=condition=Ready pod -l "$NODE_PODS" --timeout=120s >/dev/null
}

# snapshots_on: installs the snapshot API, its controller, and the driver's overlay.
snapshots_on() {
  kubectl apply -f "$STATE/bin/snapshots/" >/dev/null
  kubectl wait --for=condition=Established crd --all --timeout=60s >/dev/null
  kubectl apply -k "$PROJECT/deploy/kubernetes/overlays/snapshots" >/dev/null
  kubectl -n kube-system rollout status deployment/snapshot-controller --timeout=120s >/dev/null
  kubectl -n kube-system rollout status deployment/jfs-csi-controller --timeout=180s >/dev/null
}

nothing_left() {
  [ -z "$(kubectl get all,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,csidrivers,networkpolicies -A \
    -l app.kubernetes.io/name=jfs-csi -o name)" ]
}

# journal CLAIM: creates a pod that holds a lock on a file, appends numbered lines to it, and stores each with fsync. In
# its /tmp are the last number that was stored, what failed, and the longest time between two lines in centiseconds.
# Another pod tries to get the lock.
journal() {
  COMMAND='exec 3>>/data/journal; flock -n 3 || exit 1; echo 0 >/tmp/pause; i=0; before=;
    while [ ! -e /tmp/stop ]; do
      if echo $((i + 1)) | dd conv=fsync 1>&3 2>/tmp/said; then i=$((i + 1)); echo $i >/tmp/stored;
      else cat /tmp/said >>/tmp/failed; exec 3>>/data/journal; flock -n 3 || echo "the lock is lost" >>/tmp/failed; fi;
      read now rest </proc/uptime; now=${now%.*}${now#*.};
      if [ $((now - ${before:-$now})) -gt $(cat /tmp/pause) ]; then echo $((now - before)) >/tmp/pause; fi;
      before=$now; usleep 20000;
    done; sleep infinity' pod writer "$1"
  ready writer
  COMMAND='while true; do if flock -n /data/journal true; then echo taken >>/tmp/taken; fi; usleep 100000; done' pod rival "$1"
  ready rival
  until_true "some lines" 60 journal_has 20
  within rival 'rm -f /tmp/taken'
  within writer 'echo 0 >/tmp/pause'
}
journal_has() { [ "$(within writer 'cat /tmp/stored')" -ge "$1" ]; }

# journal_goes_on EVENT: fails if the writer saw an error, a line is missing, or the lock was free.
journal_goes_on() {
  local stored
  stored=$(within writer 'cat /tmp/stored')
  until_true "more lines" 90 journal_has $((stored + 20))
  same "what failed" "$(within writer 'cat /tmp/failed 2>/dev/null || true')" ""
  journal_is_whole
  echo "measured: pause over $1: $(within writer 'cat /tmp/pause')0 ms"
  within writer 'echo 0 >/tmp/pause'
}

# journal_is_whole: fails if a line that was stored is missing, or the lock was free.
journal_is_whole() {
  same "lines that are not in order" "$(within writer 'n=$(cat /tmp/stored); head -n $n /data/journal | awk "\$1 != NR" | head')" ""
  same "how often another pod got the lock" "$(within rival 'cat /tmp/taken 2>/dev/null | wc -l')" 0
}

# protected: whether every volume of the node survives its driver.
protected() {
  local gauges
  gauges=$(kubectl get --raw "/api/v1/namespaces/kube-system/pods/$(node_pod):9567/proxy/metrics" |
    sed -n 's/^juicefs_volume_protected{.*} //p' | sort -u)
  [ "$gauges" = 1 ]
}

# kept_connections: prints how many FUSE connections the keeper holds.
kept_connections() { find "/proc/$(keeper_process)/fd" -lname /dev/fuse | wc -l; }

# another_process PROCESS: whether another process of the driver serves than that.
another_process() { [ -n "$(node_process)" ] && [ "$(node_process)" != "$1" ]; }

# says WORD: whether the pod `user` has this word in its /tmp/now.
says() { [ "$(within user 'cat /tmp/now')" = "$1" ]; }

# rules_of ROLE...: prints verbs, groups and kinds that roles allow, without `get` where they allow `list`.
rules_of() {
  kubectl -n kube-system get "$@" -o json | jq -r '.items[].rules[] | .verbs as $verbs | .apiGroups[] as $group | .resources[] as $kind
    | $verbs[] | select(. != "get" or ($verbs | index("list") | not)) | "\(.) \($group) \($kind)"' | sort -u
}

# attributes_class NAME PARAMETERS: creates a VolumeAttributesClass, named after NAME and the scenario's namespace.
attributes_class() {
  MADE+=("volumeattributesclass/$1-$ns")
  kubectl apply -f - >/dev/null <<EOF
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: $1-$ns}
driverName: csi.juicefs.com
parameters: {$2}
EOF
}
has_attributes_class() { [ "$(k get pvc "$1" -o jsonpath='{.status.currentVolumeAttributesClassName}')" = "$2" ]; }
