//! Slice ranges: which bytes of which slices a range of a chunk shows, and where it has holes.

use bytes::Bytes;

use crate::chunk::SliceRange;
use crate::meta::record::Slice;
use crate::slice::SliceSize;

/// The memory that all holes are read from.
static ZEROS: [u8; 128 << 10] = [0; 128 << 10];

/// Returns the slice ranges that `start..end` of a chunk shows, given the view of the chunk.
pub fn slice_ranges(view: &[Slice], start: u32, end: u32) -> Vec<SliceRange> {
    let first = view.partition_point(|slice| slice.end() <= start);
    let (mut ranges, mut at) = (Vec::new(), start);
    for visible in view[first..].iter().take_while(|slice| slice.pos < end) {
        let stop = visible.end().min(end);
        let len = stop - at;
        if visible.id.is_hole() {
            ranges.push(SliceRange::hole(len));
        } else {
            let from = visible.off.saturating_add(at - visible.pos);
            let slice = SliceSize { id: visible.id, size: visible.size };
            ranges.push(SliceRange { slice, range: from..from.saturating_add(len) });
        }
        at = stop;
    }
    if at < end {
        ranges.push(SliceRange::hole(end - at));
    }
    ranges
}

/// Returns `len` zeros, without allocating.
pub fn zeros(len: usize) -> impl Iterator<Item = Bytes> {
    let whole = std::iter::repeat_n(Bytes::from_static(&ZEROS), len / ZEROS.len());
    let rest = len % ZEROS.len();
    whole.chain((rest > 0).then(|| Bytes::from_static(&ZEROS[..rest])))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::meta::record::visible_slices;
    use crate::slice::SliceId;

    fn slice(pos: u32, id: u64, len: u32) -> Slice {
        Slice { pos, id: SliceId(id), size: len + 5, off: 5, len }
    }

    fn shown(view: &[Slice], start: u32, end: u32) -> Vec<(u64, Range<u32>)> {
        slice_ranges(view, start, end).into_iter().map(|one| (one.slice.id.0, one.range)).collect()
    }

    #[test]
    fn a_range_shows_slices_and_holes() {
        let view = visible_slices(&[slice(10, 1, 10), slice(30, 2, 10)]);
        assert_eq!(shown(&view, 0, 5), [(0, 0..5)]);
        assert_eq!(shown(&view, 12, 15), [(1, 7..10)]);
        assert_eq!(shown(&view, 15, 35), [(1, 10..15), (0, 0..10), (2, 5..10)]);
        assert_eq!(shown(&view, 39, 50), [(2, 14..15), (0, 0..10)]);
        assert_eq!(shown(&view, 50, 60), [(0, 0..10)]);
        assert_eq!(shown(&[], 0, 60), [(0, 0..60)]);
    }

    #[test]
    fn zeros_share_one_buffer_and_are_as_many_as_asked_for() {
        for len in [0, 1, ZEROS.len(), ZEROS.len() + 1, 3 * ZEROS.len()] {
            let buffers: Vec<Bytes> = zeros(len).collect();
            assert_eq!(buffers.iter().map(Bytes::len).sum::<usize>(), len);
            assert!(buffers.iter().flatten().all(|byte| *byte == 0));
            assert!(buffers.iter().all(|buffer| buffer.as_ptr() == ZEROS.as_ptr()));
        }
    }
}
