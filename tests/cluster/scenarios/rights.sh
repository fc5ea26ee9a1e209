# The rights of the driver's accounts, by what the API server wrote down of all scenarios before.

the_controller_is_refused_nothing_that_it_asks_for() {
  same "refused" "$(asked jfs-csi-controller 'select(.responseStatus.code == 403)')" ""
}

the_node_asks_nothing_of_the_api() {
  same "asked" "$(asked jfs-csi-node .)" ""
}
