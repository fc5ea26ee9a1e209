//! All about a node, by request.

use serde::Serialize;
use tracing::warn;

use super::answer::{Answer, reason};
use super::objects::{ObjectPart, Room, fragments, parts};
use super::request::Info;
use crate::chunk::ObjectStatus;
use crate::error::{Error, Result};
use crate::meta::client::{Progress, Summary, SummaryOptions};
use crate::meta::op::attrs::access;
use crate::meta::record::{Flock, LockKind, Plock, Slice};
use crate::meta::{Caller, Ino};
use crate::slice::SliceSize;
use crate::vfs::internal::Work;

/// What a path is told as that does not lie below the root of the mount.
const OUTSIDE: &str = "outside of the mounted directory";
/// Bytes that an entry of a list takes in the answer beside its key.
const WRITTEN: usize = 90;
/// The class of what cannot be found out.
const UNKNOWN: &str = "unknown";

/// Field for field what the tools read. A list without entries is `null`, but those of locks.
#[derive(Serialize, Default)]
#[serde(rename_all = "PascalCase")]
struct Response {
    ino: u64,
    failed: bool,
    reason: String,
    summary: Sum,
    paths: Option<Vec<String>>,
    chunks: Option<Vec<Chunk>>,
    objects: Option<Vec<Object>>,
    #[serde(rename = "PLocks")]
    plocks: Option<Vec<HeldRange>>,
    #[serde(rename = "FLocks")]
    flocks: Option<Vec<HeldFile>>,
    tier: Tier,
    restore_status: String,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "PascalCase")]
struct Sum {
    length: u64,
    size: u64,
    files: u64,
    dirs: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Chunk {
    #[serde(rename = "ChunkIndex")]
    index: u64,
    id: u64,
    size: u32,
    off: u32,
    len: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Object {
    chunk_index: u64,
    key: String,
    size: u32,
    off: u32,
    len: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct HeldRange {
    sid: u64,
    owner: u64,
    #[serde(rename = "Type")]
    kind: u32,
    pid: u32,
    start: u64,
    end: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct HeldFile {
    sid: u64,
    owner: u64,
    #[serde(rename = "Type")]
    kind: &'static str,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "PascalCase")]
struct Tier {
    #[serde(rename = "ID")]
    id: u8,
    storage_class: String,
    tag: String,
}

impl Work {
    pub async fn info(&self, caller: &Caller, ask: Info, answer: Answer) {
        let progress = Progress::default();
        let Info { ino, recursive, strict, .. } = ask;
        let mut response = Response { ino: ino.0, ..Response::default() };
        let mut room = Room::new(&self.memory);
        let work = async {
            self.may_read(caller, ino).await?;
            let of = SummaryOptions { recursive, strict };
            let sum = self.meta.summary_with(caller, ino, of, &progress).await?;
            // It only looks, so it can end anywhere.
            let described = self.describe(&ask, sum, (&mut response, &mut room));
            match answer.cancelled().run_until_cancelled(described).await {
                Some(outcome) => outcome,
                None => Err(Error::Interrupted),
            }
        };
        let shown = |progress: &Progress| (progress.done(), progress.bytes());
        let filled = answer.watch(&progress, shown, work).await;
        if let Err(error) = filled {
            if error.is_fault() {
                warn!(ino = ino.0, %error, "cannot tell all about a node");
            }
            response.failed = true;
            response.reason = reason(&error);
        }
        // What is said has its own.
        drop(room);
        answer.end_with(&response);
    }

    /// What is told of a file, where its bytes lie, is for those who may read them.
    pub async fn may_read(&self, caller: &Caller, ino: Ino) -> Result<()> {
        let attr = self.meta.getattr(ino).await?;
        if attr.is_file() { self.meta.permits(caller, &attr, access::READ).await } else { Ok(()) }
    }

    async fn describe(
        &self,
        ask: &Info,
        sum: Summary,
        (response, room): (&mut Response, &mut Room),
    ) -> Result<()> {
        let Summary { length, size, files, dirs } = sum;
        response.summary = Sum { length, size, files, dirs };
        response.tier = self.tier(ask.ino).await;
        response.paths = listed(self.paths(ask.ino).await?);
        if (files, dirs) == (1, 0) {
            let fragments = fragments(&self.meta, (ask.ino, length), room).await?;
            if ask.raw {
                room.take(fragments.len().saturating_mul(size_of::<Chunk>() + WRITTEN))?;
                response.chunks = listed(fragments.iter().map(Chunk::new).collect());
            } else {
                response.objects = listed(self.objects(&fragments, room)?);
                self.look_at_last(&fragments, response).await;
            }
        }
        let (flocks, plocks) = self.meta.locks_on(ask.ino).await?;
        response.flocks = Some(flocks.iter().map(HeldFile::new).collect());
        response.plocks = Some(plocks.iter().flat_map(HeldRange::of).collect());
        Ok(())
    }

    /// Where a node is, as seen from the root of the mount.
    pub async fn paths(&self, ino: Ino) -> Result<Vec<String>> {
        let paths = self.meta.paths_below(self.root, ino).await?;
        Ok(paths.into_iter().map(|path| path.unwrap_or_else(|| OUTSIDE.to_owned())).collect())
    }

    fn objects(&self, fragments: &[(u64, Slice)], room: &mut Room) -> Result<Vec<Object>> {
        let (layout, setting) = (self.store.layout(), self.meta.context().setting());
        let mut objects = Vec::new();
        for (chunk_index, fragment) in fragments {
            for part in parts(layout, &setting.name, fragment) {
                let ObjectPart { key, size, off, len } = part;
                room.take(size_of::<Object>() + 2 * key.len() + WRITTEN)?;
                objects.push(Object { chunk_index: *chunk_index, key, size, off, len });
            }
        }
        Ok(objects)
    }

    async fn tier(&self, ino: Ino) -> Tier {
        let unknown = |id| Tier { id, storage_class: UNKNOWN.to_owned(), tag: String::new() };
        let Ok(attr) = self.meta.getattr(ino).await else { return unknown(0) };
        match self.meta.context().setting().tier(attr.tier) {
            Some(tier) => Tier { id: tier.id, storage_class: tier.storage_class, tag: tier.tag },
            None => unknown(attr.tier),
        }
    }

    /// What the store of objects says of the last object: whether it is being restored, and which
    /// class it really has.
    async fn look_at_last(&self, fragments: &[(u64, Slice)], response: &mut Response) {
        let stored = fragments.iter().rev().find(|(_, fragment)| !fragment.id.is_hole());
        let Some((_, fragment)) = stored else { return };
        let slice = SliceSize { id: fragment.id, size: fragment.size };
        let end = fragment.off.saturating_add(fragment.len);
        let Some(found) = self.store.layout().block_ranges(slice, fragment.off..end).last() else {
            return;
        };
        match self.store.object_status(found.block).await {
            Ok(ObjectStatus { class, restore }) => {
                response.restore_status = restore;
                let tier = &mut response.tier;
                if tier.id == 0 && tier.storage_class.is_empty() {
                    tier.storage_class = format!("actual({class})");
                } else if class != tier.storage_class {
                    let expected = &tier.storage_class;
                    tier.storage_class = format!("expected({expected}),actual({class})");
                }
            }
            Err(error) => warn!(slice = slice.id.0, %error, "cannot look at an object"),
        }
    }
}

impl Chunk {
    fn new((index, fragment): &(u64, Slice)) -> Self {
        let Slice { id, size, off, len, .. } = *fragment;
        Self { index: *index, id: id.0, size, off, len }
    }
}

impl HeldFile {
    fn new(lock: &Flock) -> Self {
        let kind = if lock.kind == LockKind::Write { "W" } else { "R" };
        Self { sid: lock.sid.0, owner: lock.owner.0, kind }
    }
}

impl HeldRange {
    fn of(lock: &Plock) -> impl Iterator<Item = Self> {
        lock.ranges.iter().map(|range| Self {
            sid: lock.sid.0,
            owner: lock.owner.0,
            kind: u32::from(range.kind == LockKind::Write),
            pid: range.pid,
            start: range.start,
            end: range.end,
        })
    }
}

fn listed<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
