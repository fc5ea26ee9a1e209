//! Operations on the content of files.

mod charge_growth;
pub mod copy;
pub mod fallocate;
pub mod open;
pub mod read;
pub mod truncate;
pub mod write;
mod zero_ranges;
