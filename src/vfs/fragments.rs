//! Fragments: which bytes of which slices a range of a chunk shows, and zeros where there are none.

use std::ops::Range;

use bytes::Bytes;

use crate::chunk::{BlockKey, Layout};
use crate::meta::record::Slice;
use crate::slice::{SliceId, SliceSize};

/// Bytes of one slice; of [`SliceId::HOLE`], as many zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub slice: SliceSize,
    pub range: Range<u32>,
}

/// What all holes are made of.
static ZEROS: [u8; 128 << 10] = [0; 128 << 10];

impl Part {
    fn hole(len: u32) -> Self {
        Self { slice: SliceSize { id: SliceId::HOLE, size: 0 }, range: 0..len }
    }

    pub fn is_hole(&self) -> bool {
        self.slice.id.is_hole()
    }

    pub fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// The blocks that it lies in.
    pub fn blocks(&self, layout: Layout) -> impl Iterator<Item = BlockKey> + use<> {
        let range = if self.is_hole() { 0..0 } else { self.range.clone() };
        layout.block_ranges(self.slice, range).map(|found| found.block)
    }
}

/// What `start..end` of a chunk shows, of which this is the view.
pub fn parts(view: &[Slice], start: u32, end: u32) -> Vec<Part> {
    let first = view.partition_point(|fragment| fragment.end() <= start);
    let (mut parts, mut at) = (Vec::new(), start);
    for fragment in view[first..].iter().take_while(|fragment| fragment.pos < end) {
        let stop = fragment.end().min(end);
        let len = stop - at;
        if fragment.id.is_hole() {
            parts.push(Part::hole(len));
        } else {
            let from = fragment.off.saturating_add(at - fragment.pos);
            let slice = SliceSize { id: fragment.id, size: fragment.size };
            parts.push(Part { slice, range: from..from.saturating_add(len) });
        }
        at = stop;
    }
    if at < end {
        parts.push(Part::hole(end - at));
    }
    parts
}

/// As many zeros, without memory of their own.
pub fn zeros(len: usize) -> impl Iterator<Item = Bytes> {
    let whole = std::iter::repeat_n(Bytes::from_static(&ZEROS), len / ZEROS.len());
    let rest = len % ZEROS.len();
    whole.chain((rest > 0).then(|| Bytes::from_static(&ZEROS[..rest])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::record::visible_slices;

    fn slice(pos: u32, id: u64, len: u32) -> Slice {
        Slice { pos, id: SliceId(id), size: len + 5, off: 5, len }
    }

    fn shown(view: &[Slice], start: u32, end: u32) -> Vec<(u64, Range<u32>)> {
        parts(view, start, end).into_iter().map(|part| (part.slice.id.0, part.range)).collect()
    }

    #[test]
    fn a_range_shows_parts_of_slices_and_holes() {
        let view = visible_slices(&[slice(10, 1, 10), slice(30, 2, 10)]);
        assert_eq!(shown(&view, 0, 5), [(0, 0..5)]);
        assert_eq!(shown(&view, 12, 15), [(1, 7..10)]);
        assert_eq!(shown(&view, 15, 35), [(1, 10..15), (0, 0..10), (2, 5..10)]);
        assert_eq!(shown(&view, 39, 50), [(2, 14..15), (0, 0..10)]);
        assert_eq!(shown(&view, 50, 60), [(0, 0..10)]);
        assert_eq!(shown(&[], 0, 60), [(0, 0..60)]);
    }

    #[test]
    fn zeros_come_in_pages_and_are_as_many_as_asked() {
        for len in [0, 1, ZEROS.len(), ZEROS.len() + 1, 3 * ZEROS.len()] {
            let pieces: Vec<Bytes> = zeros(len).collect();
            assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), len);
            assert!(pieces.iter().flatten().all(|byte| *byte == 0));
            assert!(pieces.iter().all(|piece| piece.as_ptr() == ZEROS.as_ptr()));
        }
    }
}
