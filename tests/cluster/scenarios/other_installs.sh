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
  replace_node_pod
  same "containers of the node's pod" "$(kubectl -n kube-system get pod "$(node_pod)" -o jsonpath='{.spec.containers[*].name}')" \
    "jfs-csi csi-node-driver-registrar"
  until_true "the driver in CSINode" 60 registered
  class_pod juicefs
  k delete pod,pvc --all --timeout=90s >/dev/null
  kubectl apply -k "$PROJECT/deploy/kubernetes" >/dev/null
  replace_node_pod
  until_true "the driver in CSINode" 60 registered
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
  # The pod of the node, and so its volumes, are not replaced.
  within of-class 'echo still >/data/g'
  k delete pod,pvc --all --timeout=90s >/dev/null
  helm uninstall jfs-csi -n kube-system --wait --timeout 200s
  until_true "nothing is left" 90 nothing_left
  install_driver
}
