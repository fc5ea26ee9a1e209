# The permissions of the driver's accounts, by the API server's audit log of all earlier scenarios.

no_api_request_of_the_controller_is_refused() {
  same "refused API requests" "$(api_requests_of jfs-csi-controller 'select(.responseStatus.code == 403)')" ""
}

the_node_sends_no_api_requests() {
  same "API requests" "$(api_requests_of jfs-csi-node .)" ""
}
