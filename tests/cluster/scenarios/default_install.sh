# The driver as deploy/kubernetes installs it, before any other scenario.

the_default_install_registers_with_kubelet_by_itself() {
  until_true "the driver in CSINode" 60 registered
  same "containers of the node's pod" "$(kubectl -n kube-system get pod "$(node_pod)" -o jsonpath='{.spec.containers[*].name}')" jfs-csi
  local count
  count=$(kubectl get csinode "$NODE" -o jsonpath='{.spec.drivers[0].allocatable.count}')
  [ "$count" -gt 0 ] || fail "the node takes $count volumes"
}

one_of_two_controllers_is_the_leader() {
  same "ready controllers" "$(kubectl -n kube-system get deployment jfs-csi-controller -o jsonpath='{.status.readyReplicas}')" 2
  local holder
  holder=$(kubectl -n kube-system get lease csi-juicefs-com -o jsonpath='{.spec.holderIdentity}')
  [ -n "$holder" ] || fail "there is no leader"
  claim first 10Mi
  until_true "the claim is bound" 60 bound first
}
