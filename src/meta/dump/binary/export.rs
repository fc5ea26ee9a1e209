//! Writing a binary dump: all records of the store, in its own order.

use std::sync::Arc;

use prost::Message;
use tokio::sync::mpsc;

use super::message::{
    Acl, Batch, Chunk, Counter, DelFile, Edge, Footer, Format, Node, Parent, Quota, SliceRef, Stat,
    Sustained, Symlink, Xattr,
};
use super::{FORMAT, MAGIC, VERSION, segment_name};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::dump::{ALL, DumpOptions, Progress, Skipped};
use crate::meta::engine::{Cursor, Engine, Part, Stored};
use crate::meta::record::{self, Setting, chunk};

/// Records of one segment.
const SEGMENT: usize = 10_000;
/// Chunks may be long: fewer of them.
const CHUNKS: usize = 1000;
/// Entries of one page of a large directory.
const PAGE: usize = 1000;

const COUNTERS: [record::Counter; 6] = [
    record::Counter::UsedSpace,
    record::Counter::TotalInodes,
    record::Counter::NextInode,
    record::Counter::NextChunk,
    record::Counter::NextSession,
    record::Counter::NextTrash,
];

/// Writes a dump to `out`, segment by segment.
pub async fn export(
    engine: Arc<dyn Engine>,
    setting: &Setting,
    options: &DumpOptions,
    out: mpsc::Sender<Vec<u8>>,
    progress: &Progress,
) -> Result<Skipped> {
    let shown = if options.keep_secrets { setting.clone() } else { setting.without_secrets() };
    let footer = Footer { magic: MAGIC, version: VERSION, ..Footer::default() };
    let mut writer = Writer {
        out,
        at: 0,
        footer,
        progress,
        skipped: Skipped::default(),
        batch: Batch::default(),
    };
    writer.segment(FORMAT, 1, &Format { data: shown.encode()? }).await?;
    for counter in COUNTERS {
        let value = engine.counter(counter).await?;
        writer.batch.counters.push(Counter { key: counter.name().to_owned(), value });
    }
    writer.flush().await?;
    writer.part(&engine, Part::Tree).await?;
    writer.rest(engine.as_ref()).await?;
    writer.part(&engine, Part::SliceRefs).await?;
    writer.part(&engine, Part::DirStats).await?;
    writer.finish().await?;
    Ok(writer.skipped)
}

struct Writer<'a> {
    out: mpsc::Sender<Vec<u8>>,
    /// Bytes written.
    at: u64,
    footer: Footer,
    progress: &'a Progress,
    skipped: Skipped,
    /// Records that are not yet written, of all kinds.
    batch: Batch,
}

impl Writer<'_> {
    async fn part(&mut self, engine: &Arc<dyn Engine>, part: Part) -> Result<()> {
        let mut cursor = Cursor::Start;
        // The next page is read while this one is written.
        let fetch = |cursor: Cursor| {
            let engine = Arc::clone(engine);
            tokio::spawn(async move { engine.scan_stored(part, &cursor).await })
        };
        let mut next = fetch(cursor);
        loop {
            let page = next.await.map_err(|lost| Error::lost_task("reading records", &lost))??;
            cursor = page.next;
            let is_last = cursor == Cursor::End;
            next = fetch(cursor);
            for what in page.damaged {
                self.skipped.damage(&what);
            }
            for record in page.records {
                self.add(record).await?;
            }
            for dir in page.large_dirs {
                self.large_dir(engine.as_ref(), dir).await?;
            }
            if is_last {
                next.abort();
                return self.flush().await;
            }
        }
    }

    async fn large_dir(&mut self, engine: &dyn Engine, dir: Ino) -> Result<()> {
        let mut cursor = Cursor::Start;
        while cursor != Cursor::End {
            let page = engine.list(dir, &cursor, PAGE).await?;
            for bad in page.invalid {
                let name = String::from_utf8_lossy(&bad.name).into_owned();
                self.skipped.damage(&format!("entry {name:?} of inode {dir}"));
            }
            for (name, entry) in page.entries {
                self.add(Stored::Entry(dir, name, entry)).await?;
            }
            cursor = page.next;
        }
        Ok(())
    }

    /// Writes the records that are few.
    async fn rest(&mut self, engine: &dyn Engine) -> Result<()> {
        for session in engine.sessions().await? {
            let inodes: Vec<u64> =
                engine.sustained(session.sid).await?.into_iter().map(|ino| ino.0).collect();
            if !inodes.is_empty() {
                self.batch.sustained.push(Sustained { sid: session.sid.0, inodes });
            }
        }
        self.flush().await?;
        for file in engine.deleted_files(i64::MAX, ALL).await? {
            self.add(Stored::DeletedFile(file)).await?;
        }
        for (id, rule) in engine.acls().await? {
            self.add(Stored::Acl(id, rule)).await?;
        }
        for (key, quota) in engine.quotas().await? {
            self.add(Stored::Quota(key, quota)).await?;
        }
        self.flush().await
    }

    async fn add(&mut self, record: Stored) -> Result<()> {
        let batch = &mut self.batch;
        match record {
            Stored::Attr(ino, attr) => {
                batch.nodes.push(Node { inode: ino.0, data: attr.encode().into() });
            }
            Stored::Entry(dir, name, entry) => batch.edges.push(Edge {
                parent: dir.0,
                inode: entry.ino.0,
                name: name.into_bytes().into(),
                kind: (entry.kind as u8).into(),
            }),
            Stored::Parent { ino, parent, count } => {
                batch.parents.push(Parent { inode: ino.0, dir: parent.0, count });
            }
            Stored::Chunk(ino, index, slices) => batch.chunks.push(Chunk {
                inode: ino.0,
                index,
                slices: chunk::encode(&slices).into(),
            }),
            Stored::SliceRef(slice, refs) => {
                batch.slice_refs.push(SliceRef { id: slice.id.0, size: slice.size, refs });
            }
            Stored::Symlink(ino, target) => {
                batch.symlinks.push(Symlink { inode: ino.0, target: target.into() });
            }
            Stored::Xattr(ino, name, value) => batch.xattrs.push(Xattr {
                inode: ino.0,
                name: name.to_string(),
                value: value.into(),
            }),
            Stored::DeletedFile(file) => batch.del_files.push(DelFile {
                inode: file.ino.0,
                length: file.length,
                expire: file.at,
            }),
            Stored::DirStat(ino, stat) => batch.dir_stats.push(Stat {
                inode: ino.0,
                data_length: stat.length,
                used_space: stat.space,
                used_inodes: stat.inodes,
            }),
            Stored::Acl(id, rule) => batch.acls.push(Acl { id, data: rule.encode().into() }),
            Stored::Quota(of, quota) => {
                let (kind, key) = of.number();
                let quotas = match kind {
                    0 => &mut batch.quotas,
                    1 => &mut batch.user_quotas,
                    _ => &mut batch.group_quotas,
                };
                quotas.push(Quota {
                    key,
                    max_space: quota.max_space,
                    max_inodes: quota.max_inodes,
                    used_space: quota.used_space,
                    used_inodes: quota.used_inodes,
                    kind: kind.into(),
                });
            }
            // These are written on their own.
            Stored::Counter(..) | Stored::Sustained(..) => {}
        }
        let longest = [
            batch.nodes.len(),
            batch.edges.len(),
            batch.parents.len(),
            batch.slice_refs.len(),
            batch.symlinks.len(),
            batch.xattrs.len(),
            batch.del_files.len(),
            batch.dir_stats.len(),
        ];
        let is_full = longest.into_iter().any(|len| len >= SEGMENT) || batch.chunks.len() >= CHUNKS;
        if is_full { self.flush().await } else { Ok(()) }
    }

    /// Writes one segment for each kind of record.
    async fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        macro_rules! segments {
            ($($kind:literal: $($field:ident),+;)*) => {$(
                let part = Batch { $($field: batch.$field,)+ ..Batch::default() };
                let count = 0 $(+ part.$field.len())+;
                if count > 0 {
                    self.segment($kind, count as u64, &part).await?;
                }
            )*};
        }
        segments! {
            2: counters;
            3: nodes;
            4: edges;
            5: chunks;
            6: slice_refs;
            7: symlinks;
            8: sustained;
            9: del_files;
            10: xattrs;
            11: acls;
            12: dir_stats;
            13: quotas, user_quotas, group_quotas;
            14: parents;
        }
        Ok(())
    }

    async fn segment(&mut self, kind: u32, count: u64, message: &impl Message) -> Result<()> {
        let len = message.encoded_len();
        let mut piece = Vec::with_capacity(len + 12);
        piece.extend(kind.to_be_bytes());
        piece.extend((len as u64).to_be_bytes());
        message.encode(&mut piece).map_err(|error| Error::internal("writing a dump", error))?;
        let info = self.footer.infos.entry(segment_name(kind)).or_default();
        info.offset.push(self.at);
        info.num += count;
        self.at += piece.len() as u64;
        self.progress.add(count);
        self.send(piece).await
    }

    async fn finish(&mut self) -> Result<()> {
        let mut piece = MAGIC.to_be_bytes().to_vec();
        let footer = self.footer.encode_to_vec();
        piece.extend(&footer);
        piece.extend((footer.len() as u64).to_be_bytes());
        self.send(piece).await
    }

    async fn send(&self, piece: Vec<u8>) -> Result<()> {
        // The writing thread has failed, and reports why.
        self.out.send(piece).await.map_err(|_| Error::Interrupted)
    }
}
