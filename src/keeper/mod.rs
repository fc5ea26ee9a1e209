//! The keeper: a process that holds file descriptors for the process that serves mounts, so that a
//! restart or crash of that process does not lose them.
//!
//! A FUSE connection lives as long as any process has a copy of its descriptor. The server *puts*
//! descriptors under a name; whoever serves next *gets* them. The keeper never looks into a descriptor,
//! so it needs no privileges and rarely changes.
//!
//! One client at a time is the *owner*: the one that serves, and may change what is held. Others
//! prepare, then *ask*. `ownership` has the rules, `protocol` the messages, [`server`] the loop,
//! [`client`] the other side. On a host without Kubernetes, [`supervise`] also starts and restarts the
//! server. Everything but the client runs in one thread, without a runtime and with little memory.

pub mod client;
mod connection;
mod listener;
mod ownership;
mod packet;
pub mod place;
mod protocol;
mod reexec;
pub mod run;
pub mod server;
pub mod supervise;

pub use client::{KeeperClient, KeeperEvent};
pub use protocol::MAX_DESCRIPTORS;
