//! Cycles in a damaged tree: paths towards the root that return to where they have been.

use crate::meta::Ino;

/// No real tree is this deep; a longer path is taken for a cycle.
pub const MAX_DEPTH: u64 = 1 << 20;

/// Detects whether a path towards the root revisits a directory. It remembers one directory, and
/// replaces it after 1, 2, 4, ... steps, so that it notices a cycle after at most three times its
/// length.
#[derive(Debug, Default)]
pub struct CycleDetector {
    remembered: Option<Ino>,
    steps: u64,
}

impl CycleDetector {
    /// Must be called with each directory of the path in turn.
    pub fn revisits(&mut self, at: Ino) -> bool {
        if self.remembered == Some(at) || self.steps > MAX_DEPTH {
            return true;
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.remembered = Some(at);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_detected_wherever_it_begins() {
        for (tail, length) in [(0, 1), (0, 5), (7, 1), (100, 3), (3, 1000)] {
            let mut cycle = CycleDetector::default();
            let way = (0..tail).chain((tail..tail + length).cycle()).map(Ino);
            let steps = way.take_while(|at| !cycle.revisits(*at)).count() as u64;
            assert!(steps <= 2 * (tail + 2 * length) + 2, "{steps} steps for {tail} and {length}");
        }
    }

    #[test]
    fn a_deep_path_is_no_cycle_and_an_endless_one_is() {
        let mut cycle = CycleDetector::default();
        assert!((0..200_000).all(|at| !cycle.revisits(Ino(at))));
        assert!((200_000..2 * MAX_DEPTH).any(|at| cycle.revisits(Ino(at))));
    }
}
