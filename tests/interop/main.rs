//! The real Go client agrees: with what we write, about what it means, and at the same time.
#![cfg(test)]

mod bucket;
mod cli;
mod content;
mod kernel;
mod locks;
mod log;
mod opened;
mod ours;
mod place;
mod play;
mod race;
mod random;
mod same;
mod scripts;
mod sessions;
mod step;
#[path = "../support/mod.rs"]
mod support;
mod tools;
