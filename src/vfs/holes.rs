//! Holes: which parts of a chunk hold data.

use super::io::Seek;
use crate::meta::record::Slice;

/// Where data or a hole begins in a chunk, from `at` on and before `end`. A view's slices follow
/// each other without gaps, those without an id are zeros, and so is what comes behind them.
pub fn find(view: &[Slice], at: u64, end: u64, seek: Seek) -> Option<u64> {
    let mut start = 0;
    for slice in view {
        let next = start + u64::from(slice.len);
        let is_data = slice.id.0 != 0;
        if next > at && is_data == (seek == Seek::Data) {
            return Some(start.max(at)).filter(|found| *found < end);
        }
        start = next;
    }
    match seek {
        Seek::Hole => Some(start.max(at)).filter(|found| *found < end),
        Seek::Data => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::SliceId;

    fn view(parts: &[(u64, u32)]) -> Vec<Slice> {
        let slice = |(id, len): &(u64, u32)| Slice {
            pos: 0,
            id: SliceId(*id),
            size: *len,
            off: 0,
            len: *len,
        };
        parts.iter().map(slice).collect()
    }

    #[test]
    fn data_and_holes_are_found_from_anywhere() {
        let view = view(&[(0, 10), (7, 10), (8, 10), (0, 10), (9, 10)]);
        let data = |at| find(&view, at, 100, Seek::Data);
        let hole = |at| find(&view, at, 100, Seek::Hole);
        assert_eq!(
            (data(0), data(10), data(15), data(29)),
            (Some(10), Some(10), Some(15), Some(29))
        );
        assert_eq!((data(30), data(45), data(50)), (Some(40), Some(45), None));
        assert_eq!((hole(0), hole(9), hole(10), hole(25)), (Some(0), Some(9), Some(30), Some(30)));
        assert_eq!((hole(40), hole(50), hole(60)), (Some(50), Some(50), Some(60)));
    }

    #[test]
    fn nothing_is_found_past_the_end() {
        let view = view(&[(7, 10), (0, 10), (8, 10)]);
        assert_eq!(find(&view, 12, 20, Seek::Data), None);
        assert_eq!(find(&view, 0, 10, Seek::Hole), None);
        assert_eq!(find(&view, 20, 30, Seek::Hole), None);
    }
}
