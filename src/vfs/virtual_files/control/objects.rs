//! The slices of a file, and the objects that hold them.

use std::sync::Arc;

use crate::chunk::{Budget, Layout, Reserved};
use crate::error::{Error, Result};
use crate::meta::record::Slice;
use crate::meta::{Ino, Meta};
use crate::slice::SliceSize;

/// Memory is reserved in steps.
const STEP: usize = 64 << 10;

/// A range of an object, or of a hole, whose key is empty.
#[derive(Debug, PartialEq, Eq)]
pub struct ObjectRange {
    pub key: String,
    pub size: u32,
    pub off: u32,
    pub len: u32,
}

/// Memory for a growing list, reserved before the list grows.
pub struct GrowingMemory {
    budget: Arc<Budget>,
    held: Option<Reserved>,
    used: usize,
}

impl GrowingMemory {
    pub fn new(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), held: None, used: 0 }
    }

    /// Reserves memory for this many more bytes.
    pub fn take(&mut self, bytes: usize) -> Result<()> {
        self.used += bytes;
        let held = self.held.as_ref().map_or(0, Reserved::bytes);
        if self.used <= held {
            return Ok(());
        }
        let more = (self.used - held).next_multiple_of(STEP);
        let memory = self.budget.try_reserve(more).filter(|memory| memory.bytes() >= more);
        let memory = memory.ok_or(Error::NoMemory(more))?;
        match &mut self.held {
            Some(held) => held.merge(memory),
            none => *none = Some(memory),
        }
        Ok(())
    }
}

/// Returns the visible slices of a file, with their chunk indexes.
pub async fn visible_slices(
    meta: &Meta,
    ino: Ino,
    length: u64,
    memory: &mut GrowingMemory,
) -> Result<Vec<(u64, Slice)>> {
    let mut slices = Vec::new();
    for index in meta.chunk_indexes(ino, length).await? {
        let view = meta.read(ino, index).await?;
        for slice in view.iter() {
            let slice = (u64::from(index), sized(slice));
            memory.take(size_of_val(&slice))?;
            slices.push(slice);
        }
    }
    Ok(slices)
}

/// A hole is shown with its length as its size.
fn sized(slice: &Slice) -> Slice {
    let size = if slice.id.is_hole() { slice.len } else { slice.size };
    Slice { size, ..*slice }
}

/// Returns the ranges of objects that hold a slice. Keys begin with the name of the volume. Empty
/// for a slice that exceeds its size.
pub fn object_ranges(layout: Layout, volume: &str, slice: &Slice) -> Vec<ObjectRange> {
    let Slice { id, size, off, len, .. } = *slice;
    if id.is_hole() {
        return vec![ObjectRange { key: String::new(), size, off, len }];
    }
    let Some(end) = off.checked_add(len).filter(|end| *end <= size) else { return Vec::new() };
    let blocks = layout.block_ranges(SliceSize { id, size }, off..end);
    let object_range = |crate::chunk::BlockRange { block, range }| ObjectRange {
        key: format!("{volume}/{}", layout.key(block)),
        size: block.size,
        off: range.start,
        len: range.end - range.start,
    };
    blocks.map(object_range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::SliceId;

    const LAYOUT: Layout = Layout { block_size: 1000, hash_prefix: false };

    fn slice(id: u64, size: u32, off: u32, len: u32) -> Slice {
        Slice { pos: 0, id: SliceId(id), size, off, len }
    }

    fn object_range(key: &str, size: u32, off: u32, len: u32) -> ObjectRange {
        ObjectRange { key: key.to_owned(), size, off, len }
    }

    #[test]
    fn a_slice_is_in_the_objects_that_it_touches() {
        let ranges = object_ranges(LAYOUT, "vol", &slice(1234, 2500, 900, 1500));
        let expected = [
            object_range("vol/chunks/0/1/1234_0_1000", 1000, 900, 100),
            object_range("vol/chunks/0/1/1234_1_1000", 1000, 0, 1000),
            object_range("vol/chunks/0/1/1234_2_500", 500, 0, 400),
        ];
        assert_eq!(ranges, expected);
    }

    #[test]
    fn a_list_that_does_not_fit_is_refused_as_it_grows() {
        let budget = Budget::new(256 << 10);
        let mut memory = GrowingMemory::new(&budget);
        let fits = (0..100_000).take_while(|_| memory.take(100).is_ok()).count();
        assert!((2000..=2700).contains(&fits), "{fits}");
        assert!(budget.used() <= 256 << 10);
        drop(memory);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_hole_has_no_object() {
        assert_eq!(
            object_ranges(LAYOUT, "vol", &slice(0, 70, 0, 70)),
            [object_range("", 70, 0, 70)]
        );
    }

    #[test]
    fn a_slice_that_exceeds_its_size_has_none() {
        assert_eq!(object_ranges(LAYOUT, "vol", &slice(1, 100, 90, 20)), []);
        assert_eq!(object_ranges(LAYOUT, "vol", &slice(1, 100, u32::MAX, 20)), []);
    }
}
