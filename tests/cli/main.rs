//! The program itself: what it does with its options, how it starts, what it says and how it ends.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod background;
mod bench;
mod foreground;
mod helper;
mod metrics;
mod options;
mod rig;
mod secrets;
mod unmounting;
