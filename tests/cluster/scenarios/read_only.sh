# Read-only claims.

a_read_only_claim_is_read_only_in_the_pod_and_on_the_host() {
  claim readers 10Mi ReadOnlyMany
  # The pod does not request it.
  pod reader readers
  ready reader
  if within reader 'touch /data/f'; then fail "the pod writes"; fi
  local at count=0
  for at in $(mounts_of "$(volume_of readers)" | grep '/mount$'); do
    count=$((count + 1))
    if touch "$at/f"; then fail "the host writes to $at"; fi
  done
  same "mounts of the pod" "$count" 1
}

a_pod_with_a_read_only_mount_cannot_write() {
  claim both 10Mi
  pod writer both
  VOLUME=', readOnly: true' pod reader both
  ready writer reader
  within writer 'echo data >/data/f'
  same "what the reader reads" "$(within reader 'cat /data/f')" data
  if within reader 'touch /data/g'; then fail "the reader writes"; fi
  within writer 'touch /data/g'
}
