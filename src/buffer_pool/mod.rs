//! A pool of page-aligned memory, for blocks and for data read from files.
//!
//! Fresh memory costs more than copying bytes into it: the kernel must find, clear and map each
//! page. Alignment matters, too: the allocator places large memory 16 bytes after a page boundary,
//! and a copy to there from a page boundary is five times as slow as any other on common
//! processors, since each load waits for a store with the same low address bits.

mod buffer;
mod pool;

pub use buffer::Buffer;
pub use pool::{release_idle, set_limit};

/// The page size on all relevant platforms.
const SIZE: usize = 4096;

/// Smaller memory is not pooled: it is copied quickly, and the allocator has it at hand.
const SMALLEST: usize = 32 << 10;
