//! The real Go client agrees: with what we write, about what it means, and at the same time.
#![cfg(test)]

mod bucket;
mod kernel;
mod log;
mod ours;
mod place;
mod play;
mod random;
mod same;
mod scripts;
mod step;
#[path = "../support/mod.rs"]
mod support;
