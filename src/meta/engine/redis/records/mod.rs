//! How each kind of record is stored, as far as it is read and written outside of transactions.

mod acl;
mod bulk;
mod change_log;
mod counters;
mod dir_stats;
mod garbage;
pub(super) mod keyspace;
mod listing;
mod locks;
pub(super) mod quota;
mod scan;
mod sessions;
mod volume;
