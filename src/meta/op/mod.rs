//! Operations: what each file-system operation means, one file each, for every engine.
//!
//! Each operation prefetches the records it needs, checks whether it is allowed, computes the new
//! records, and returns a plan.

pub mod attrs;
pub mod content;
pub mod garbage;
pub mod locks;
pub mod names;
pub mod quota_check;
