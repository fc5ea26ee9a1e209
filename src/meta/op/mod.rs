//! Operations: what each file-system operation means, one file each, for every engine.
//!
//! The shape is always: prefetch, look, refuse, compute, plan.

pub mod access;
pub mod atime;
pub mod compact;
pub mod copy;
pub mod delete_chunk;
pub mod drop_slice;
pub mod drop_sustained;
pub mod fallocate;
pub mod growth;
pub mod log;
pub mod open;
pub mod read;
pub mod room;
pub mod truncate;
pub mod write;
pub mod zeros;
