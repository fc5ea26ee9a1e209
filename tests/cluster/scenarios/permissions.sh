# The permissions of the driver's accounts, by the API server's audit log of all earlier scenarios.

no_api_request_of_the_controller_is_refused() {
  # In a namespace that is being deleted, nobody can create events.
  same "refused API requests" "$(api_requests_of jfs-csi-controller 'select(.responseStatus.code == 403)
    | select(any(.responseStatus.details.causes[]?; .reason == "NamespaceTerminating") | not)')" ""
}

no_permission_of_the_controller_is_unused() {
  # Not counted: reading one object of a kind that may be listed, and what only newer sidecars do.
  same "permissions without a request" "$(comm -23 \
    <(rules_of clusterrole/jfs-csi-controller clusterrole/jfs-csi-secrets role/jfs-csi-leader | grep -v volumeattributesclasses) \
    <(api_requests_of jfs-csi-controller 'select(.responseStatus.code < 400)'))" ""
}

the_node_sends_no_api_requests() {
  same "API requests" "$(api_requests_of jfs-csi-node .)" ""
}
