//! Metadata: what each file-system operation means, written once, over engines that store typed
//! records byte for byte as JuiceFS does.
//!
//! Knows nothing of blocks, objects or the kernel.

pub mod client;
pub mod engine;
mod ids;
pub mod op;
mod plan;
pub mod record;
mod run;
mod time;
mod txn;

pub use crate::slice::SliceId;
pub use client::{
    AtimeMode, Caller, DirEntry, Limits, Listing, Meta, NodeKind, Options, Pages, QuotaCheck,
    Registration, Restored, SliceStore, StatFs, Summary,
};
pub use ids::{Ino, LockOwner, Name, Sid};
pub use plan::{Effects, Plan};
pub use run::{Lane, Operation};
pub use time::Timestamp;
pub use txn::MetaTxn;
