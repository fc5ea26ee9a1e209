# What a user is told when something is wrong.

a_secret_that_is_missing_is_named_in_an_event_of_the_claim() {
  class missing no-such-secret
  claim lost 10Mi ReadWriteMany "missing-$ns"
  told lost 'no-such-secret'
}

a_secret_without_metadata_is_told_in_an_event_of_the_claim() {
  secret incomplete 'name: demo'
  class incomplete "incomplete-$ns"
  claim lost 10Mi ReadWriteMany "incomplete-$ns"
  told lost 'metaurl'
}

metadata_that_does_not_answer_is_told_in_an_event_of_the_claim() {
  secret nobody "name: nobody, metaurl: 'redis://10.98.0.1:1/1', storage: minio, bucket: 'http://10.98.0.1:1/x'"
  class nobody "nobody-$ns"
  claim lost 10Mi ReadWriteMany "nobody-$ns"
  told lost '10.98.0.1:1'
}

a_wrong_key_is_told_in_an_event_and_not_shown() {
  secret wrong "name: wrong, metaurl: 'redis://redis.jfs-demo.svc.cluster.local:6379/9', storage: minio,
    bucket: 'http://minio.jfs-demo.svc.cluster.local:9000/wrong', access-key: jfs-demo, secret-key: of-somebody-else"
  class wrong "wrong-$ns"
  claim lost 10Mi ReadWriteMany "wrong-$ns"
  told lost 'ProvisioningFailed'
  until_true "a word about the key" 60 said_any lost 'denied|SignatureDoesNotMatch|signature|UNAUTHENTICATED|PermissionDenied' ||
    fail "$(events lost)"
  if events lost | grep -q 'of-somebody-else'; then fail "an event shows the key"; fi
}

an_option_that_nobody_knows_is_named_in_an_event_of_the_claim() {
  class strange juicefs-secret 'mountOptions: [no-such-option=1]'
  claim strange 10Mi ReadWriteMany "strange-$ns"
  told strange 'no-such-option'
}
