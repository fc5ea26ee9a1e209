# The events that a user sees when something is wrong.

a_missing_secret_is_named_in_an_event_of_the_claim() {
  class missing no-such-secret
  claim lost 10Mi ReadWriteMany "missing-$ns"
  expect_event lost 'no-such-secret'
}

a_secret_without_metadata_is_reported_in_an_event_of_the_claim() {
  secret incomplete 'name: demo'
  class incomplete "incomplete-$ns"
  claim lost 10Mi ReadWriteMany "incomplete-$ns"
  expect_event lost 'metaurl'
}

unreachable_metadata_is_reported_in_an_event_of_the_claim() {
  secret nobody "name: nobody, metaurl: 'redis://10.98.0.1:1/1', storage: minio, bucket: 'http://10.98.0.1:1/x'"
  class nobody "nobody-$ns"
  claim lost 10Mi ReadWriteMany "nobody-$ns"
  expect_event lost '10.98.0.1:1'
}

a_wrong_key_is_reported_in_an_event_and_not_shown() {
  secret wrong "name: wrong, metaurl: 'redis://redis.jfs-demo.svc.cluster.local:6379/9', storage: minio,
    bucket: 'http://minio.jfs-demo.svc.cluster.local:9000/wrong', access-key: jfs-demo, secret-key: of-somebody-else"
  class wrong "wrong-$ns"
  claim lost 10Mi ReadWriteMany "wrong-$ns"
  expect_event lost 'ProvisioningFailed'
  until_true "an event about the key" 60 has_event_matching lost 'denied|SignatureDoesNotMatch|signature|UNAUTHENTICATED|PermissionDenied' ||
    fail "$(events lost)"
  if events lost | grep -q 'of-somebody-else'; then fail "an event shows the key"; fi
}

an_unknown_option_is_named_in_an_event_of_the_claim() {
  class strange juicefs-secret 'mountOptions: [no-such-option=1]'
  claim strange 10Mi ReadWriteMany "strange-$ns"
  expect_event strange 'no-such-option'
}
