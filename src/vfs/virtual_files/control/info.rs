//! Describes a node by request.

use tracing::warn;

use super::objects::{GrowingMemory, ObjectRange, object_ranges, visible_slices};
use super::reply::{ReplyWriter, reason};
use crate::chunk::ObjectStatus;
use crate::error::{Error, Result};
use crate::meta::client::{Progress, Summary, SummaryOptions};
use crate::meta::op::attrs::access;
use crate::meta::record::{Flock, LockKind, Plock, Slice};
use crate::meta::{Caller, Ino};
use crate::slice::SliceSize;
use crate::vfs::control_protocol::{
    InfoFileLock, InfoObject, InfoRangeLock, InfoRequest, InfoResponse, InfoSlice, InfoSummary,
    InfoTier,
};
use crate::vfs::virtual_files::ControlContext;

/// Shown for a path outside the mounted directory.
const OUTSIDE: &str = "outside of the mounted directory";
/// Bytes that a list entry takes in the reply beside its key.
const WRITTEN: usize = 90;
/// The storage class if it cannot be determined.
const UNKNOWN: &str = "unknown";

impl ControlContext {
    pub async fn info(&self, caller: &Caller, request: InfoRequest, reply: ReplyWriter) {
        let progress = Progress::default();
        let InfoRequest { ino, recursive, strict, .. } = request;
        let mut response = InfoResponse::new(ino.0);
        let mut memory = GrowingMemory::new(&self.memory);
        let work = async {
            self.may_read(caller, ino).await?;
            let of = SummaryOptions { recursive, strict };
            let sum = self.meta.summary_with(caller, ino, of, &progress).await?;
            // It only reads, so it can be cancelled anywhere.
            let described = self.describe(&request, sum, &mut response, &mut memory);
            match reply.cancelled().run_until_cancelled(described).await {
                Some(outcome) => outcome,
                None => Err(Error::Interrupted),
            }
        };
        let shown = |progress: &Progress| (progress.done(), progress.bytes());
        let filled = reply.watch(&progress, shown, work).await;
        if let Err(error) = filled {
            if error.is_fault() {
                warn!(ino = ino.0, %error, "cannot describe a node");
            }
            response.failed = true;
            response.reason = reason(&error);
        }
        // The reply reserves its own memory.
        drop(memory);
        reply.end_with(&response);
    }

    /// Checks read permission: where the bytes of a file are stored is only for those who may read
    /// them.
    pub async fn may_read(&self, caller: &Caller, ino: Ino) -> Result<()> {
        let attr = self.meta.getattr(ino).await?;
        if attr.is_file() { self.meta.permits(caller, &attr, access::READ).await } else { Ok(()) }
    }

    async fn describe(
        &self,
        request: &InfoRequest,
        sum: Summary,
        response: &mut InfoResponse,
        memory: &mut GrowingMemory,
    ) -> Result<()> {
        let Summary { length, size, files, dirs } = sum;
        response.summary = InfoSummary { length, size, files, dirs };
        response.tier = Some(self.tier(request.ino).await);
        response.paths = listed(self.paths(request.ino).await?);
        if (files, dirs) == (1, 0) {
            let slices = visible_slices(&self.meta, request.ino, length, memory).await?;
            if request.raw {
                memory.take(slices.len().saturating_mul(size_of::<InfoSlice>() + WRITTEN))?;
                response.chunks =
                    listed(slices.iter().map(|(index, slice)| info_slice(*index, slice)).collect());
            } else {
                response.objects = listed(self.objects(&slices, memory)?);
                self.describe_last_object(&slices, response).await;
            }
        }
        let (flocks, plocks) = self.meta.locks_on(request.ino).await?;
        response.flocks = Some(flocks.iter().map(info_file_lock).collect());
        response.plocks = Some(plocks.iter().flat_map(info_range_locks).collect());
        Ok(())
    }

    /// Returns the paths of a node, relative to the root of the mount.
    pub async fn paths(&self, ino: Ino) -> Result<Vec<String>> {
        let paths = self.meta.paths_below(self.root, ino).await?;
        Ok(paths.into_iter().map(|path| path.unwrap_or_else(|| OUTSIDE.to_owned())).collect())
    }

    fn objects(
        &self,
        slices: &[(u64, Slice)],
        memory: &mut GrowingMemory,
    ) -> Result<Vec<InfoObject>> {
        let (layout, setting) = (self.store.layout(), self.meta.context().setting());
        let mut objects = Vec::new();
        for (chunk_index, slice) in slices {
            for range in object_ranges(layout, &setting.name, slice) {
                let ObjectRange { key, size, off, len } = range;
                memory.take(size_of::<InfoObject>() + 2 * key.len() + WRITTEN)?;
                objects.push(InfoObject {
                    chunk_index: *chunk_index,
                    key,
                    size: size.into(),
                    off: off.into(),
                    len: len.into(),
                });
            }
        }
        Ok(objects)
    }

    async fn tier(&self, ino: Ino) -> InfoTier {
        let unknown = |id| InfoTier { id, storage_class: UNKNOWN.to_owned(), tag: String::new() };
        let Ok(attr) = self.meta.getattr(ino).await else { return unknown(0) };
        match self.meta.context().setting().tier(attr.tier) {
            Some(tier) => {
                InfoTier { id: tier.id, storage_class: tier.storage_class, tag: tier.tag }
            }
            None => unknown(attr.tier),
        }
    }

    /// Reads from the object store whether the last object is being restored, and its actual
    /// storage class.
    async fn describe_last_object(&self, slices: &[(u64, Slice)], response: &mut InfoResponse) {
        let last = slices.iter().rev().find(|(_, slice)| !slice.id.is_hole());
        let Some((_, last)) = last else { return };
        let stored = SliceSize { id: last.id, size: last.size };
        let end = last.off.saturating_add(last.len);
        let Some(found) = self.store.layout().block_ranges(stored, last.off..end).last() else {
            return;
        };
        match self.store.object_status(found.block).await {
            Ok(ObjectStatus { class, restore }) => {
                response.restore_status = restore;
                let tier = response.tier.get_or_insert_default();
                if tier.id == 0 && tier.storage_class.is_empty() {
                    tier.storage_class = format!("actual({class})");
                } else if class != tier.storage_class {
                    let expected = &tier.storage_class;
                    tier.storage_class = format!("expected({expected}),actual({class})");
                }
            }
            Err(error) => {
                warn!(slice = stored.id.0, %error, "cannot read the attributes of an object");
            }
        }
    }
}

fn info_slice(chunk_index: u64, slice: &Slice) -> InfoSlice {
    let Slice { id, size, off, len, .. } = *slice;
    InfoSlice { chunk_index, id: id.0, size: size.into(), off: off.into(), len: len.into() }
}

fn info_file_lock(lock: &Flock) -> InfoFileLock {
    let kind = if lock.kind == LockKind::Write { "W" } else { "R" };
    InfoFileLock { sid: lock.sid.0, owner: lock.owner.0, kind: kind.to_owned() }
}

fn info_range_locks(lock: &Plock) -> impl Iterator<Item = InfoRangeLock> {
    lock.ranges.iter().map(|range| InfoRangeLock {
        sid: lock.sid.0,
        owner: lock.owner.0,
        kind: u32::from(range.kind == LockKind::Write),
        pid: range.pid,
        start: range.start,
        end: range.end,
    })
}

/// An empty list is `null` in the reply.
fn listed<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
