//! What waits for deletion: the trash, removed files, replaced slices, slices without references,
//! and chunks without a file.

use tracing::warn;

use super::Gc;
use super::report::Report;
use crate::cli::progress::Progress;
use crate::cli::volume_scan::ScannedVolume;
use crate::cli::volume_scan::passes::Pass;
use crate::cli::volume_scan::slice_table::{SliceTable, kind};
use crate::cli::volume_scan::slices::{PAGE, removed_files};
use crate::meta::client::Progress as Cancel;
use crate::meta::engine::{Cursor, Key};
use crate::meta::record::SliceSize;
use crate::meta::{Ino, Timestamp};

/// Removed files of one listing.
const FILES: usize = 100_000;
/// Slices deleted between two looks at Ctrl-C.
const SLICES: usize = 1000;
const DAY: i64 = 86_400;

impl Gc {
    /// Empties the trash up to `edge`, and removes what clients that died have left.
    pub(super) async fn clean_trash(
        &self,
        volume: &ScannedVolume,
        edge: i64,
        shown: &Progress,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let cleaned = shown.tally("Cleaned trash", None);
        // What fails is tried again by the next run, and must not prevent the rest.
        match volume.meta.clean_trash_before(edge).await {
            Ok(count) => cleaned.add(count),
            Err(error) => {
                warn!(%error, "cannot empty the trash");
                report.failed += 1;
            }
        }
        report.trash = cleaned.count();
        let detached = shown.tally("Cleaned detached nodes", None);
        match volume.meta.clean_detached(Timestamp::now().sec - DAY).await {
            Ok(count) => detached.add(count),
            Err(error) => {
                warn!(%error, "cannot remove incomplete clones");
                report.failed += 1;
            }
        }
        report.detached = detached.count();
        // Their removed files that were still open.
        volume.meta.clean_stale_sessions().await?;
        volume.meta.idle().await;
        Ok(())
    }

    /// Counts removed files, and deletes their data.
    pub(super) async fn clean_files(
        &self,
        volume: &ScannedVolume,
        cancel: &Cancel,
        shown: &Progress,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let pending = shown.tally("Pending deleted files", Some("Pending deleted data"));
        let cleaned = shown.tally("Cleaned pending files", Some("Cleaned pending data"));
        loop {
            cancel.check()?;
            let files = volume.meta.engine().deleted_files(i64::MAX, FILES).await?;
            let bytes = files.iter().map(|file| file.length).sum();
            pending.add_data(files.len() as u64, bytes);
            let is_last = files.len() < FILES;
            if self.delete {
                let done = volume.meta.delete_removed_files(&files).await;
                cleaned.add_data(done, bytes);
                if done < files.len() as u64 {
                    report.failed += files.len() as u64 - done;
                    break;
                }
            }
            if is_last || !self.delete {
                break;
            }
        }
        report.pending_files = (pending.count(), pending.bytes());
        report.cleaned_files = (cleaned.count(), cleaned.bytes());
        Ok(())
    }

    /// Finds chunks whose file does not exist and is not about to be deleted.
    pub(super) async fn clean_chunks(
        &self,
        volume: &ScannedVolume,
        cancel: &Cancel,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let meta = &volume.meta;
        let removed = removed_files(meta).await?;
        let mut cursor = Cursor::Start;
        while cursor != Cursor::End {
            cancel.check()?;
            let page = meta.engine().scan_chunks(&cursor, PAGE).await?;
            let inos: Vec<Ino> = page.records.iter().map(|chunk| chunk.ino).collect();
            for (chunk, attr) in page.records.iter().zip(meta.attrs(&inos).await?) {
                if attr.is_some() || removed.contains(&chunk.ino) {
                    continue;
                }
                // A damaged attr is none either, but the node exists.
                if meta.engine().read(&[Key::Attr(chunk.ino)]).await.is_err() {
                    continue;
                }
                warn!(ino = chunk.ino.0, index = chunk.index, "found a chunk without a file");
                report.leaked_chunks += 1;
                if self.delete
                    && let Err(error) = meta.delete_leaked_chunk(chunk.ino, chunk.index).await
                {
                    warn!(ino = chunk.ino.0, index = chunk.index, %error, "cannot delete a chunk");
                    report.failed += 1;
                }
            }
            cursor = page.next;
        }
        Ok(())
    }

    /// Deletes slices without references, except those that a file uses all the same.
    pub(super) async fn delete_dead(
        &self,
        volume: &ScannedVolume,
        pass: Pass,
        table: &SliceTable,
        dead: &[SliceSize],
        cancel: &Cancel,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let mine = dead.iter().filter(|slice| pass.takes(slice.id.0));
        let (used, unused): (Vec<SliceSize>, Vec<SliceSize>) =
            mine.partition(|slice| table.has(**slice, kind::USED));
        for slice in &used {
            warn!(slice = slice.id.0, size = slice.size, "a file uses a slice without references");
            report.unreferenced += 1;
        }
        for some in unused.chunks(SLICES) {
            cancel.check()?;
            let done = volume.meta.delete_slices(some.to_vec()).await;
            report.failed += some.len() as u64 - done;
        }
        Ok(())
    }

    /// Counts slices that compaction replaced, and releases those whose time is over.
    pub(super) async fn clean_delayed(
        &self,
        volume: &ScannedVolume,
        edge: i64,
        cancel: &Cancel,
        shown: &Progress,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let delayed = shown.tally("Trash slices", Some("Trash data"));
        let cleaned = shown.tally("Cleaned trash slices", Some("Cleaned trash data"));
        let mut cursor = Cursor::Start;
        while cursor != Cursor::End {
            cancel.check()?;
            let page = volume.meta.engine().scan_delayed(&cursor, PAGE).await?;
            for list in &page.records {
                let bytes = list.slices.iter().map(|slice| u64::from(slice.size)).sum();
                let count = list.slices.len() as u64;
                delayed.add_data(count, bytes);
                if self.delete && list.at < edge {
                    cleaned.add_data(count, bytes);
                }
            }
            cursor = page.next;
        }
        if self.delete && cleaned.count() > 0 {
            let days = volume.setting.trash_days;
            volume.meta.clean_delayed_slices(edge + days * DAY).await?;
        }
        report.delayed = (delayed.count(), delayed.bytes());
        report.cleaned_delayed = (cleaned.count(), cleaned.bytes());
        Ok(())
    }
}
