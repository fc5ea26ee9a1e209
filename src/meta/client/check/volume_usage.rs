//! Counting the usage of the whole volume, and correcting the stored numbers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::error::Result;
use crate::meta::Ino;
use crate::meta::client::Meta;
use crate::meta::record::attr::align4k;
use crate::meta::record::{Attr, Counter};
use crate::sync::Mutex;

#[derive(Default)]
pub(super) struct VolumeCount {
    space: AtomicI64,
    inodes: AtomicI64,
    /// Files with several names, which count once.
    linked: Mutex<HashSet<Ino>>,
}

impl VolumeCount {
    pub fn add_dir(&self) {
        self.add(align4k(0));
    }

    pub fn add_file(&self, ino: Ino, attr: &Attr) {
        if attr.nlink <= 1 || self.linked.lock().insert(ino) {
            self.add(attr.space());
        }
    }

    fn add(&self, space: i64) {
        self.space.fetch_add(space, Ordering::Relaxed);
        self.inodes.fetch_add(1, Ordering::Relaxed);
    }
}

impl Meta {
    /// Stores the counted usage, with removed files that are still open.
    pub(super) async fn set_volume_usage(&self, count: &VolumeCount) -> Result<()> {
        for session in self.engine.sessions().await? {
            let open = self.engine.sustained(session.sid).await?;
            for attr in self.attrs(&open).await?.into_iter().flatten() {
                count.add(attr.space());
            }
        }
        let counted = [
            (Counter::UsedSpace, count.space.load(Ordering::Relaxed)),
            (Counter::TotalInodes, count.inodes.load(Ordering::Relaxed)),
        ];
        for (counter, counted) in counted {
            let stored = self.engine.counter(counter).await?;
            if stored != counted {
                self.engine.add_counter(counter, counted - stored).await?;
            }
        }
        Ok(())
    }
}
