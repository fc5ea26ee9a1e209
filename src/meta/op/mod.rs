//! Operations: what each file-system operation means, one file each, for every engine.
//!
//! The shape is always: prefetch, look, refuse, compute, plan.

pub mod access;
pub mod acl;
pub mod atime;
pub mod claim;
pub mod clone;
pub mod compact;
pub mod copy;
pub mod delete_chunk;
pub mod delete_files;
mod dir_times;
pub mod drop_name;
pub mod drop_slice;
pub mod drop_sustained;
pub mod fallocate;
pub mod flock;
mod growth;
pub mod link;
mod log;
pub mod lookup;
pub mod make;
pub mod open;
pub mod plock;
pub mod read;
pub mod readlink;
mod removal;
pub mod rename;
pub mod rmdir;
pub mod room;
pub mod setattr;
pub mod truncate;
pub mod unlink;
pub mod unlink_many;
pub mod write;
pub mod xattr;
pub mod zeros;
