//! The context of planning: what operations may know besides the records they read.
//!
//! Plans only read it; the client keeps it up to date.

pub mod acl_cache;
pub mod ancestors;
pub mod changed_dirs;
pub mod cycle;
pub mod open_files;
mod options;
pub mod quotas;
pub mod volume_usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use acl_cache::AclCache;
use ancestors::ParentCache;
use changed_dirs::ChangedDirs;
use open_files::OpenFiles;
pub use options::{AtimeMode, Options};
use quotas::Quotas;
use volume_usage::VolumeUsage;

use super::Sid;
use super::record::Setting;
use crate::sync::RwLock;

/// Options, caches and usage of one client.
pub struct Context {
    pub options: Options,
    pub open: OpenFiles,
    pub acls: AclCache,
    pub quotas: Quotas,
    pub usage: VolumeUsage,
    pub parents: ParentCache,
    pub dirs: ChangedDirs,
    pub commits: CommitCounter,
    setting: RwLock<Arc<Setting>>,
    sid: AtomicU64,
    log_lines: AtomicU64,
}

impl Context {
    pub fn new(options: Options) -> Self {
        Self {
            open: OpenFiles::new(options.open_cache, options.open_cache_limit),
            acls: AclCache::default(),
            quotas: Quotas::default(),
            usage: VolumeUsage::default(),
            parents: ParentCache::default(),
            dirs: ChangedDirs::default(),
            commits: CommitCounter::default(),
            options,
            setting: RwLock::default(),
            sid: AtomicU64::new(0),
            log_lines: AtomicU64::new(0),
        }
    }

    pub fn setting(&self) -> Arc<Setting> {
        self.setting.read().clone()
    }

    pub(in crate::meta) fn put_setting(&self, setting: Setting) {
        *self.setting.write() = Arc::new(setting);
    }

    /// The session of this client; 0 without a session record.
    pub fn sid(&self) -> Sid {
        Sid(self.sid.load(Ordering::Acquire))
    }

    pub(in crate::meta) fn put_sid(&self, sid: Sid) {
        self.sid.store(sid.0, Ordering::Release);
    }

    /// Draws the number of this client's next change log line. A plan that is not committed leaves
    /// a gap in the numbers.
    pub fn next_log_number(&self) -> u64 {
        self.log_lines.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Counts the commits that this client has tried, so that a reader can tell whether its data is
/// older than they are.
#[derive(Debug, Default)]
pub struct CommitCounter(AtomicU64);

/// A commit in progress. It counts when this is dropped, whatever the outcome: also if the outcome
/// is unknown, or if the caller no longer waits for it.
pub struct CommitInProgress<'a>(&'a CommitCounter);

impl CommitCounter {
    pub fn begin(&self) -> CommitInProgress<'_> {
        CommitInProgress(self)
    }

    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for CommitInProgress<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::AcqRel);
    }
}
