//! Metadata: the file-system operations, written once, over engines that store typed records byte
//! for byte as JuiceFS does.
//!
//! Knows nothing of blocks, objects or the kernel.

pub mod chunk_range;
pub mod client;
pub mod context;
pub mod dump;
pub mod engine;
mod ids;
pub mod op;
mod operation;
mod plan;
pub mod record;
mod request;
mod time;
mod txn;

pub use crate::slice::SliceId;
pub use client::{
    DirEntry, Limits, Listing, Meta, NodeKind, Pages, QuotaCheck, Registration, Restored,
    SliceStore, StatFs, Summary,
};
pub use context::{AtimeMode, Options};
pub use ids::{Caller, EntryRef, Ino, LockOwner, Name, Sid};
pub use operation::{Operation, TxnLock};
pub use plan::{Effects, Plan};
pub use request::{AttrSet, CloneMode, RenameMode, TimeSet, XattrMode};
pub use time::Timestamp;
pub use txn::MetaTxn;
