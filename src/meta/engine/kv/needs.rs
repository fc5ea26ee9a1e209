//! What a set of changes has to look at before it can be applied.

use std::collections::HashMap;

use super::keys::{StoreKey, prefix};
use super::store::Scan;
use crate::meta::engine::Change;
use crate::meta::record::chunk::SLICE_LEN;

/// What must be read before a set of changes can be applied.
#[derive(Debug, Default)]
pub(super) struct Needs {
    pub points: Vec<Vec<u8>>,
    pub scans: Vec<Scan>,
    /// Chunks of which only this many first bytes have to be as the plan read them.
    pub heads: HashMap<Vec<u8>, usize>,
}

impl Needs {
    pub fn of(changes: &[Change]) -> Self {
        let mut needs = Self::default();
        for change in changes {
            match change {
                Change::TouchDir { ino, .. } => needs.points.push(StoreKey::Attr(*ino).encode()),
                Change::AddParent { ino, parent, .. } => {
                    needs.points.push(StoreKey::Parent { ino: *ino, parent: *parent }.encode());
                }
                Change::AppendSlices { ino, index, .. } => {
                    needs.points.push(StoreKey::Chunk(*ino, *index).encode());
                }
                Change::ReplaceSlices { ino, index, count, .. } => {
                    let key = StoreKey::Chunk(*ino, *index).encode();
                    needs.heads.insert(key.clone(), count * SLICE_LEN);
                    needs.points.push(key);
                }
                Change::AddSliceRef { slice, .. } => {
                    needs.points.push(StoreKey::SliceRef(slice.id, slice.size).encode());
                }
                Change::PutFlock { ino, .. } | Change::RemoveFlock { ino, .. } => {
                    needs.points.push(StoreKey::Flocks(*ino).encode());
                }
                Change::PutPlock { ino, .. } | Change::RemovePlock { ino, .. } => {
                    needs.points.push(StoreKey::Plocks(*ino).encode());
                }
                Change::RemoveXattrs(ino) => needs.list(prefix::xattrs(*ino)),
                Change::RemoveParents(ino) => needs.list(prefix::parents(*ino)),
                _ => {}
            }
        }
        needs
    }

    fn list(&mut self, prefix: Vec<u8>) {
        self.scans.push(Scan::prefix(prefix).keys_only());
    }
}
