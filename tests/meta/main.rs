//! Metadata operations, each behaviour once, on every engine.

#[path = "../support/mod.rs"]
mod support;

mod model;
mod names;
mod quota;
mod reference;
mod sessions;
mod usage;
