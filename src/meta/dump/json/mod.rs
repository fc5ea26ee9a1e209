//! Dumps as JSON: the tree as nested objects, which people can read.

pub mod export;
pub mod import;
mod model;
mod scanner;
mod tree;
mod write;
