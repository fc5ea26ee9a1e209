//! Options as the Go client names them, for whoever reads them: a command line, /etc/fstab, a
//! storage class, a Secret.
//!
//! Each knows what becomes of it in the layers below. What is wrong with one is said in words for
//! people.

pub mod arguments;
pub mod durations;
pub mod format;
pub mod home;
pub mod list;
pub mod mount;
pub mod sizes;
pub mod storage;
