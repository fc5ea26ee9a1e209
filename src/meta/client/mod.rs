//! The metadata client of one volume: the calls of the layers above, the run loop that commits
//! operations, sessions, usage accounting, and background work.

mod api;
mod background;
mod change_log;
pub mod check;
mod damage_log;
mod id_allocator;
mod metrics;
mod run;
mod session;
mod tree;
mod usage;

use std::sync::{Arc, Weak};

pub use super::context::open_files::{OpenFiles, View};
pub use api::content::Opened;
pub use api::listing::{DirEntry, Listing, Pages};
pub use api::names::NodeKind;
pub use api::statfs::StatFs;
pub use api::trash::Restored;
pub use background::garbage::SliceStore;
pub use background::jobs::Job;
pub use metrics::counts::Counts;
pub use session::Registration;
pub use tree::progress::Progress;
pub use tree::remove::Removal;
pub use tree::summary::{StatCheck, Summary, SummaryOptions};
pub use tree::tree_summary::{TreeNode, TreeSummaryOptions};
pub use tree::walk::{Visit, run_work_list};
pub use usage::quota_limits::{Limits, QuotaCheck};

use super::Options;
use super::context::Context;
use super::engine::Engine;
use crate::sync::RwLock;
use api::locks::Locks;
use api::trash::HourDir;
use background::compaction::Compactions;
use background::garbage::Garbage;
use background::jobs::JobTimes;
use damage_log::DamageLog;
use id_allocator::IdAllocator;
use metrics::op_times::OpTimes;
use run::TxnLocks;
use session::lifecycle::Lifecycle;
use usage::accounting::PendingCharges;
use usage::dir_stats::DirStats;

/// The metadata client of one volume.
pub struct Meta {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) context: Context,
    pub(super) txn_locks: TxnLocks,
    pub(super) counts: Counts,
    pub(super) times: OpTimes,
    dir_stats: DirStats,
    pending_charges: PendingCharges,
    lifecycle: Lifecycle,
    inode_ids: IdAllocator,
    slice_ids: IdAllocator,
    hour_dir: HourDir,
    locks: Locks,
    slices: RwLock<Vec<Arc<dyn SliceStore>>>,
    garbage: Garbage,
    compactions: Compactions,
    job_times: JobTimes,
    damage: DamageLog,
    /// Lets `&self` methods spawn tasks that own the client.
    me: Weak<Self>,
}

impl Meta {
    pub fn new(engine: Arc<dyn Engine>, options: Options) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            garbage: Garbage::new(options.max_deletes),
            compactions: Compactions::default(),
            me: me.clone(),
            engine,
            context: Context::new(options),
            txn_locks: TxnLocks::new(),
            counts: Counts::default(),
            times: OpTimes::default(),
            job_times: JobTimes::default(),
            damage: DamageLog::default(),
            dir_stats: DirStats::default(),
            pending_charges: PendingCharges::default(),
            lifecycle: Lifecycle::default(),
            inode_ids: IdAllocator::inodes(),
            slice_ids: IdAllocator::slices(),
            hour_dir: HourDir::default(),
            locks: Locks::default(),
            slices: RwLock::default(),
        })
    }

    /// Attaches a store of slices, which garbage collection and compaction need. A volume may have
    /// several; any of them can be used.
    pub fn attach_slice_store(&self, slices: Arc<dyn SliceStore>) {
        self.slices.write().push(slices);
    }

    /// Detaches a store of slices.
    pub fn detach_slice_store(&self, slices: &Arc<dyn SliceStore>) {
        let mut all = self.slices.write();
        all.retain(|one| !Arc::ptr_eq(one, slices));
    }

    pub(super) fn slice_store(&self) -> Option<Arc<dyn SliceStore>> {
        self.slices.read().first().cloned()
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }
}
