//! `.control`: requests from tools.
//!
//! A request is an opcode, a length and that many bytes, all big-endian, written at once or in
//! several writes. The content of the handle is the request and after it the reply, which grows:
//! progress frames, and at the end either one byte, the errno, or data.

mod handle;
mod handle_buffer;
mod info;
mod legacy_info;
mod objects;
mod reply;
mod resolve;
mod trees;
mod warmup;

pub use handle::ControlHandle;
