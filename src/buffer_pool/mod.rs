//! Memory that begins on a page and is used again, for blocks and for what is read from files.
//!
//! Fresh memory costs more than the bytes that are copied into it: the kernel finds, clears and maps
//! each page of it. And where it begins matters: the allocator begins large memory 16 bytes behind a
//! page, and a copy from the beginning of a page to there is five times as slow as any other on
//! common processors, since each load waits for a store that has the same low bits.

mod buffer;
mod pool;

pub use buffer::Buffer;
pub use pool::{release_idle, set_limit};

/// As large as pages are anywhere that matters.
const SIZE: usize = 4096;

/// Smaller memory is copied in no time, and the allocator has it at hand.
const SMALLEST: usize = 32 << 10;
