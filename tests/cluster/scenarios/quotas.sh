# The size of a claim limits what fits into it, from the first moment on.

a_pod_sees_the_size_of_its_claim_at_once() {
  claim small 10Mi
  COMMAND='df -k /data | tail -n 1 | tr -s " " >/tmp/first; sleep infinity' pod user small
  ready user
  local first
  first=$(within user 'cat /tmp/first')
  same "1 KiB blocks of a claim of 10 MiB, and used" "$(cut -d' ' -f2,3 <<<"$first")" "10240 0"
}

concurrent_writes_count_for_the_quota() {
  claim small 10Mi
  COMMAND='dd if=/dev/zero of=/data/f bs=1M count=25 2>/tmp/said; sleep infinity' pod user small
  ready user
  until_true "the end of the writer" 60 within user 'grep -q . /tmp/said'
  contains "the writer" "$(within user 'cat /tmp/said')" "quota"
  local held
  held=$(within user 'du -k /data/f | cut -f1')
  [ "$held" -le 10240 ] || fail "$held KiB went into a claim of 10 MiB"
  # Later nothing more fits.
  sleep 15
  if within user 'dd if=/dev/zero of=/data/g bs=1M count=10'; then fail "10 MiB more went into it"; fi
}

removing_files_makes_space_again() {
  claim small 10Mi
  pod user small
  ready user
  within user 'dd if=/dev/zero of=/data/f bs=1M count=9'
  if within user 'dd if=/dev/zero of=/data/g bs=1M count=9'; then fail "18 MiB went into a claim of 10 MiB"; fi
  within user 'rm /data/f /data/g'
  within user 'dd if=/dev/zero of=/data/h bs=1M count=9'
}

a_full_quota_is_an_event_of_the_pod() {
  claim full 10Mi
  pod user full
  ready user
  # To the last block: a write that does not fit as a whole is refused as a whole.
  within user 'dd if=/dev/zero of=/data/f bs=64k count=156 && i=0 && while dd if=/dev/zero of=/data/$i bs=4k count=1; do i=$((i + 1)); done' ||
    true
  expect_event user VolumeConditionAbnormal
  contains "the event" "$(events user | grep VolumeConditionAbnormal)" "full: no space left"
}

kubelet_reports_the_usage_of_a_volume() {
  claim counted 50Mi
  pod user counted
  ready user
  within user 'dd if=/dev/zero of=/data/f bs=1M count=20'
  until_true "20 MiB in kubelet_volume_stats_used_bytes" 90 used_at_least counted 20971520
  within user 'dd if=/dev/zero of=/data/g bs=1M count=10'
  until_true "30 MiB in kubelet_volume_stats_used_bytes" 90 used_at_least counted 31457280
}
