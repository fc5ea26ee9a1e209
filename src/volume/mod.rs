//! One volume: what its setting says, put together.

pub mod storage;
