//! The virtual files of a mount, without a kernel: names, texts, and the protocol of `.control`
//! byte for byte.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod cancel;
mod clone;
mod compact;
mod fixture;
mod info;
mod isolation;
mod metrics;
mod names;
mod protocol;
mod remove;
mod summary;
mod text_files;
mod warmup;
