//! Operations: what each file-system operation means, one file each, for every engine.
//!
//! The shape is always: prefetch, look, refuse, compute, plan.

pub mod access;
pub mod acl;
pub mod claim;
pub mod clone;
mod dir_times;
pub mod flock;
pub mod link;
mod log;
pub mod lookup;
pub mod make;
pub mod plock;
pub mod readlink;
mod removal;
pub mod rename;
pub mod rmdir;
pub mod room;
pub mod setattr;
pub mod unlink;
pub mod unlink_many;
pub mod xattr;
