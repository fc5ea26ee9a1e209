//! Checking the objects of files, many small ones together.

use std::collections::{BTreeMap, BTreeSet};

use super::block_check::{BadBlocks, BlockCheck};
use super::broken_files::{BrokenFile, FaultCounts, add_chunk, merged};
use super::report::Report;
use crate::chunk::BlockKey;
use crate::cli::progress::Tally;
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::client::check::CheckedFile;
use crate::meta::engine::{Engine, Key, Record};
use crate::meta::record::{CHUNK_SIZE, Slice, SliceSize};

/// Chunks that are in memory at once.
const CHUNKS: usize = 256;
/// The most chunks of a file that is asked for together with others.
const FEW_CHUNKS: u64 = 4;

/// Checks a group of files.
pub async fn check_files(
    check: &BlockCheck<'_>,
    files: Vec<CheckedFile>,
    listed: &Tally,
    report: &Report,
) -> anyhow::Result<()> {
    let engine = check.volume.meta.engine().as_ref();
    let files: BTreeMap<Ino, CheckedFile> =
        files.into_iter().map(|file| (file.ino, file)).collect();
    let mut broken: BTreeMap<Ino, (BrokenFile, FaultCounts)> = BTreeMap::new();
    let chunks = chunks_of(engine, &files).await?;
    for some in chunks.chunks(CHUNKS) {
        let records = read(engine, some, &files, report).await?;
        let mut blocks: BTreeSet<BlockKey> = BTreeSet::new();
        for record in records.iter().flatten().filter(|record| !record.id.is_hole()) {
            listed.add(1);
            report.add_used(1, record.size.into());
            let slice = SliceSize { id: record.id, size: record.size };
            blocks.extend(check.volume.layout.blocks(slice));
        }
        let mut bad = BadBlocks::new();
        check.check(blocks.into_iter(), true, &mut bad).await?;
        if bad.is_empty() {
            continue;
        }
        for ((ino, index), records) in some.iter().zip(&records) {
            let mut part = BrokenFile::default();
            let counts = add_chunk(&mut part, *index, records, check.volume.layout, &bad);
            if counts.total() > 0 {
                let (file, all) = broken.entry(*ino).or_default();
                file.lost.extend(part.lost);
                file.objects.extend(part.objects);
                all.merge(counts);
            }
        }
    }
    for (ino, (mut file, counts)) in broken {
        if let Some(CheckedFile { length, path, .. }) = files.get(&ino) {
            file.lost = merged(std::mem::take(&mut file.lost), *length);
            file.path.clone_from(path);
        }
        report.add_broken(ino, file, counts)?;
    }
    Ok(())
}

/// The chunks of the files.
async fn chunks_of(
    engine: &dyn Engine,
    files: &BTreeMap<Ino, CheckedFile>,
) -> Result<Vec<(Ino, u32)>> {
    let is_small = |file: &&CheckedFile| file.length.div_ceil(CHUNK_SIZE) <= FEW_CHUNKS;
    let (small, large): (Vec<_>, Vec<_>) = files.values().partition(is_small);
    let asked: Vec<(Ino, u64)> = small.iter().map(|file| (file.ino, file.length)).collect();
    let mut chunks = Vec::new();
    if !asked.is_empty() {
        for ((ino, _), indexes) in asked.iter().zip(engine.chunk_indexes_of(&asked).await?) {
            chunks.extend(indexes.into_iter().map(|index| (*ino, index)));
        }
    }
    for file in large {
        let indexes = engine.chunk_indexes(file.ino, file.length).await?;
        chunks.extend(indexes.into_iter().map(|index| (file.ino, index)));
    }
    Ok(chunks)
}

/// The records of chunks. One that cannot be decoded is reported and has none.
async fn read(
    engine: &dyn Engine,
    chunks: &[(Ino, u32)],
    files: &BTreeMap<Ino, CheckedFile>,
    report: &Report,
) -> Result<Vec<Vec<Slice>>> {
    let keys: Vec<Key> = chunks.iter().map(|(ino, index)| Key::Chunk(*ino, *index)).collect();
    match engine.read(&keys).await {
        Err(Error::Damaged { .. }) => {}
        other => return Ok(other?.into_iter().map(slices).collect()),
    }
    let mut all = Vec::with_capacity(keys.len());
    for (key, (ino, _)) in keys.iter().zip(chunks) {
        let record = match engine.read(std::slice::from_ref(key)).await {
            Ok(mut records) => records.pop().map(slices).unwrap_or_default(),
            Err(error @ Error::Damaged { .. }) => {
                let path = files.get(ino).map_or("", |file| file.path.as_str());
                report.add_unreadable(*ino, path, error);
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        all.push(record);
    }
    Ok(all)
}

fn slices(record: Record) -> Vec<Slice> {
    match record {
        Record::Chunk(slices) => slices,
        _ => Vec::new(),
    }
}
