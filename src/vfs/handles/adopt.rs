//! Taking over the handles of a process that served the mount before, and leaving them to the next.

use std::collections::{HashMap, HashSet};

use nix::fcntl::OFlag;
use tracing::{error, warn};

use super::{Fh, FileHandle, Handle};
use crate::error::Result;
use crate::ledger::{HandleRecord, Ledger, Overflow};
use crate::meta::Ino;
use crate::meta::record::Attr;
use crate::vfs::Vfs;
use crate::vfs::dir::Dir;

impl Vfs {
    /// Opens what the ledger says that the kernel holds open, and fails the files whose written
    /// data was lost with the process before. Must be called before the first request.
    pub async fn adopt(&self) -> Result<()> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let files = self.adopt_handles(ledger).await?;
        self.fail_lost_files(ledger, &files);
        Ok(())
    }

    /// Flushes all written data.
    pub async fn flush_all(&self) -> Result<()> {
        self.content.close().await
    }

    /// Flushes all written data. The handles stay open, for the process that serves the mount next.
    /// Must be the last call.
    pub async fn hand_over(&self) -> Result<()> {
        self.virtual_files.close().await;
        self.content.close().await
    }

    /// Returns the files that are open, and whether they are open for writing.
    async fn adopt_handles(&self, ledger: &Ledger) -> Result<HashMap<Ino, bool>> {
        let handles = ledger.handles();
        let is_file = |handle: &HandleRecord| handle.flags & HandleRecord::DIRECTORY == 0;
        let inos: HashSet<Ino> = handles
            .iter()
            .filter(|(_, handle)| is_file(handle))
            .map(|(_, handle)| Ino(handle.ino))
            .collect();
        let inos: Vec<Ino> = inos.into_iter().collect();
        let attrs = self.meta.attrs(&inos).await?;
        let attrs: HashMap<Ino, Attr> =
            inos.into_iter().zip(attrs).filter_map(|(ino, attr)| Some((ino, attr?))).collect();
        let mut files = HashMap::new();
        for (slot, record) in handles {
            let (fh, ino) = (Fh(record.fh), Ino(record.ino));
            if !is_file(&record) {
                self.handles.adopt(fh, Handle::Dir(Box::new(Dir::new(ino))), slot);
                continue;
            }
            let Some(attr) = attrs.get(&ino) else {
                warn!(%ino, "an open file was deleted while no process served the mount");
                ledger.remove_handle(slot);
                continue;
            };
            self.meta.adopt_open_file(ino, attr);
            let reader = self.content.reader(ino, attr);
            self.handles.adopt(fh, Handle::File(FileHandle::new(reader, true)), slot);
            let flags = OFlag::from_bits_truncate(i32::try_from(record.flags).unwrap_or(0));
            *files.entry(ino).or_default() |= flags.intersects(OFlag::O_WRONLY | OFlag::O_RDWR);
        }
        Ok(files)
    }

    fn fail_lost_files(&self, ledger: &Ledger, files: &HashMap<Ino, bool>) {
        for (slot, ino) in ledger.dirty() {
            error!(ino, "data that was written but not flushed is lost: the process before died");
            if !self.content.fail_lost(Ino(ino), Some(slot)) {
                ledger.clear_dirty(slot);
            }
        }
        if ledger.overflowed(Overflow::Dirty) {
            error!("more files were dirty than the ledger can list: all that are open fail");
            for (ino, _) in files.iter().filter(|(_, writes)| **writes) {
                self.content.fail_lost(*ino, None);
            }
        }
    }
}
