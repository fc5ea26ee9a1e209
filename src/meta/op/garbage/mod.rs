//! Operations that release slices and delete what removed files leave behind.

pub mod compact;
pub mod delete_chunk;
pub mod delete_files;
pub mod drop_slice;
pub mod drop_sustained;
