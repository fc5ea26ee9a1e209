//! `.control`: what tools ask of a mount.
//!
//! A request is an opcode, a length and that many bytes, all big-endian, written in one piece or
//! several. The handle's text is the request and behind it the answer, which grows: frames of
//! progress, and at last either a byte, the errno, or data.

mod answer;
mod clone;
mod compact;
mod conversation;
mod fill;
mod info;
mod legacy;
mod objects;
mod reach;
mod remove;
mod request;
mod resolve;
mod summary;
mod transcript;

pub use conversation::Conversation;
