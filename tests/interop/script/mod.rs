//! Scripts of file system operations, run by either client.

pub mod change_log;
pub mod fixed;
pub mod on_client;
pub mod on_mount;
pub mod random;
pub mod runner;
pub mod step;
