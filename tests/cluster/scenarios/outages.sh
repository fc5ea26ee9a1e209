# Metadata and storage that go away under a pod that writes. They are servers of the scenario itself: those
# of the examples keep nothing.

a_writer_goes_on_after_metadata_was_away() { # at most 420 s
  outage redis 20
}

a_writer_goes_on_after_storage_was_away() { # at most 420 s
  outage s3 20
}
