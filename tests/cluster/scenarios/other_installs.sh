# Other ways to install the driver. Each ends with the install that the cluster was set up with.

the_snapshots_overlay_creates_and_restores_a_snapshot() { # at most 480 s
  snapshots_on
  example dynamic
  kubectl rollout status deployment/writer --timeout=120s >/dev/null
  until_true "files of the writers" 60 listed deployment/writer /data 2
  kubectl apply -f "$PROJECT/deploy/examples/expand.yaml" >/dev/null
  example snapshot
  kubectl wait --for=condition=Ready pod/restored --timeout=180s >/dev/null
  listed pod/restored /data 2 || fail "what was restored has: $(kubectl exec restored -- ls /data)"
  same "its size" "$(kilobytes pod/restored /data)" 20971520
  kubectl delete -f "$PROJECT/deploy/examples/snapshot.yaml" --timeout=120s >/dev/null
  until_true "no snapshot is left" 60 no_snapshots
}

the_registrar_overlay_registers_the_driver() { # at most 480 s
  kubectl apply -k "$PROJECT/deploy/kubernetes/overlays/registrar" >/dev/null
  rolled_out
  same "containers of the node's pod" "$(kubectl -n kube-system get pod "$(node_pod)" -o jsonpath='{.spec.containers[*].name}')" \
    "jfs-csi csi-node-driver-registrar"
  until_true "the driver in CSINode" 60 registered
  class_pod juicefs
  # With pods that use it: of one registrar after another, and of the driver itself again.
  kubectl -n kube-system rollout restart daemonset/jfs-csi-node >/dev/null
  rolled_out
  until_true "the driver in CSINode" 60 registered
  within of-class 'echo still >>/data/f'
  kubectl apply -k "$PROJECT/deploy/kubernetes" >/dev/null
  rolled_out
  until_true "the driver in CSINode" 60 registered
  within of-class 'echo again >>/data/f'
  # Not only until the old registrar has removed its socket.
  sleep 15
  registered || fail "kubelet has lost the driver"
  k delete pod,pvc --all --timeout=90s >/dev/null
}

an_attributes_class_changes_the_limits_of_a_volume_in_use() { # at most 480 s
  # In these versions of the sidecars it is behind a gate, and a change comes without a Secret, so the controller gets
  # one as with `controller.fileSystems` of the chart.
  kubectl -n kube-system get deployment jfs-csi-controller -o json | jq '.spec.template.spec |= (
    (.containers[] | select(.name == "csi-provisioner" or .name == "csi-resizer").args) += ["--feature-gates=VolumeAttributesClass=true"]
    | (.containers[] | select(.name == "jfs-csi")) |= (.args += ["--secrets-dir=/secrets"]
      | .volumeMounts += [{name: "secret", mountPath: "/secrets/juicefs-secret", readOnly: true}])
    | .volumes += [{name: "secret", secret: {secretName: "juicefs-secret"}}])' | kubectl replace -f - >/dev/null
  kubectl -n kube-system rollout status deployment/jfs-csi-controller --timeout=180s >/dev/null
  attributes_class few 'inodes: "4"'
  attributes_class many 'inodes: "100"'
  CLAIM="volumeAttributesClassName: few-$ns" claim limited 10Mi
  pod user limited
  ready user
  if within user 'for i in 1 2 3 4 5 6; do touch /data/$i || exit 1; done'; then fail "six files are in a volume with room for four"; fi
  k patch pvc limited -p "{\"spec\":{\"volumeAttributesClassName\":\"many-$ns\"}}" >/dev/null
  until_true "the new class" 120 has_attributes_class limited "many-$ns"
  until_true "room for more files" 150 within user 'for i in 1 2 3 4 5 6; do touch /data/$i || exit 1; done'
  k delete pod,pvc --all --timeout=90s >/dev/null
  kubectl apply -k "$PROJECT/deploy/kubernetes" >/dev/null
  kubectl -n kube-system rollout status deployment/jfs-csi-controller --timeout=180s >/dev/null
}

uninstalling_the_driver_under_a_pod_leaves_nobody_waiting() { # at most 600 s
  claim left 10Mi
  MOUNT=', mountPropagation: HostToContainer' \
    COMMAND='while true; do if echo x >>/data/f; then echo works >/tmp/now; else echo fails >/tmp/now; fi; sleep 1; done' pod user left
  ready user
  until_true "a pod that writes" 30 says works
  kubectl delete -k "$PROJECT/deploy/kubernetes" --timeout=200s >/dev/null
  until_true "an error in the pod" 120 says fails
  install_driver
  until_true "a pod that writes again" 240 says works
  until_true "protection" 60 protected
  k delete pod user --wait --timeout=90s >/dev/null
  same "mounts" "$(mounts_of "$(volume_of left)" | grep '/mount$')" ""
}

helm_installs_upgrades_and_uninstalls_the_driver() { # at most 900 s
  kubectl delete -k "$PROJECT/deploy/kubernetes" --timeout=200s >/dev/null
  # From the snapshots overlay, if it was installed.
  kubectl delete clusterrole,clusterrolebinding jfs-csi-snapshotter --ignore-not-found >/dev/null
  local chart=$PROJECT/deploy/helm/jfs-csi
  helm install jfs-csi "$chart" -n kube-system --set allow.inlineVolumes=true,controller.readsClaims=true \
    --wait --timeout 240s
  until_true "the driver in CSINode" 60 registered
  class_pod juicefs
  # The name of a node in a path pattern, which needs the token.
  example storageclass-path-pattern
  claim by-node 10Mi ReadWriteMany juicefs-by-node
  pod by-node by-node
  ready by-node
  # Inline volumes, which the default install refuses.
  example ephemeral
  kubectl wait --for=jsonpath='{.status.phase}'=Succeeded pod/scratch --timeout=120s >/dev/null
  kubectl delete -f "$PROJECT/deploy/examples/ephemeral.yaml" --timeout=90s >/dev/null
  helm upgrade jfs-csi "$chart" -n kube-system --reuse-values --set controller.replicas=1 --wait --timeout 240s
  same "controllers" "$(kubectl -n kube-system get deployment jfs-csi-controller -o jsonpath='{.spec.replicas}')" 1
  # The pod of the node is not replaced.
  within of-class 'echo still >/data/g'
  claim kept 50Mi
  journal kept
  helm upgrade jfs-csi "$chart" -n kube-system --reuse-values --set 'node.extraEnv[0].name=JFS_LOG,node.extraEnv[0].value=info' \
    --wait --timeout 240s
  rolled_out
  journal_goes_on "an upgrade of the chart"
  k delete pod,pvc --all --timeout=90s >/dev/null
  helm uninstall jfs-csi -n kube-system --wait --timeout 200s
  until_true "nothing is left" 90 nothing_left
  install_driver
}
