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

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> String {
        format!("6a1f3c52-0000-4000-8000-00000000000{number}")
    }

    fn ring(numbers: &[usize]) -> Ring {
        let ids: Vec<String> = numbers.iter().map(|number| id(*number)).collect();
        let ids: Vec<_> = numbers.iter().zip(&ids).map(|(number, id)| (*number, &**id)).collect();
        Ring::new(&ids)
    }

    fn key(i: u64) -> String {
        let id = i * 7919;
        format!("chunks/{}/{}/{id}_{}_4194304", id / 1_000_000, id / 1000, i % 16)
    }

    /// The owners of the first 64 keys.
    fn owners(ring: &Ring) -> String {
        (0..64).map(|i| ring.owner(&key(i)).unwrap().to_string()).collect()
    }

    #[test]
    fn hashes_are_those_of_the_go_client() {
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
    fn blocks_belong_where_the_go_client_puts_them() {
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
    fn a_great_many_blocks_are_spread_as_by_the_go_client() {
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
    fn nothing_belongs_to_no_directory() {
        assert_eq!(Ring::new(&[]).owner("x"), None);
    }
}
