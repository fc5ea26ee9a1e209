//! Records: the typed things metadata consists of, and their bytes where engines share them.
//!
//! Pure data and pure functions; nothing here reads a store.

pub mod acl;
#[cfg(test)]
mod any_bytes;
pub mod attr;
pub mod changelog;
pub mod chunk;
pub mod compaction;
pub mod counter;
pub mod delayed;
pub mod entry;
pub mod go_json;
pub mod lock;
pub mod quota;
pub mod secret;
pub mod session;
pub mod setting;
pub mod stat;
pub mod trash;
pub mod version;
pub mod view;

pub use crate::slice::SliceSize;
pub use acl::{AclEntry, AclKind, AclRule};
pub use attr::{Attr, FileKind};
pub use changelog::{LogLine, LogOp};
pub use chunk::{CHUNK_SIZE, Slice};
pub use compaction::{Compaction, plan_compaction};
pub use counter::Counter;
pub use entry::Entry;
pub use lock::{Flock, LockKind, Plock, PlockRange};
pub use quota::{Quota, QuotaKey};
pub use secret::Secret;
pub use session::SessionInfo;
pub use setting::Setting;
pub use stat::DirStat;
pub use trash::Trashed;
pub use version::{CLIENT_VERSION, Version};
pub use view::view;

/// The bytes of a hex dump, spaces left out.
#[cfg(test)]
pub(crate) fn hex(dump: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        dump.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks_exact(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}
