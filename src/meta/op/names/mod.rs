//! Operations on directory entries and the nodes behind them.

pub mod clone;
pub mod create;
pub mod link;
pub mod lookup;
pub mod readlink;
pub mod remove_dangling;
mod remove_link;
pub mod rename;
pub mod rmdir;
pub mod unlink;
pub mod unlink_many;
