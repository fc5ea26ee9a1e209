//! The metadata client of one volume: sessions, caches, bookkeeping, background jobs, and the
//! methods that the layers above call.

mod book;
mod caller;
mod counts;
mod facts;
mod options;

use std::sync::Arc;

pub use caller::Caller;
pub use facts::Facts;
pub use options::Options;

use super::engine::Engine;
use super::run::Lanes;
use counts::Counts;

/// One volume's metadata, as this client sees it.
pub struct Meta {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) facts: Facts,
    pub(super) lanes: Lanes,
    pub(super) counts: Counts,
}
