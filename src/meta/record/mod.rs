//! Records: the typed things metadata consists of, and their bytes where engines share them.
//!
//! Pure data and pure functions; nothing here reads a store.

pub mod acl;
pub mod attr;
pub mod changelog;
pub mod chunk;
pub mod compaction;
pub mod counter;
pub mod delayed;
pub mod entry;
mod go_json;
pub mod lock;
pub mod quota;
pub mod secret;
pub mod session;
pub mod setting;
pub mod stat;
pub mod trash;
pub mod version;
pub mod view;

pub use acl::{AclEntry, AclKind, AclRule};
pub use attr::{Attr, FileKind};
pub use chunk::{CHUNK_SIZE, Slice};
pub use counter::Counter;
pub use delayed::SliceSize;
pub use entry::Entry;
pub use lock::{Flock, LockKind, Plock, PlockRange};
pub use quota::{Quota, QuotaKey};
pub use session::SessionInfo;
pub use setting::Setting;
pub use stat::DirStat;
