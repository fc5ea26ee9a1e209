//! Edits of a file, and what it holds afterwards.

use std::fmt;

/// Size of a chunk.
pub const CHUNK: u64 = 64 << 20;

#[derive(Debug, Clone, Copy)]
pub enum Edit {
    Write {
        at: u64,
        len: u64,
    },
    /// Sets the length, shorter or longer.
    Resize(u64),
    Punch {
        at: u64,
        len: u64,
    },
    /// Ends the slices written so far.
    Sync,
}

/// A file and the edits that produce it.
#[derive(Clone)]
pub struct Case {
    pub name: &'static str,
    pub edits: Vec<Edit>,
}

impl Case {
    fn new(name: &'static str, edits: impl IntoIterator<Item = Edit>) -> Self {
        Self { name, edits: edits.into_iter().collect() }
    }

    /// Returns the bytes of the write at `index` of the edits.
    pub fn bytes(&self, index: usize) -> Vec<u8> {
        match self.edits[index] {
            Edit::Write { len, .. } => content(seed(self.name) ^ (index as u64) << 40, len),
            _ => Vec::new(),
        }
    }

    /// Returns the final content of the file.
    pub fn expected(&self) -> Vec<u8> {
        let mut file = Vec::new();
        for (index, edit) in self.edits.iter().enumerate() {
            match *edit {
                Edit::Write { at, len } => set(&mut file, at, len, &self.bytes(index)),
                Edit::Resize(length) => file.resize(usize::try_from(length).unwrap(), 0),
                Edit::Punch { at, len } => {
                    let end = (at + len).min(file.len() as u64);
                    if at < end {
                        set(&mut file, at, end - at, &vec![0; usize::try_from(end - at).unwrap()]);
                    }
                }
                Edit::Sync => {}
            }
        }
        file
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns files of every kind, for blocks of that size.
pub fn cases(block: u64) -> Vec<Case> {
    use Edit::{Punch, Resize, Sync, Write};
    // One file crosses larger blocks; the others would only be slow.
    let part = block.min(1 << 20);
    let write = |at, len| Write { at, len };
    vec![
        Case::new("empty", []),
        Case::new("small", [write(0, 2)]),
        Case::new("one-block", [write(0, block)]),
        Case::new("blocks-and-a-byte", [write(0, block + 1)]),
        Case::new("sparse", [write(3 * part + 7, 100), Sync, write(9 * part, 5000)]),
        Case::new(
            "overwritten",
            [
                write(0, 2 * part),
                Sync,
                write(part - 3, 6),
                Sync,
                write(100, 70_000),
                Sync,
                write(part / 2, part),
            ],
        ),
        Case::new(
            "truncated",
            [write(0, 2 * part + 9), Resize(part / 2 + 1), Resize(part), write(part + 10, 10)],
        ),
        Case::new(
            "appended",
            (0..8).flat_map(|i| [write(i * 1001, 1001), Sync]).collect::<Vec<_>>(),
        ),
        Case::new("across-chunks", [write(CHUNK - part - 5, 2 * part + 10)]),
        Case::new(
            "punched",
            [write(0, 3 * part), Sync, Punch { at: part - 50, len: part }, write(part, 20)],
        ),
        Case::new("grown", [write(0, 10), Resize(CHUNK + 17)]),
    ]
}

fn set(file: &mut Vec<u8>, at: u64, len: u64, bytes: &[u8]) {
    let (start, end) = (usize::try_from(at).unwrap(), usize::try_from(at + len).unwrap());
    if file.len() < end {
        file.resize(end, 0);
    }
    file[start..end].copy_from_slice(bytes);
}

/// Returns bytes that compress a little and do not repeat.
fn content(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let words = len.div_ceil(8);
    let mut out = Vec::with_capacity(usize::try_from(words * 8).unwrap());
    for word in 0..words {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
        let noise = if word / 32 % 2 == 0 { state } else { state & 0x0F00 };
        out.extend_from_slice(&noise.to_le_bytes());
    }
    out.truncate(usize::try_from(len).unwrap());
    out
}

fn seed(name: &str) -> u64 {
    name.bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(31) ^ u64::from(byte))
}
