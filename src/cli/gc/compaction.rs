//! Compacting all chunks of a volume.

use futures::{StreamExt, stream};
use tracing::warn;

use super::Gc;
use super::report::Report;
use crate::cli::progress::Progress;
use crate::cli::volume_scan::ScannedVolume;
use crate::cli::volume_scan::slices::PAGE;
use crate::error::Error;
use crate::meta::client::Progress as Cancel;
use crate::meta::engine::Cursor;

impl Gc {
    pub(super) async fn compact_all(
        &self,
        volume: &ScannedVolume,
        cancel: &Cancel,
        shown: &Progress,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let compacted = shown.tally("Compacted chunks", None);
        let mut cursor = Cursor::Start;
        while cursor != Cursor::End {
            let page = volume.meta.engine().scan_chunks(&cursor, PAGE).await?;
            let is_worth = |slices: &Vec<_>| slices.len() > 1;
            let chunks =
                page.records.into_iter().filter(|c| c.slices.as_ref().is_some_and(is_worth));
            let work = stream::iter(chunks).map(|chunk| {
                let compacted = &compacted;
                async move {
                    cancel.check()?;
                    let done = volume.meta.compact(chunk.ino, chunk.index, true).await;
                    compacted.add(1);
                    match done {
                        // The file was removed meanwhile.
                        Ok(_) | Err(Error::NotFound) => Ok(0),
                        Err(error @ Error::Interrupted) => Err(error),
                        Err(error) => {
                            let (ino, index) = (chunk.ino.0, chunk.index);
                            warn!(ino, index, %error, "cannot compact a chunk");
                            Ok(1)
                        }
                    }
                }
            });
            let mut work = work.buffer_unordered(self.threads.into());
            while let Some(failed) = work.next().await {
                report.failed += failed?;
            }
            cursor = page.next;
        }
        volume.meta.idle().await;
        report.compacted_chunks = compacted.count();
        Ok(())
    }
}
