//! Checking the objects of all files: the slices in metadata against a listing of the store.

use std::collections::HashSet;

use anyhow::Context;
use futures::StreamExt;

use super::Fsck;
use super::block_check::{BadBlocks, BlockCheck, add_bad};
use super::broken_files::{BrokenFile, FaultCounts, add_chunk, merged, nameless};
use super::report::Report;
use crate::cli::progress::Progress;
use crate::cli::volume_scan::ScannedVolume;
use crate::cli::volume_scan::objects::BlockName;
use crate::cli::volume_scan::passes::Pass;
use crate::cli::volume_scan::slice_table::{SliceTable, kind};
use crate::cli::volume_scan::slices::{Collector, PAGE, named, removed_files};
use crate::meta::Ino;
use crate::meta::client::Progress as Cancel;
use crate::meta::engine::Cursor;
use crate::meta::record::SliceSize;

/// Slices without references that are listed.
const MAX_DEAD: usize = 1 << 24;

impl Fsck {
    pub(super) async fn check_volume(
        &self,
        volume: &ScannedVolume,
        report: &Report,
        cancel: &Cancel,
        shown: &Progress,
    ) -> anyhow::Result<()> {
        let listed = shown.tally("Listed slices", None);
        let found = shown.tally("Found blocks", Some("Found data"));
        let skipped_slices = shown.tally("Skipped slices", None);
        let read = self.deep.then(|| shown.tally("Read blocks", Some("Read data")));
        let skipped = removed_files(&volume.meta).await?;
        // Before the chunks are scanned: a slice that is dead already and used later on is not
        // just being released.
        let dead = volume.meta.engine().dead_slices(MAX_DEAD).await?;
        let check = BlockCheck::new(volume, cancel, self.threads.into(), &found, false, read)?;
        let collector = Collector {
            volume,
            progress: cancel,
            skipped: &skipped,
            dead: &dead,
            max_slices: self.max_slices,
            listed: &listed,
            skipped_slices: Some(&skipped_slices),
        };
        let mut passes = collector.passes();
        let mut bad = BadBlocks::new();
        while let Some((pass, collected)) = passes.next().await? {
            report.add_used(collected.records, collected.bytes);
            let mut table = collected.table;
            for entry in table.iter().filter(|e| e.is(kind::DEAD) && e.is(kind::USED)) {
                report.add_unreferenced(entry.slice());
            }
            list(&check, pass, &mut table, &mut bad).await?;
            check_rest(&check, &table, &mut bad).await?;
        }
        report.set_found(found.count(), found.bytes());
        if !bad.is_empty() {
            find_files(volume, cancel, &bad, &skipped, report).await?;
        }
        Ok(())
    }
}

/// Counts the blocks of the slices whose objects exist.
async fn list(
    check: &BlockCheck<'_>,
    pass: Pass,
    table: &mut SliceTable,
    bad: &mut BadBlocks,
) -> anyhow::Result<()> {
    let layout = check.volume.layout;
    let mut pages = Box::pin(check.volume.pages());
    while let Some(page) = pages.next().await {
        check.cancel.check()?;
        let page = page.with_context(|| format!("cannot list {}", check.volume.objects.place()))?;
        for object in page {
            let Some(name) = BlockName::parse(&object.key) else { continue };
            if !pass.takes(name.slice) {
                continue;
            }
            check.found.add_data(1, object.size);
            let Some(block) = layout.parse(&object.key) else { continue };
            for entry in table.of(block.slice.0) {
                let slice = entry.slice();
                let count = slice.size.div_ceil(layout.block_size);
                if block.index < count && layout.block(slice, block.index) == block {
                    entry.add_found();
                    if let Some(fault) = check.size_fault(block, &object) {
                        add_bad(bad, block, fault)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Asks for the blocks that were not listed: they may have been uploaded meanwhile. In a deep
/// check, reads all others.
async fn check_rest(
    check: &BlockCheck<'_>,
    table: &SliceTable,
    bad: &mut BadBlocks,
) -> anyhow::Result<()> {
    let layout = check.volume.layout;
    let is_kept = |slice: &SliceSize, found: u32| found >= slice.size.div_ceil(layout.block_size);
    let needed = || table.iter().filter(|entry| entry.is(kind::USED | kind::DELAYED));
    let blocks = |slice: SliceSize| layout.blocks(slice);
    let incomplete = needed().filter(|entry| !is_kept(&entry.slice(), entry.found()));
    check.check(incomplete.flat_map(|entry| blocks(entry.slice())), true, bad).await?;
    if check.is_deep() {
        let known: HashSet<_> = bad.keys().copied().collect();
        let complete = needed().filter(|entry| is_kept(&entry.slice(), entry.found()));
        let rest = complete.flat_map(|entry| blocks(entry.slice()));
        check.check(rest.filter(|block| !known.contains(block)), false, bad).await?;
    }
    Ok(())
}

/// Finds the files that refer to bad blocks. A slice that no file refers to any more was released
/// since, and its objects were rightly deleted.
async fn find_files(
    volume: &ScannedVolume,
    cancel: &Cancel,
    bad: &BadBlocks,
    skipped: &HashSet<Ino>,
    report: &Report,
) -> anyhow::Result<()> {
    let slices: HashSet<u64> = bad.keys().map(|block| block.slice.0).collect();
    let mut cursor = Cursor::Start;
    while cursor != Cursor::End {
        cancel.check()?;
        let page = volume.meta.engine().scan_chunks(&cursor, PAGE).await?;
        for chunk in page.records {
            let is_bad = named(&chunk).any(|slice| slices.contains(&slice.id.0));
            if !is_bad || skipped.contains(&chunk.ino) {
                continue;
            }
            let records = chunk.slices.unwrap_or_default();
            let mut part = BrokenFile::default();
            let counts = add_chunk(&mut part, chunk.index, &records, volume.layout, bad);
            if counts.total() > 0 {
                report.add_broken(chunk.ino, part, counts)?;
            }
        }
        cursor = page.next;
    }
    if volume.setting.trash_days > 0 {
        find_delayed(volume, cancel, bad, report).await?;
    }
    for ino in report.broken_inodes() {
        let attr = volume.meta.attrs(&[ino]).await?.pop().flatten();
        let paths = volume.meta.paths(ino).await.unwrap_or_default();
        let path = paths.into_iter().next().unwrap_or_else(|| nameless(ino));
        let length = attr.map_or(u64::MAX, |attr| attr.length);
        report.complete(ino, |file| {
            file.path = path;
            file.lost = merged(std::mem::take(&mut file.lost), length);
        });
    }
    Ok(())
}

/// Reports bad blocks of slices that compaction has replaced, as the Go client does: under the root.
async fn find_delayed(
    volume: &ScannedVolume,
    cancel: &Cancel,
    bad: &BadBlocks,
    report: &Report,
) -> anyhow::Result<()> {
    let mut cursor = Cursor::Start;
    while cursor != Cursor::End {
        cancel.check()?;
        let page = volume.meta.engine().scan_delayed(&cursor, PAGE).await?;
        for slice in page.records.iter().flat_map(|list| &list.slices) {
            let mut part = BrokenFile::default();
            let mut counts = FaultCounts::default();
            for block in volume.layout.blocks(*slice) {
                if let Some(fault) = bad.get(&block) {
                    counts.add(fault, block.size);
                    let key = volume.layout.key(block);
                    part.objects.push((key, fault.clone()));
                }
            }
            if counts.total() > 0 {
                report.add_broken(Ino::ROOT, part, counts)?;
            }
        }
        cursor = page.next;
    }
    Ok(())
}
