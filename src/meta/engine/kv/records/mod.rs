//! The record traits of [`KvEngine`](super::KvEngine): calls that need no plan.

mod bulk;
mod changelog;
mod garbage;
mod listing;
mod scan;
mod sessions;
mod update;
mod usage;
mod volume;
