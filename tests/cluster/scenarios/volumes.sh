# A claim, from its creation to its deletion.

two_pods_share_a_claim() {
  claim shared 10Mi
  pod one shared
  pod two shared
  ready one two
  within one 'echo hello >/data/said && sync'
  same "what the other pod reads" "$(within two 'cat /data/said')" hello
  within two 'mkdir /data/dir && mv /data/said /data/dir/'
  same "what the first pod lists" "$(within one 'ls -A /data')" dir
  # Listing the volume shows no virtual file that never ends.
  same "files" "$(within one 'find /data -type f | xargs md5sum | wc -l')" 1
}

a_deleted_claim_leaves_nothing_on_the_node() {
  claim short 10Mi
  pod user short
  ready user
  within user 'dd if=/dev/zero of=/data/f bs=1M count=2 && echo x >/data/g'
  local volume
  volume=$(volume_of short)
  [ -n "$(mounts_of "$volume")" ] || fail "the volume is mounted nowhere"
  k delete pod user --wait >/dev/null
  k delete pvc short --wait >/dev/null
  kubectl wait --for=delete "pv/$volume" --timeout=60s >/dev/null
  same "mounts" "$(mounts_of "$volume")" ""
  same "files" "$(find /var/lib/kubelet/pods /var/lib/kubelet/plugins -name "*$volume*")" ""
}

a_volume_grows_while_a_pod_uses_it() {
  claim growing 10Mi
  pod user growing
  ready user
  same "size" "$(within user "df -k /data | awk 'END { print \$2 }'")" 10240
  k patch pvc growing -p '{"spec":{"resources":{"requests":{"storage":"30Mi"}}}}' >/dev/null
  until_true "the claim's new size" 90 size_is growing 30Mi
  until_true "the new size in the pod" 90 grown
  within user 'dd if=/dev/zero of=/data/f bs=1M count=20'
}

a_read_write_once_pod_claim_has_only_one_pod() {
  claim alone 10Mi ReadWriteOncePod
  pod first alone
  ready first
  pod second alone
  expect_event second "ReadWriteOncePod"
  k delete pod first --wait >/dev/null
  ready second
}

a_pod_that_is_not_root_writes_by_its_group() {
  claim grouped 10Mi
  SPEC='securityContext: {runAsUser: 1000, runAsNonRoot: true, fsGroup: 2000}' pod user grouped
  ready user
  within user 'touch /data/mine'
  same "the group of the file" "$(within user 'stat -c %g /data/mine')" 2000
}

a_claim_that_waits_for_its_first_pod_is_bound_with_it() {
  class waiting juicefs-secret 'volumeBindingMode: WaitForFirstConsumer'
  claim late 10Mi ReadWriteMany "waiting-$ns"
  expect_event late WaitForFirstConsumer
  pod user late
  ready user
  within user 'echo x >/data/f'
}

a_directory_of_a_claim_is_mounted_by_subpath() {
  claim whole 10Mi
  MOUNT=', subPath: part/deep' pod user whole
  ready user
  within user 'echo deep >/data/file'
  pod all whole
  ready all
  same "what the whole claim has" "$(within all 'cat /data/part/deep/file')" deep
}
