//! Which of several directories a block belongs to: the consistent hash of JuiceFS, so that a cache
//! filled by either client serves both.

use std::collections::BTreeMap;

/// Points of a directory before they are adjusted.
const POINTS: i64 = 100;
/// Rounds of adjusting, and how far each goes.
const ROUNDS: usize = 5;
const STEP: f64 = 0.75;

const CIRCLE: i64 = 1 << 32;

/// The directories by their ids, at points on a circle; a key belongs to the next point.
#[derive(Debug, Default)]
pub struct Ring {
    points: Vec<(u32, usize)>,
}

impl Ring {
    /// `ids` with the numbers that [`Ring::owner`] answers.
    pub fn new(ids: &[(usize, &str)]) -> Self {
        let mut counts = vec![POINTS; ids.len()];
        let mut ring = Self::with(ids, &counts);
        if ids.len() < 2 {
            return ring;
        }
        let expected = 1.0 / ids.len() as f64;
        for _ in 0..ROUNDS {
            let arcs = ring.arcs();
            for (count, (number, _)) in counts.iter_mut().zip(ids) {
                let Some(arc) = arcs.get(number) else { continue };
                let actual = *arc as f64 / CIRCLE as f64;
                let change = *count as f64 * (expected - actual) / expected * STEP;
                // The one change that JuiceFS leaves out is that by one.
                if change as i64 != 1 {
                    *count += change as i64;
                }
            }
            ring = Self::with(ids, &counts);
        }
        ring
    }

    /// The number of the directory that a key belongs to.
    pub fn owner(&self, key: &str) -> Option<usize> {
        let hash = murmur3(key.as_bytes());
        let at = self.points.partition_point(|(point, _)| *point < hash);
        let (_, number) = self.points.get(at).or(self.points.first())?;
        Some(*number)
    }

    fn with(ids: &[(usize, &str)], counts: &[i64]) -> Self {
        let mut points = Vec::new();
        for ((number, id), count) in ids.iter().zip(counts) {
            let hashes = (0..*count).map(|i| murmur3(format!("{i}{id}").as_bytes()));
            points.extend(hashes.map(|hash| (hash, *number)));
        }
        points.sort_unstable();
        Self { points }
    }

    /// How much of the circle belongs to each.
    fn arcs(&self) -> BTreeMap<usize, i64> {
        let mut arcs = BTreeMap::new();
        let last = self.points.last().map_or(0, |(point, _)| i64::from(*point));
        let mut previous = last - CIRCLE;
        for (point, number) in &self.points {
            *arcs.entry(*number).or_default() += i64::from(*point) - previous;
            previous = i64::from(*point);
        }
        arcs
    }
}

/// Where clients before 1.2 have put a block: FNV-1 over the number of directories.
pub fn legacy_owner(key: &str, dirs: usize) -> usize {
    let hash = key
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte));
    hash as usize % dirs.max(1)
}

/// The 32-bit variant for x86, with seed 0.
fn murmur3(bytes: &[u8]) -> u32 {
    fn scramble(word: u32) -> u32 {
        word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
    }
    let (words, tail) = bytes.as_chunks::<4>();
    let mut hash = 0_u32;
    for word in words {
        hash ^= scramble(u32::from_le_bytes(*word));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let mut last = [0; 4];
    last[..tail.len()].copy_from_slice(tail);
    hash ^= scramble(u32::from_le_bytes(last));
    // Nothing is this long.
    hash ^= bytes.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}
