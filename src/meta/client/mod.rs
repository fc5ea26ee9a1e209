//! The metadata client of one volume: sessions, caches, bookkeeping, background jobs, and the
//! methods that the layers above call.

mod access;
mod acls;
mod book;
mod caller;
mod changes;
mod clone;
mod compact_tree;
mod compaction;
mod content;
mod counts;
mod damage;
mod dir_stats;
mod dirs;
mod facts;
mod format;
mod garbage;
mod groups;
mod heartbeat;
mod host;
mod ids;
mod jobs;
mod life;
mod listing;
mod locks;
mod log;
mod metrics;
mod moves;
mod names;
mod op_times;
mod open;
mod open_files;
mod options;
mod owners;
mod parents;
mod progress;
mod quota_rules;
mod quotas;
mod remove;
mod ring;
mod session;
mod stale_sessions;
mod statfs;
mod summary;
mod trash;
mod tree;
mod tree_summary;
mod usage;
mod walk;
mod xattrs;

use std::sync::{Arc, Weak};

pub use caller::Caller;
pub use content::Opened;
pub use counts::Counts;
pub use facts::Facts;
pub use garbage::SliceStore;
pub use jobs::Job;
pub use listing::{DirEntry, Listing, Pages};
pub use names::NodeKind;
pub use open_files::{OpenFiles, View};
pub use options::{AtimeMode, Options};
pub use parents::{Climb, Step};
pub use progress::Progress;
pub use quota_rules::{Limits, QuotaCheck};
pub use remove::Removal;
pub use ring::Ring;
pub use session::Registration;
pub use statfs::StatFs;
pub use summary::{StatCheck, Summary, SummaryOf};
pub use trash::Restored;
pub use tree_summary::{TreeNode, TreeSummary};
pub use walk::{Visit, work_off};

use super::engine::Engine;
use super::run::Lanes;
use crate::sync::RwLock;
use book::Strays;
use compaction::Compactions;
use damage::Damage;
use dir_stats::DirStats;
use garbage::Garbage;
use ids::Ids;
use jobs::JobTimes;
use life::Life;
use locks::Locks;
use op_times::OpTimes;
use trash::HourDir;

/// One volume's metadata, as this client sees it.
pub struct Meta {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) facts: Facts,
    pub(super) lanes: Lanes,
    pub(super) counts: Counts,
    pub(super) times: OpTimes,
    dir_stats: DirStats,
    strays: Strays,
    life: Life,
    inode_ids: Ids,
    slice_ids: Ids,
    hour_dir: HourDir,
    locks: Locks,
    slices: RwLock<Vec<Arc<dyn SliceStore>>>,
    garbage: Garbage,
    compactions: Compactions,
    job_times: JobTimes,
    damage: Damage,
    /// For the tasks that this client starts.
    me: Weak<Self>,
}

impl Meta {
    pub fn new(engine: Arc<dyn Engine>, options: Options) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            garbage: Garbage::new(options.max_deletes),
            compactions: Compactions::default(),
            me: me.clone(),
            engine,
            facts: Facts::new(options),
            lanes: Lanes::new(),
            counts: Counts::default(),
            times: OpTimes::default(),
            job_times: JobTimes::default(),
            damage: Damage::default(),
            dir_stats: DirStats::default(),
            strays: Strays::default(),
            life: Life::default(),
            inode_ids: Ids::inodes(),
            slice_ids: Ids::slices(),
            hour_dir: HourDir::default(),
            locks: Locks::default(),
            slices: RwLock::default(),
        })
    }

    /// Gives metadata the data side that its garbage and compaction jobs need. There may be several
    /// of one volume; any will do.
    pub fn serve_slices(&self, slices: Arc<dyn SliceStore>) {
        self.slices.write().push(slices);
    }

    /// Takes it away again.
    pub fn stop_serving(&self, slices: &Arc<dyn SliceStore>) {
        let mut all = self.slices.write();
        all.retain(|one| !Arc::ptr_eq(one, slices));
    }

    pub(super) fn slice_store(&self) -> Option<Arc<dyn SliceStore>> {
        self.slices.read().first().cloned()
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }
}
