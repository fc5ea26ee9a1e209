//! The controller of the CSI driver over its socket, on a real Redis server: the program is started
//! as Kubernetes starts it, and talked to as its sidecars do.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod copies;
mod deleting;
mod driver;
mod failing;
mod listing;
mod making;
mod namespaces;
mod patterns;
mod policy;
