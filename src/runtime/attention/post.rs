//! The post: of the threads that have nothing to do, one waits for events. The others sleep until
//! it has more to do than it can.
//!
//! It follows what the runtime does by itself: the first thread to sleep gets the events.

use std::sync::atomic::{AtomicU64, Ordering};

const FREE: u64 = 0;
const LOOKING: u64 = 1;
const ASLEEP: u64 = 2;
const STATES: u64 = 3;
const STEP: u64 = 4;

/// A thread's time at the post: one number for each, and what it does there.
#[derive(Debug, Default)]
pub struct Post(AtomicU64);

/// Whose time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn(u64);

impl Post {
    /// Takes the post, looking if it was free. A thread that finds another one looking will be the
    /// first to sleep, so it takes over, asleep. `None` if another one is asleep at it.
    pub fn enter(&self) -> Option<Turn> {
        let next = |now: u64| {
            let turn = (now & !STATES).wrapping_add(STEP);
            match now & STATES {
                FREE => Some(turn | LOOKING),
                LOOKING => Some(turn | ASLEEP),
                _ => None,
            }
        };
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
        Some(Turn((before & !STATES).wrapping_add(STEP)))
    }

    pub fn is_looking(&self, turn: Turn) -> bool {
        self.0.load(Ordering::Acquire) == turn.0 | LOOKING
    }

    /// Goes to sleep at the post, unless another thread has taken over.
    pub fn sleep(&self, turn: Turn) -> bool {
        self.exchange(turn, LOOKING, ASLEEP) || self.0.load(Ordering::Acquire) == turn.0 | ASLEEP
    }

    /// It is woken, and has something to do.
    pub fn leave(&self, turn: Turn) {
        self.exchange(turn, ASLEEP, FREE);
    }

    fn exchange(&self, Turn(turn): Turn, from: u64, to: u64) -> bool {
        let (from, to) = (turn | from, turn | to);
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_looks_until_it_sleeps() {
        let post = Post::default();
        let turn = post.enter().expect("free");
        assert!(post.is_looking(turn));
        assert!(post.sleep(turn));
        assert!(!post.is_looking(turn));
    }

    #[test]
    fn nobody_joins_one_that_sleeps_until_it_is_woken() {
        let post = Post::default();
        let turn = post.enter().expect("free");
        assert!(post.sleep(turn));
        assert_eq!(post.enter(), None);
        post.leave(turn);
        assert!(post.enter().is_some_and(|next| post.is_looking(next)));
    }

    #[test]
    fn a_second_takes_over_from_one_that_looks_and_sleeps_at_once() {
        let post = Post::default();
        let first = post.enter().expect("free");
        let second = post.enter().expect("only looked at");
        assert!(!post.is_looking(first));
        assert!(!post.is_looking(second));
        assert!(!post.sleep(first));
        assert!(post.sleep(second));
        // What the first does has no effect any more.
        post.leave(first);
        assert_eq!(post.enter(), None);
    }
}
