//! The virtual files of a mount, without a kernel: names and texts, and conversations with
//! `.control` byte for byte.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod cancel;
mod clone;
mod compact;
mod figures;
mod fill;
mod frames;
mod info;
mod isolation;
mod names;
mod remove;
mod scene;
mod summary;
mod texts;
