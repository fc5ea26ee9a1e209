//! Facts: what planning may know besides records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::acls::AclCache;
use super::changes::Changes;
use super::dirs::Dirs;
use super::open_files::OpenFiles;
use super::options::Options;
use super::parents::Parents;
use super::quotas::Quotas;
use super::usage::Usage;
use crate::meta::Sid;
use crate::meta::record::Setting;
use crate::sync::RwLock;

/// Plans only read it; the client keeps it up to date.
pub struct Facts {
    pub options: Options,
    pub open: OpenFiles,
    pub acls: AclCache,
    pub quotas: Quotas,
    pub usage: Usage,
    pub parents: Parents,
    pub dirs: Dirs,
    pub changes: Changes,
    setting: RwLock<Arc<Setting>>,
    sid: AtomicU64,
    logged: AtomicU64,
}

impl Facts {
    pub fn new(options: Options) -> Self {
        Self {
            open: OpenFiles::new(options.open_cache, options.open_cache_limit),
            acls: AclCache::default(),
            quotas: Quotas::default(),
            usage: Usage::default(),
            parents: Parents::default(),
            dirs: Dirs::default(),
            changes: Changes::default(),
            options,
            setting: RwLock::default(),
            sid: AtomicU64::new(0),
            logged: AtomicU64::new(0),
        }
    }

    pub fn setting(&self) -> Arc<Setting> {
        self.setting.read().clone()
    }

    pub(super) fn put_setting(&self, setting: Setting) {
        *self.setting.write() = Arc::new(setting);
    }

    /// Our session; 0 while there is no session record.
    pub fn sid(&self) -> Sid {
        Sid(self.sid.load(Ordering::Acquire))
    }

    pub(super) fn put_sid(&self, sid: Sid) {
        self.sid.store(sid.0, Ordering::Release);
    }

    /// The number of this client's next change log line.
    pub fn next_log_number(&self) -> u64 {
        self.logged.fetch_add(1, Ordering::Relaxed) + 1
    }
}
