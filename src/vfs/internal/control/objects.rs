//! What a file is made of: its slices, and the objects that hold them.

use std::sync::Arc;

use crate::chunk::{Budget, Layout, Reserved};
use crate::error::{Error, Result};
use crate::meta::record::Slice;
use crate::meta::{Ino, Meta};
use crate::slice::SliceSize;

/// Room is taken in steps.
const STEP: usize = 64 << 10;

/// A part of an object, or of a hole, whose key is empty.
#[derive(Debug, PartialEq, Eq)]
pub struct ObjectPart {
    pub key: String,
    pub size: u32,
    pub off: u32,
    pub len: u32,
}

/// Memory for a list that grows: taken before the list does, so that it never has what is not there.
pub struct Room {
    memory: Arc<Budget>,
    held: Option<Reserved>,
    used: usize,
}

impl Room {
    pub fn new(memory: &Arc<Budget>) -> Self {
        Self { memory: Arc::clone(memory), held: None, used: 0 }
    }

    /// Room for so many bytes more.
    pub fn take(&mut self, bytes: usize) -> Result<()> {
        self.used += bytes;
        let held = self.held.as_ref().map_or(0, Reserved::bytes);
        if self.used <= held {
            return Ok(());
        }
        let more = (self.used - held).next_multiple_of(STEP);
        let room = self.memory.try_reserve(more).filter(|room| room.bytes() >= more);
        let room = room.ok_or(Error::NoMemory(more))?;
        match &mut self.held {
            Some(held) => held.merge(room),
            none => *none = Some(room),
        }
        Ok(())
    }
}

/// The visible fragments of a file, with the numbers of their chunks.
pub async fn fragments(
    meta: &Meta,
    (ino, length): (Ino, u64),
    room: &mut Room,
) -> Result<Vec<(u64, Slice)>> {
    let mut fragments = Vec::new();
    for index in meta.chunk_indexes(ino, length).await? {
        let view = meta.read(ino, index).await?;
        let found = view.iter().map(|slice| (u64::from(index), shown(slice)));
        for fragment in found {
            room.take(size_of_val(&fragment))?;
            fragments.push(fragment);
        }
    }
    Ok(fragments)
}

/// A hole is shown as large as it is.
fn shown(fragment: &Slice) -> Slice {
    let size = if fragment.id.is_hole() { fragment.len } else { fragment.size };
    Slice { size, ..*fragment }
}

/// The parts of objects that hold a fragment; the keys begin with the volume's name. None for a
/// fragment that is not within its slice.
pub fn parts(layout: Layout, volume: &str, fragment: &Slice) -> Vec<ObjectPart> {
    let Slice { id, size, off, len, .. } = *fragment;
    if id.is_hole() {
        return vec![ObjectPart { key: String::new(), size, off, len }];
    }
    let Some(end) = off.checked_add(len).filter(|end| *end <= size) else { return Vec::new() };
    let pieces = layout.block_ranges(SliceSize { id, size }, off..end);
    let part = |crate::chunk::BlockRange { block, range }| ObjectPart {
        key: format!("{volume}/{}", layout.key(block)),
        size: block.size,
        off: range.start,
        len: range.end - range.start,
    };
    pieces.map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::SliceId;

    const LAYOUT: Layout = Layout { block_size: 1000, hash_prefix: false };

    fn fragment(id: u64, size: u32, off: u32, len: u32) -> Slice {
        Slice { pos: 0, id: SliceId(id), size, off, len }
    }

    fn part(key: &str, size: u32, off: u32, len: u32) -> ObjectPart {
        ObjectPart { key: key.to_owned(), size, off, len }
    }

    #[test]
    fn a_fragment_lies_in_the_objects_that_it_touches() {
        let parts = parts(LAYOUT, "vol", &fragment(1234, 2500, 900, 1500));
        let expected = [
            part("vol/chunks/0/1/1234_0_1000", 1000, 900, 100),
            part("vol/chunks/0/1/1234_1_1000", 1000, 0, 1000),
            part("vol/chunks/0/1/1234_2_500", 500, 0, 400),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn a_list_that_does_not_fit_is_refused_while_it_grows() {
        let memory = Budget::new(256 << 10);
        let mut room = Room::new(&memory);
        let fits = (0..100_000).take_while(|_| room.take(100).is_ok()).count();
        assert!((2000..=2700).contains(&fits), "{fits}");
        assert!(memory.used() <= 256 << 10);
        drop(room);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_hole_has_no_object() {
        assert_eq!(parts(LAYOUT, "vol", &fragment(0, 70, 0, 70)), [part("", 70, 0, 70)]);
    }

    #[test]
    fn a_fragment_beyond_its_slice_has_none() {
        assert_eq!(parts(LAYOUT, "vol", &fragment(1, 100, 90, 20)), []);
        assert_eq!(parts(LAYOUT, "vol", &fragment(1, 100, u32::MAX, 20)), []);
    }
}
