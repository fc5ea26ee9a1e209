//! Passes: which slice ids one pass over a volume looks at.

/// One of several passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    count: u64,
    index: u64,
}

impl Pass {
    /// Pass number `index` of `count`; none after the last.
    pub fn new(count: u64, index: u64) -> Option<Self> {
        (index < count).then_some(Self { count, index })
    }

    /// Whether this pass looks at the slice.
    pub fn takes(self, id: u64) -> bool {
        id % self.count == self.index
    }

    /// Whether this pass looks at what belongs to no slice.
    pub fn is_first(self) -> bool {
        self.index == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_in_one_pass() {
        let passes: Vec<Pass> = (0..9).map_while(|index| Pass::new(7, index)).collect();
        assert_eq!(passes.len(), 7);
        for id in 0..100 {
            assert_eq!(passes.iter().filter(|pass| pass.takes(id)).count(), 1);
        }
        assert_eq!(passes.iter().filter(|pass| pass.is_first()).count(), 1);
    }
}
