//! The mounts of this node, and how the file systems behind them are reached.

pub mod access;
