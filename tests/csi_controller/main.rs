//! The controller of the CSI driver over its socket, on a real Redis server: the program is started
//! as Kubernetes starts it, and called as its sidecars call it.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod create;
mod delete;
mod driver;
mod failures;
mod list;
mod namespaces;
mod path_patterns;
mod policy;
mod snapshots_and_clones;
