//! The calls of the layers above, by subject.

pub mod content;
pub mod listing;
pub mod locks;
pub mod names;
mod paths;
mod permissions;
pub mod statfs;
pub mod trash;
mod xattrs;
