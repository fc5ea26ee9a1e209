//! Memory that begins on a page, for what is copied to and from the kernel and the pages of a file.
//!
//! The allocator begins large memory 16 bytes behind a page. A copy from the beginning of a page to
//! there is five times as slow as any other on common processors: each load waits for a store that
//! only seems to overlap, since both have the same low bits.

use bytes::{Buf, BytesMut};

/// As large as pages are anywhere that matters; what is copied has the low bits of an address alike.
const SIZE: usize = 4096;

/// Smaller memory is copied in no time.
const WORTH_IT: usize = 32 << 10;

/// Where the first page in this memory begins, which is no further than [`slack`].
pub fn begin(memory: &[u8]) -> usize {
    let address = memory.as_ptr().addr();
    address.next_multiple_of(SIZE) - address
}

/// How much more memory to ask for, so that `length` bytes fit from the beginning of a page on.
pub fn slack(length: usize) -> usize {
    if length < WORTH_IT { 0 } else { SIZE }
}

/// Room for so many bytes.
pub fn with_capacity(capacity: usize) -> BytesMut {
    let mut memory = BytesMut::with_capacity(capacity + slack(capacity));
    if slack(capacity) > 0 {
        // Whoever takes memory away at the front never moves the rest.
        let begin = begin(&memory);
        memory.resize(begin, 0);
        memory.advance(begin);
    }
    memory
}

/// So many zeros.
pub fn zeroed(length: usize) -> BytesMut {
    let mut memory = BytesMut::zeroed(length + slack(length));
    if slack(length) > 0 {
        let begin = begin(&memory);
        memory.advance(begin);
        memory.truncate(length);
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_at_a_page(memory: &[u8]) -> bool {
        memory.as_ptr().addr().is_multiple_of(SIZE)
    }

    #[test]
    fn large_memory_begins_on_a_page() {
        for length in [WORTH_IT, WORTH_IT + 1, 128 << 10, 4 << 20] {
            let zeros = zeroed(length);
            assert_eq!(zeros.len(), length);
            assert!(is_at_a_page(&zeros) && zeros.iter().all(|byte| *byte == 0));
            let mut room = with_capacity(length);
            assert!(room.is_empty() && room.capacity() >= length);
            room.extend_from_slice(&zeros);
            assert!(is_at_a_page(&room), "filling it does not move it");
            let place = room.as_ptr();
            assert_eq!(room.freeze().as_ptr(), place, "nor does freezing it");
        }
    }

    #[test]
    fn small_memory_is_no_larger_than_asked() {
        assert_eq!(zeroed(100).len(), 100);
        assert_eq!(with_capacity(100).capacity(), 100);
        assert_eq!(slack(100), 0);
    }

    #[test]
    fn the_first_page_is_found_wherever_memory_begins() {
        let memory = vec![0; 3 * SIZE];
        for start in [0, 1, 16, SIZE - 1, SIZE, SIZE + 1] {
            let part = &memory[start..];
            assert!(begin(part) < SIZE);
            assert!(is_at_a_page(&part[begin(part)..]));
        }
    }
}
