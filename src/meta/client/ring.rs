//! Rings: ways through a damaged tree that lead back to where they have been.

use crate::meta::Ino;

/// Deeper than any tree that is worked on; what is deeper is taken for a way without an end.
pub const MAX_DEPTH: u64 = 1 << 20;

/// Tells whether a way upwards comes round. It remembers one place, and a later one from time to time,
/// so that it notices a ring after at most three times its length.
#[derive(Debug, Default)]
pub struct Ring {
    place: Option<Ino>,
    steps: u64,
}

impl Ring {
    /// Asked for each next place of the way.
    pub fn closes(&mut self, at: Ino) -> bool {
        if self.place == Some(at) || self.steps > MAX_DEPTH {
            return true;
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.place = Some(at);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_noticed_wherever_it_begins() {
        for (tail, length) in [(0, 1), (0, 5), (7, 1), (100, 3), (3, 1000)] {
            let mut ring = Ring::default();
            let way = (0..tail).chain((tail..tail + length).cycle()).map(Ino);
            let steps = way.take_while(|at| !ring.closes(*at)).count() as u64;
            assert!(steps <= 2 * (tail + 2 * length) + 2, "{steps} steps for {tail} and {length}");
        }
    }

    #[test]
    fn a_deep_way_is_no_ring_and_an_endless_one_ends() {
        let mut ring = Ring::default();
        assert!((0..200_000).all(|at| !ring.closes(Ino(at))));
        assert!((200_000..2 * MAX_DEPTH).any(|at| ring.closes(Ino(at))));
    }
}
