//! Work on whole trees.

mod change_group;
mod clone;
mod compact_tree;
pub mod progress;
pub mod remove;
pub mod summary;
pub mod tree_summary;
pub mod walk;
