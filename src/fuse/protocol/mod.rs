//! The FUSE protocol: the layout of requests, replies and notifications, and the INIT handshake.
//!
//! Only bytes; nothing is sent or received here.

pub mod abi;
pub mod decode;
pub mod encode;
pub mod message_head;
pub mod negotiate;
