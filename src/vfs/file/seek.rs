//! lseek(2) for data and holes.

use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::record::{CHUNK_SIZE, Slice};
use crate::vfs::Vfs;

/// What lseek(2) looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    Data,
    Hole,
}

impl Vfs {
    /// Returns where the next data or hole begins, or `None` if there is none before the end of the
    /// file.
    pub async fn seek(&self, ino: Ino, off: u64, seek: Seek) -> Result<Option<u64>> {
        if self.virtual_files.attr(ino).is_some() {
            return Err(Error::Invalid);
        }
        // Uncommitted data is data, too.
        self.content.flush(ino).await?;
        let length = self.content.attr(ino).await?.length;
        if off >= length {
            return Ok(None);
        }
        let chunks = self.meta.chunk_indexes(ino, length).await?;
        let mut at = off;
        while at < length {
            let index = u32::try_from(at / CHUNK_SIZE).map_err(|_| Error::TooLarge)?;
            let start = u64::from(index) * CHUNK_SIZE;
            if chunks.binary_search(&index).is_err() {
                if seek == Seek::Hole {
                    return Ok(Some(at));
                }
                // Continue with the next chunk that exists.
                let next = chunks.partition_point(|chunk| *chunk < index);
                let Some(next) = chunks.get(next) else { return Ok(None) };
                at = u64::from(*next) * CHUNK_SIZE;
                continue;
            }
            let view = self.meta.read(ino, index).await?;
            let end = (start + CHUNK_SIZE).min(length);
            match find_in_view(&view, at - start, end - start, seek) {
                Some(found) => return Ok(Some(start + found)),
                None => at = start + CHUNK_SIZE,
            }
        }
        // The end of the file counts as a hole.
        Ok((seek == Seek::Hole).then_some(length))
    }
}

/// Returns where data or a hole begins in a chunk, from `at` on and before `end`. The slices of a
/// view follow each other without gaps. Those without an id are zeros, and so is everything after
/// the last one.
fn find_in_view(view: &[Slice], at: u64, end: u64, seek: Seek) -> Option<u64> {
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

    fn view(slices: &[(u64, u32)]) -> Vec<Slice> {
        let slice = |(id, len): &(u64, u32)| Slice {
            pos: 0,
            id: SliceId(*id),
            size: *len,
            off: 0,
            len: *len,
        };
        slices.iter().map(slice).collect()
    }

    #[test]
    fn data_and_holes_are_found_from_anywhere() {
        let view = view(&[(0, 10), (7, 10), (8, 10), (0, 10), (9, 10)]);
        let data = |at| find_in_view(&view, at, 100, Seek::Data);
        let hole = |at| find_in_view(&view, at, 100, Seek::Hole);
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
        assert_eq!(find_in_view(&view, 12, 20, Seek::Data), None);
        assert_eq!(find_in_view(&view, 0, 10, Seek::Hole), None);
        assert_eq!(find_in_view(&view, 20, 30, Seek::Hole), None);
    }
}
