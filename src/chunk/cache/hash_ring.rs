//! Consistent hashing: which of several directories a block belongs to. Compatible with JuiceFS, so
//! that both clients can use one cache.

use std::collections::BTreeMap;

/// Points of each directory before rebalancing.
const POINTS: i64 = 100;
/// Rebalancing rounds, and the fraction of the imbalance that each corrects.
const ROUNDS: usize = 5;
const STEP: f64 = 0.75;

const CIRCLE: i64 = 1 << 32;

/// A ring with points for each directory id. A key belongs to the directory of the next point.
#[derive(Debug, Default)]
pub struct HashRing {
    points: Vec<(u32, usize)>,
}

impl HashRing {
    /// Builds a ring of `ids`, each with the number that [`HashRing::owner`] returns for it.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a change is cut to a whole number, as in JuiceFS"
    )]
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
                // JuiceFS applies every change except a change by one.
                if change as i64 != 1 {
                    *count += change as i64;
                }
            }
            ring = Self::with(ids, &counts);
        }
        ring
    }

    /// Returns the number of the directory that a key belongs to.
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

    /// Returns how much of the circle belongs to each directory.
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

/// Returns the directory where clients before 1.2 stored a block: FNV-1 modulo the number of
/// directories.
pub fn legacy_owner(key: &str, dirs: usize) -> usize {
    let hash = key
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte));
    hash as usize % dirs.max(1)
}

/// `MurmurHash3`, the 32-bit x86 variant, with seed 0.
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
    hash ^= u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> String {
        format!("6a1f3c52-0000-4000-8000-00000000000{number}")
    }

    fn ring(numbers: &[usize]) -> HashRing {
        let ids: Vec<String> = numbers.iter().map(|number| id(*number)).collect();
        let ids: Vec<_> = numbers.iter().zip(&ids).map(|(number, id)| (*number, &**id)).collect();
        HashRing::new(&ids)
    }

    fn key(i: u64) -> String {
        let id = i * 7919;
        format!("chunks/{}/{}/{id}_{}_4194304", id / 1_000_000, id / 1000, i % 16)
    }

    /// Returns the owners of the first 64 keys.
    fn owners(ring: &HashRing) -> String {
        (0..64).map(|i| ring.owner(&key(i)).unwrap().to_string()).collect()
    }

    #[test]
    fn hashes_match_the_go_client() {
        for (text, murmur, fnv_of_three) in [
            ("", 0, 1),
            ("a", 0x3c25_69b2, 2),
            ("ab", 0x9bbf_d75f, 2),
            ("abc", 0xb3dd_93fa, 0),
            ("abcd", 0x43ed_676a, 0),
            ("chunks/0/0/3_0_2097152", 0xea2f_4607, 2),
        ] {
            assert_eq!(murmur3(text.as_bytes()), murmur, "{text}");
            assert_eq!(legacy_owner(text, 3), fnv_of_three, "{text}");
        }
    }

    #[test]
    fn blocks_belong_to_the_same_directories_as_in_the_go_client() {
        for (dirs, expected) in [
            (1, "0000000000000000000000000000000000000000000000000000000000000000"),
            (2, "1000011000011101001101000000011111001000100111100011101001001001"),
            (3, "1000021220011101201101002022212122002220122121102012221221002001"),
            (4, "1300021333013101331131002022310132002230322031303012221321332001"),
        ] {
            let numbers: Vec<usize> = (0..dirs).collect();
            assert_eq!(owners(&ring(&numbers)), expected, "{dirs} directories");
        }
    }

    #[test]
    fn many_blocks_are_distributed_as_in_the_go_client() {
        let ring = ring(&[0, 1, 2, 3]);
        let mut counts = [0; 4];
        for i in 0..10_000 {
            counts[ring.owner(&key(i)).unwrap()] += 1;
        }
        assert_eq!(counts, [2465, 2523, 2537, 2475]);
    }

    #[test]
    fn without_one_directory_the_others_take_over_as_in_the_go_client() {
        let expected = "0000022220022202200202002022220022002220222022202002220220002000";
        assert_eq!(owners(&ring(&[0, 2])), expected);
    }

    #[test]
    fn an_empty_ring_has_no_owner() {
        assert_eq!(HashRing::new(&[]).owner("x"), None);
    }
}
