# Outages of metadata and storage under a pod that writes. The scenarios start their own servers, since those
# of the examples keep nothing.

a_writer_continues_after_an_outage_of_metadata() { # at most 420 s
  outage redis 20
}

a_writer_continues_after_an_outage_of_storage() { # at most 420 s
  outage s3 20
}
