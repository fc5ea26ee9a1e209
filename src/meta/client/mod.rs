//! The metadata client of one volume: sessions, caches, bookkeeping, background jobs, and the
//! methods that the layers above call.

mod acls;
mod book;
mod caller;
mod clone;
mod compaction;
mod content;
mod counts;
mod facts;
mod garbage;
mod ids;
mod jobs;
mod life;
mod listing;
mod names;
mod open_files;
mod options;
mod quotas;
mod remove;
mod summary;
mod trash;

use std::sync::{Arc, OnceLock, Weak};

pub use caller::Caller;
pub use content::Opened;
pub use facts::Facts;
pub use garbage::SliceStore;
pub use listing::{DirEntry, Listing};
pub use names::{NodeKind, TRASH_NAME};
pub use open_files::{OpenFiles, View};
pub use options::{AtimeMode, Options};
pub use trash::Restored;

use super::Ino;
use super::engine::Engine;
use super::run::Lanes;
use compaction::Compactions;
use counts::Counts;
use garbage::Garbage;
use ids::Ids;
use life::Life;
use trash::HourDir;

/// One volume's metadata, as this client sees it.
pub struct Meta {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) facts: Facts,
    pub(super) lanes: Lanes,
    pub(super) counts: Counts,
    inode_ids: Ids,
    slice_ids: Ids,
    hour_dir: HourDir,
    slices: OnceLock<Arc<dyn SliceStore>>,
    garbage: Garbage,
    compactions: Compactions,
    life: Life,
    /// For the tasks that this client starts.
    me: Weak<Self>,
}

impl Meta {
    pub fn new(engine: Arc<dyn Engine>, options: Options) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            garbage: Garbage::new(options.max_deletes),
            compactions: Compactions::default(),
            life: Life::default(),
            me: me.clone(),
            engine,
            facts: Facts::new(options),
            lanes: Lanes::new(),
            counts: Counts::default(),
            inode_ids: Ids::inodes(),
            slice_ids: Ids::slices(),
            hour_dir: HourDir::default(),
            slices: OnceLock::new(),
        })
    }

    /// Gives metadata the data side that its garbage and compaction jobs need. Only the first
    /// call counts.
    pub fn serve_slices(&self, slices: Arc<dyn SliceStore>) {
        let _ = self.slices.set(slices);
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// The inode a caller means: 1 is the root of this client, 0 the root of the volume.
    pub(super) fn real(&self, ino: Ino) -> Ino {
        match ino {
            Ino::ROOT => self.facts.root(),
            Ino::NONE => Ino::ROOT,
            other => other,
        }
    }
}
