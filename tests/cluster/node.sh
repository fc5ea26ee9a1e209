# The machine inside the namespaces, and Kubernetes on it. Sourced by inside.sh.
#
# The node has an address on the loopback interface: kubelet accepts none of 127.0.0.0/8.

NODE=node-a
NODE_ADDRESS=10.98.0.1
SERVICE_RANGE=10.99.0.0/24
POD_RANGE=10.97.0.0/24

# prepare_directories: mounts the state folder where Kubernetes writes in /var and /run, and replaces the kernel
# settings that kubelet would change by files of this namespace with the right values.
prepare_directories() {
  # Copies of other programs' mounts would keep those busy.
  awk '$3 ~ /^fuse/ { print $2 }' /proc/mounts | while read -r at; do umount -l "$(printf '%b' "$at")"; done
  mkdir -p "$STATE"/{var,var.work,kubelet,settings,containerd,containerd.run,cni,etcd,names,plugins}
  mount -t overlay overlay -o "lowerdir=/var,upperdir=$STATE/var,workdir=$STATE/var.work" /var
  mkdir -p /var/lib/kubelet
  mount --bind "$STATE/kubelet" /var/lib/kubelet
  mount -t tmpfs tmpfs /run
  mkdir -p /run/lock
  local setting
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    local file=$STATE/settings/${setting%%=*}
    mkdir -p "$(dirname "$file")"
    echo "${setting##*=}" >"$file"
    mount --bind "$file" "/proc/sys/${setting%%=*}"
  done
  # The S3 server always writes there.
  mkdir -p /tmp/fakeEndpoint "$STATE/objects"
  mount --bind "$STATE/objects" /tmp/fakeEndpoint
  mount --make-rshared /
  hostname "$NODE"
  ip link set lo up
  ip address add "$NODE_ADDRESS/32" dev lo
  local hierarchy
  for hierarchy in /sys/fs/cgroup/*/; do
    [ ! -e "$hierarchy/cgroup.procs" ] || mkdir -p "$hierarchy/$GROUP"
  done
  # A new cpuset cgroup has no processors.
  if [ -d "/sys/fs/cgroup/cpuset/$GROUP" ]; then
    local what
    for what in cpuset.cpus cpuset.mems; do
      cat "/sys/fs/cgroup/cpuset/$what" >"/sys/fs/cgroup/cpuset/$GROUP/$what"
    done
  fi
}

# start NAME COMMAND...: runs it in the background, with its own log.
start() {
  local name=$1
  shift
  setsid "$@" >>"$STATE/logs/$name.log" 2>&1 </dev/null &
  echo $! >"$STATE/$name.pid"
}

# stop NAME: stops what was started by that name, if anything.
stop() {
  [ -e "$STATE/$1.pid" ] || return 0
  kill "$(cat "$STATE/$1.pid")" 2>/dev/null || true
  rm "$STATE/$1.pid"
}

# until_true WHAT SECONDS COMMAND...: repeats the command until it succeeds.
until_true() {
  local what=$1 end=$((SECONDS + $2))
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ $SECONDS -ge $end ]; then
      echo "timed out waiting for: $what"
      "$@" || true
      return 1
    fi
    sleep 0.3
  done
}

# certificate NAME SUBJECT [EXTENSION...]: signs one by the cluster's own authority.
certificate() {
  local at=$STATE/pki/$1 subject=$2
  shift 2
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$at.key" -subj "$subject" -out "$at.csr" 2>/dev/null
  openssl x509 -req -in "$at.csr" -CA "$STATE/pki/ca.crt" -CAkey "$STATE/pki/ca.key" -CAcreateserial -days 30 \
    -extfile <(printf '%s\n' "extendedKeyUsage=serverAuth,clientAuth" "$@") -out "$at.crt" 2>/dev/null
}

# kubeconfig NAME: writes one for the certificate of that name.
kubeconfig() {
  jq -n --arg pki "$STATE/pki" --arg name "$1" --arg server "https://$NODE_ADDRESS:6443" '{
    apiVersion: "v1", kind: "Config", "current-context": "here",
    clusters: [{name: "here", cluster: {server: $server, "certificate-authority": "\($pki)/ca.crt"}}],
    users: [{name: $name, user: {"client-certificate": "\($pki)/\($name).crt", "client-key": "\($pki)/\($name).key"}}],
    contexts: [{name: "here", context: {cluster: "here", user: $name}}]}' >"$STATE/$1.conf"
}

certificates() {
  mkdir -p "$STATE/pki"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$STATE/pki/ca.key" -subj /CN=cluster \
    -addext basicConstraints=critical,CA:true -days 30 -out "$STATE/pki/ca.crt" 2>/dev/null
  certificate server /CN=server \
    "subjectAltName=IP:$NODE_ADDRESS,IP:127.0.0.1,IP:${SERVICE_RANGE%.*}.1,DNS:localhost,DNS:$NODE,DNS:kubernetes.default.svc"
  certificate admin /O=system:masters/CN=admin
  certificate controllers /CN=system:kube-controller-manager
  certificate scheduler /CN=system:kube-scheduler
  certificate kubelet "/O=system:nodes/CN=system:node:$NODE"
  openssl genrsa -out "$STATE/pki/accounts.key" 2048 2>/dev/null
  openssl rsa -in "$STATE/pki/accounts.key" -pubout -out "$STATE/pki/accounts.pub" 2>/dev/null
  local name
  for name in admin controllers scheduler kubelet; do kubeconfig "$name"; done
}

# Writes the configuration files of the node's programs.
settings() {
  cat >"$STATE/containerd.toml" <<EOF
version = 2
root = "$STATE/containerd"
state = "$STATE/containerd.run"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "$CONTAINERD_ADDRESS"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "registry.k8s.io/pause:3.10"
disable_apparmor = true
# Without CAP_SYS_RESOURCE, no process can get a lower value than this.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "$STATE/cni"
EOF
  jq -n --arg range "$POD_RANGE" --arg data "$STATE/cni.leases" '{cniVersion: "0.4.0", name: "pods", plugins: [
    {type: "bridge", bridge: "pods", isDefaultGateway: true, hairpinMode: true,
     ipam: {type: "host-local", dataDir: $data, ranges: [[{subnet: $range}]]}}]}' >"$STATE/cni/pods.conflist"
  echo "nameserver $NODE_ADDRESS" >"$STATE/resolv.conf"
  # Log all requests of the driver's accounts, for scenarios/permissions.sh.
  cat >"$STATE/audit.yaml" <<EOF
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts:kube-system"]}
  - {level: None}
EOF
  cat >"$STATE/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODE_ADDRESS
readOnlyPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $STATE/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $STATE/pki/server.crt
tlsPrivateKeyFile: $STATE/pki/server.key
containerRuntimeEndpoint: unix://$CONTAINERD_ADDRESS
cgroupDriver: cgroupfs
cgroupRoot: /$GROUP
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
clusterDNS: [$NODE_ADDRESS]
clusterDomain: cluster.local
resolvConf: $STATE/resolv.conf
volumePluginDir: $STATE/plugins
volumeStatsAggPeriod: 5s
# The conditions of volumes become events of pods.
featureGates: {CSIVolumeHealth: true}
maxPods: 250
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
serializeImagePulls: false
EOF
}

start_kubelet() {
  start kubelet kubelet --config="$STATE/kubelet.yaml" --kubeconfig="$STATE/kubelet.conf" --hostname-override="$NODE" \
    --node-ip="$NODE_ADDRESS" --root-dir=/var/lib/kubelet
}

# start_node: starts a control plane and its node.
start_node() {
  certificates
  settings
  start containerd containerd --config "$STATE/containerd.toml"
  start etcd etcd --data-dir "$STATE/etcd" --unsafe-no-fsync
  start names dnsmasq --keep-in-foreground --conf-file=/dev/null --user=root --no-resolv --no-hosts --bind-interfaces \
    --listen-address="$NODE_ADDRESS" --local=/cluster.local/ --hostsdir="$STATE/names"
  # The newest sidecars that are available use the beta version of VolumeAttributesClass.
  start apiserver kube-apiserver --runtime-config=storage.k8s.io/v1beta1=true --etcd-servers=http://127.0.0.1:2379 --advertise-address="$NODE_ADDRESS" \
    --service-cluster-ip-range="$SERVICE_RANGE" --allow-privileged=true --authorization-mode=Node,RBAC \
    --enable-admission-plugins=NodeRestriction --kubelet-preferred-address-types=InternalIP \
    --client-ca-file="$STATE/pki/ca.crt" --tls-cert-file="$STATE/pki/server.crt" --tls-private-key-file="$STATE/pki/server.key" \
    --kubelet-client-certificate="$STATE/pki/admin.crt" --kubelet-client-key="$STATE/pki/admin.key" \
    --kubelet-certificate-authority="$STATE/pki/ca.crt" --service-account-issuer=https://kubernetes.default.svc \
    --audit-policy-file="$STATE/audit.yaml" --audit-log-path="$STATE/audit.log" \
    --service-account-key-file="$STATE/pki/accounts.pub" --service-account-signing-key-file="$STATE/pki/accounts.key"
  until_true "containerd" 60 ctr version
  local archive
  for archive in "$STATE"/images/*.tar; do ctr --namespace k8s.io images import "$archive" >/dev/null; done
  rm -rf "$STATE/images"
  until_true "the API server" 180 kubectl get --raw /readyz
  start controllers kube-controller-manager --kubeconfig="$STATE/controllers.conf" --leader-elect=false \
    --use-service-account-credentials=true --service-account-private-key-file="$STATE/pki/accounts.key" \
    --root-ca-file="$STATE/pki/ca.crt"
  start scheduler kube-scheduler --kubeconfig="$STATE/scheduler.conf" --leader-elect=false
  # Pods on one bridge reply to each other directly; a masqueraded caller gets the reply through the service.
  start proxy kube-proxy --kubeconfig="$STATE/admin.conf" --hostname-override="$NODE" --proxy-mode=iptables \
    --masquerade-all --conntrack-max-per-core=0 --conntrack-min=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0
  start_kubelet
  until_true "the node is registered" 120 kubectl get node "$NODE"
  kubectl wait --for=condition=Ready "node/$NODE" --timeout=120s >/dev/null
  until_true "accounts" 60 kubectl get serviceaccount default
}

# start_dns: resolves the names of services for pods.
start_dns() {
  kubectl get services -A -o json | jq -r '.items[] | select(.spec.clusterIP != "None")
    | "\(.spec.clusterIP) \(.metadata.name).\(.metadata.namespace).svc.cluster.local"' >"$STATE/names/services.new"
  mv "$STATE/names/services.new" "$STATE/names/services"
}

# install_driver: follows docs/kubernetes.md, with the examples unchanged.
install_driver() {
  local deploy=$PROJECT/deploy
  kubectl apply -f "$deploy/examples/backend.yaml" >/dev/null
  kubectl apply -k "$deploy/kubernetes" >/dev/null
  kubectl apply -f "$deploy/examples/secret.yaml" -f "$deploy/examples/storageclass.yaml" >/dev/null
  start_dns
  kubectl -n jfs-demo rollout status deployment --timeout=120s >/dev/null
  kubectl -n kube-system rollout status deployment/jfs-csi-controller --timeout=180s >/dev/null
  rolled_out
  # With OnDelete, a DaemonSet has no rollout status.
  kubectl -n kube-system wait --for=condition=Ready pod -l "$KEEPER_PODS" --timeout=120s >/dev/null
}
