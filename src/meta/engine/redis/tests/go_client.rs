//! The Go client's records, read; ours, read by it.
