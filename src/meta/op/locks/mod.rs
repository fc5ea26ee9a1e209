//! Operations on file locks.

pub mod claim;
pub mod flock;
pub mod plock;
