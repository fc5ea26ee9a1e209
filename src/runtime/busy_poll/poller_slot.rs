//! The slot of the one idle thread that waits for events. The other idle threads sleep until it has
//! more work than it can do.
//!
//! It mirrors what the runtime does: the first thread that sleeps is the one that epoll wakes.

use std::sync::atomic::{AtomicU64, Ordering};

const FREE: u64 = 0;
const SPINNING: u64 = 1;
const ASLEEP: u64 = 2;
/// The bits of the state; the rest is the generation.
const STATE_MASK: u64 = 3;
const GENERATION_STEP: u64 = 4;

/// A generation, which counts the threads that have taken the slot, and what the last of them does.
#[derive(Debug, Default)]
pub struct PollerSlot(AtomicU64);

/// Identifies the thread that has taken the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(u64);

impl PollerSlot {
    /// Takes the slot. If it was free, the thread may spin. If another thread is spinning, this one
    /// will be the first to sleep, so it replaces the other and counts as asleep. Returns `None` if
    /// another thread is asleep in the slot.
    pub fn enter(&self) -> Option<Generation> {
        let next = |now: u64| {
            let generation = (now & !STATE_MASK).wrapping_add(GENERATION_STEP);
            match now & STATE_MASK {
                FREE => Some(generation | SPINNING),
                SPINNING => Some(generation | ASLEEP),
                _ => None,
            }
        };
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
        Some(Generation((before & !STATE_MASK).wrapping_add(GENERATION_STEP)))
    }

    pub fn is_spinning(&self, generation: Generation) -> bool {
        self.0.load(Ordering::Acquire) == generation.0 | SPINNING
    }

    /// Stops spinning and goes to sleep. Returns false if another thread has taken the slot.
    pub fn sleep(&self, generation: Generation) -> bool {
        self.exchange(generation, SPINNING, ASLEEP)
            || self.0.load(Ordering::Acquire) == generation.0 | ASLEEP
    }

    /// Frees the slot of a thread that was woken, unless another thread has taken it.
    pub fn leave(&self, generation: Generation) {
        self.exchange(generation, ASLEEP, FREE);
    }

    fn exchange(&self, Generation(generation): Generation, from: u64, to: u64) -> bool {
        let (from, to) = (generation | from, generation | to);
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// What one thread of the model does.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum Thread {
        Working,
        /// It has taken the slot, and may spin.
        Entered(u64),
        /// It sleeps in the slot.
        Asleep(u64),
        /// It sleeps without the slot.
        AsleepOutside,
    }

    impl Thread {
        /// Takes the next step of a thread, which is one method of the slot. Each is atomic: the second
        /// load of [`PollerSlot::sleep`] cannot see another result than the first, since only the
        /// thread itself can end its sleep, and no generation returns.
        fn step(self, slot: &PollerSlot) -> Self {
            match self {
                Self::Working => match slot.enter() {
                    Some(Generation(generation)) => Self::Entered(generation),
                    None => Self::AsleepOutside,
                },
                Self::Entered(generation) if slot.sleep(Generation(generation)) => {
                    Self::Asleep(generation)
                }
                Self::Entered(_) => Self::AsleepOutside,
                Self::Asleep(generation) => {
                    slot.leave(Generation(generation));
                    Self::Working
                }
                Self::AsleepOutside => Self::Working,
            }
        }
    }

    /// Checks one state of the slot and all threads.
    fn check(value: u64, threads: &[Thread]) {
        let slot = PollerSlot(AtomicU64::new(value));
        let (generation, state) = (value & !STATE_MASK, value & STATE_MASK);
        let has = |thread| threads.contains(&thread);
        let spinning = |thread: &&Thread| match thread {
            Thread::Entered(generation) => slot.is_spinning(Generation(*generation)),
            _ => false,
        };
        assert!(threads.iter().filter(spinning).count() <= 1, "{value:x} {threads:?}");
        for thread in threads {
            if let Thread::Asleep(generation) = thread {
                assert_eq!(value, generation | ASLEEP, "{threads:?}");
            }
        }
        // The slot is never left taken by a thread that is gone.
        match state {
            SPINNING => assert!(has(Thread::Entered(generation)), "{value:x} {threads:?}"),
            ASLEEP => assert!(
                has(Thread::Entered(generation)) || has(Thread::Asleep(generation)),
                "{value:x} {threads:?}"
            ),
            _ => assert_eq!(state, FREE),
        }
    }

    #[test]
    fn in_all_interleavings_one_thread_at_most_has_the_slot_and_none_leaves_it_taken() {
        const GENERATIONS: u64 = 12;
        let mut seen = HashSet::new();
        let mut states = vec![(FREE, [Thread::Working; 4])];
        while let Some((value, threads)) = states.pop() {
            if value / GENERATION_STEP > GENERATIONS || !seen.insert((value, threads)) {
                continue;
            }
            check(value, &threads);
            for index in 0..threads.len() {
                let slot = PollerSlot(AtomicU64::new(value));
                let mut next = threads;
                next[index] = threads[index].step(&slot);
                states.push((slot.0.into_inner(), next));
            }
        }
        assert!(seen.len() > 1000, "{} states", seen.len());
    }

    #[test]
    fn the_first_thread_spins_until_it_sleeps() {
        let slot = PollerSlot::default();
        let thread = slot.enter().expect("free");
        assert!(slot.is_spinning(thread));
        assert!(slot.sleep(thread));
        assert!(!slot.is_spinning(thread));
    }

    #[test]
    fn a_sleeping_thread_keeps_the_slot_until_it_is_woken() {
        let slot = PollerSlot::default();
        let thread = slot.enter().expect("free");
        assert!(slot.sleep(thread));
        assert_eq!(slot.enter(), None);
        slot.leave(thread);
        assert!(slot.enter().is_some_and(|next| slot.is_spinning(next)));
    }

    #[test]
    fn a_second_thread_replaces_a_spinning_one_and_sleeps_at_once() {
        let slot = PollerSlot::default();
        let first = slot.enter().expect("free");
        let second = slot.enter().expect("only spinning");
        assert!(!slot.is_spinning(first));
        assert!(!slot.is_spinning(second));
        assert!(!slot.sleep(first));
        assert!(slot.sleep(second));
        // The first thread no longer has any effect.
        slot.leave(first);
        assert_eq!(slot.enter(), None);
    }
}
