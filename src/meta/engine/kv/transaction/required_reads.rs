//! What a set of changes must read before it can be applied.

use std::collections::HashMap;

use crate::meta::engine::Change;
use crate::meta::engine::kv::keys::{StoreKey, prefix};
use crate::meta::engine::kv::store::Scan;
use crate::meta::record::chunk::SLICE_LEN;

#[derive(Debug, Default)]
pub(super) struct RequiredReads {
    pub points: Vec<Vec<u8>>,
    pub scans: Vec<Scan>,
    /// Chunks of which only this many bytes at the start must be as the plan read them.
    pub heads: HashMap<Vec<u8>, usize>,
}

impl RequiredReads {
    pub fn of(changes: &[Change]) -> Self {
        let mut required = Self::default();
        for change in changes {
            match change {
                Change::TouchDir { ino, .. } => required.points.push(StoreKey::Attr(*ino).encode()),
                Change::AddParent { ino, parent, .. } => {
                    required.points.push(StoreKey::Parent { ino: *ino, parent: *parent }.encode());
                }
                Change::AppendSlices { ino, index, .. } => {
                    required.points.push(StoreKey::Chunk(*ino, *index).encode());
                }
                Change::ReplaceSlices { ino, index, count, .. } => {
                    let key = StoreKey::Chunk(*ino, *index).encode();
                    required.heads.insert(key.clone(), count * SLICE_LEN);
                    required.points.push(key);
                }
                Change::AddSliceRef { slice, .. } => {
                    required.points.push(StoreKey::SliceRef(slice.id, slice.size).encode());
                }
                Change::PutFlock { ino, .. } | Change::RemoveFlock { ino, .. } => {
                    required.points.push(StoreKey::Flocks(*ino).encode());
                }
                Change::PutPlock { ino, .. } | Change::RemovePlock { ino, .. } => {
                    required.points.push(StoreKey::Plocks(*ino).encode());
                }
                Change::RemoveXattrs(ino) => required.list(prefix::xattrs(*ino)),
                Change::RemoveParents(ino) => required.list(prefix::parents(*ino)),
                _ => {}
            }
        }
        required
    }

    fn list(&mut self, prefix: Vec<u8>) {
        self.scans.push(Scan::prefix(prefix).keys_only());
    }
}
