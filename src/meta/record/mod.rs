//! Records: the types that metadata consists of, and their encodings where engines share them.
//!
//! Plain data and pure functions; nothing here reads a store.

pub mod acl;
pub mod attr;
pub mod changelog;
pub mod chunk;
pub mod counter;
pub mod dir_stat;
pub mod entry;
pub mod go_json;
pub mod lock;
pub mod quota;
pub mod session;
pub mod setting;
#[cfg(test)]
mod tests;
pub mod trash;

pub use crate::slice::SliceSize;
pub use acl::{AclEntry, AclKind, AclRule};
pub use attr::{Attr, FileKind};
pub use changelog::{LogLine, LogOp};
pub use chunk::compaction::{Compaction, plan_compaction};
pub use chunk::visible_slices::visible_slices;
pub use chunk::{CHUNK_SIZE, Slice, delayed_slices};
pub use counter::Counter;
pub use dir_stat::DirStat;
pub use entry::Entry;
pub use lock::{Flock, LockKind, Plock, PlockRange};
pub use quota::{Quota, QuotaKey};
pub use session::SessionInfo;
pub use setting::Setting;
pub use setting::secret::{self, Secret};
pub use setting::version::{self, CLIENT_VERSION, Version};
pub use trash::Trashed;

/// Returns the bytes of a hex dump, ignoring spaces.
#[cfg(test)]
pub(crate) fn hex(dump: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        dump.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks_exact(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}
