//! Operations: what each file-system operation means, one file each, for every engine.
//!
//! The shape is always: prefetch, look, refuse, compute, plan.

pub mod access;
pub mod acl;
mod dir_times;
pub mod link;
mod log;
pub mod lookup;
pub mod make;
pub mod readlink;
mod removal;
pub mod rename;
pub mod rmdir;
pub mod room;
pub mod setattr;
pub mod unlink;
pub mod clone;
pub mod unlink_many;
