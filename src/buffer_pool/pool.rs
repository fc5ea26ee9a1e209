//! The pool: unused memory, kept for the next buffer of the same size.

use std::time::{Duration, Instant};

use crate::sync::{Mutex, MutexGuard};

/// Default limit on pooled bytes.
const KEPT: usize = 32 << 20;
/// Memory unused for this long is returned to the system.
const LONG: Duration = Duration::from_secs(5);

/// The pool of this process.
pub static POOL: Pool = Pool::new();

pub struct Pool(Mutex<Free>);

struct Free {
    kept: usize,
    /// The most recently used memory is last.
    memory: Vec<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl Pool {
    const fn new() -> Self {
        Self(Mutex::new(Free { kept: KEPT, memory: Vec::new(), bytes: 0 }))
    }

    /// Returns memory of exactly this size, with arbitrary content.
    pub fn take(&self, size: usize) -> Vec<u8> {
        self.find(size).unwrap_or_else(|| vec![0; size])
    }

    /// Takes memory as [`Pool::take`] does, or returns `None` if there is no memory.
    pub fn try_take(&self, size: usize) -> Option<Vec<u8>> {
        self.find(size).or_else(|| zeroed(size))
    }

    fn find(&self, size: usize) -> Option<Vec<u8>> {
        let mut free = self.lock();
        // The most recently used memory is likely to be in the processor's cache.
        let found = free.memory.iter().rposition(|(_, memory)| memory.len() == size);
        let found = found.map(|at| free.memory.remove(at).1);
        if found.is_some() {
            free.bytes -= size;
        }
        drop(free);
        found
    }

    /// Returns memory to the pool. Beyond the limit, the oldest memory is freed.
    pub fn put_back(&self, memory: Vec<u8>) {
        let mut free = self.lock();
        free.bytes += memory.len();
        free.memory.push((Instant::now(), memory));
        let mut gone = Vec::new();
        while free.bytes > free.kept {
            let (_, oldest) = free.memory.remove(0);
            free.bytes -= oldest.len();
            gone.push(oldest);
        }
        // Freed outside the lock: that may take a while.
        drop(free);
    }

    fn release_idle(&self, age: Duration) {
        let mut free = self.lock();
        let old = free.memory.partition_point(|(since, _)| since.elapsed() >= age);
        let gone: Vec<_> = free.memory.drain(..old).collect();
        free.bytes -= gone.iter().map(|(_, memory)| memory.len()).sum::<usize>();
        drop(free);
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.0.lock()
    }
}

/// Returns zeroed memory, or `None` if there is none.
pub fn zeroed(size: usize) -> Option<Vec<u8>> {
    // Whether there is memory is asked for separately: clearing what was reserved would touch every
    // page, while the kernel gives out pages that are clear already.
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(size).ok()?;
    drop(std::hint::black_box(probe));
    Some(vec![0; size])
}

/// Limits the pooled bytes.
pub fn set_limit(bytes: usize) {
    POOL.lock().kept = bytes;
}

/// Returns memory that was not used for a while to the system. To be called periodically.
pub fn release_idle() {
    POOL.release_idle(LONG);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1 << 20;

    #[test]
    fn memory_is_reused_for_the_same_size() {
        let pool = Pool::new();
        let memory = pool.take(SIZE);
        let place = memory.as_ptr().addr();
        pool.put_back(memory);
        assert_eq!(pool.take(SIZE + 1).len(), SIZE + 1);
        let again = pool.take(SIZE);
        assert_eq!(again.as_ptr().addr(), place);
        assert_eq!(pool.lock().bytes, 0);
    }

    #[test]
    fn beyond_the_limit_the_newest_memory_stays() {
        let pool = Pool::new();
        for _ in 0..2 * KEPT / SIZE {
            pool.put_back(vec![1; SIZE]);
        }
        pool.put_back(vec![2; SIZE]);
        assert_eq!(pool.lock().bytes, KEPT);
        assert_eq!(pool.lock().memory.len(), KEPT / SIZE);
        assert_eq!(pool.take(SIZE)[0], 2);
    }

    #[test]
    fn unused_memory_is_returned_to_the_system() {
        let pool = Pool::new();
        pool.put_back(vec![7; SIZE]);
        pool.release_idle(Duration::from_hours(1));
        assert_eq!(pool.lock().bytes, SIZE);
        pool.release_idle(Duration::ZERO);
        assert_eq!(pool.lock().bytes, 0);
        assert_eq!(pool.take(SIZE)[0], 0, "it is fresh");
    }
}
