//! Renumbers ids by the order of their first appearance.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Fields;

pub const ROOT: u64 = 1;
pub const TRASH: u64 = 0x7FFF_FFFF_1000_0000;

/// The structure of a volume, which a walk needs to number everything.
#[derive(Default)]
pub struct Shape {
    /// By directory: name and inode.
    pub entries: BTreeMap<u64, Vec<(Vec<u8>, u64)>>,
    /// By inode and chunk index: slice ids.
    pub chunks: BTreeMap<(u64, u64), Vec<u64>>,
    /// Inodes that may be in no directory.
    pub nodes: BTreeSet<u64>,
}

impl Shape {
    pub fn enter(&mut self, dir: u64, name: &[u8], ino: u64) {
        self.entries.entry(dir).or_default().push((name.to_vec(), ino));
    }

    /// Adds the slices of a chunk, given as its stored records.
    pub fn chunk(&mut self, ino: u64, index: u64, records: &[u8]) {
        let ids = records.chunks(24).map(|record| Slice::decode(record).id).collect();
        self.chunks.insert((ino, index), ids);
    }
}

/// Maps old ids to new names.
#[derive(Default)]
pub struct Ids {
    inos: HashMap<u64, String>,
    hours: u64,
    slices: HashMap<u64, String>,
    sids: HashMap<u64, String>,
}

impl Ids {
    /// Numbers a whole volume: the tree by name, then the trash, then everything else.
    pub fn of(shape: &Shape) -> Self {
        let mut ids = Self::default();
        ids.walk(shape, ROOT);
        ids.walk(shape, TRASH);
        for ino in &shape.nodes {
            ids.meet(shape, *ino);
        }
        ids
    }

    pub fn ino(&mut self, old: u64) -> String {
        match old {
            0 => return "none".to_owned(),
            ROOT => return "root".to_owned(),
            TRASH => return "trash".to_owned(),
            _ => {}
        }
        if let Some(known) = self.inos.get(&old) {
            return known.clone();
        }
        let name = if old > TRASH {
            self.hours += 1;
            format!("hour{}", self.hours)
        } else {
            format!("ino{}", self.inos.len() as u64 - self.hours + 1)
        };
        self.inos.insert(old, name.clone());
        name
    }

    pub fn slice(&mut self, old: u64) -> String {
        if old == 0 {
            return "hole".to_owned();
        }
        let next = self.slices.len() + 1;
        self.slices.entry(old).or_insert_with(|| format!("slice{next}")).clone()
    }

    pub fn sid(&mut self, old: u64) -> String {
        let next = self.sids.len() + 1;
        self.sids.entry(old).or_insert_with(|| format!("sid{next}")).clone()
    }

    /// Returns the normalised name of an entry: in the trash, names contain ids, and those of its
    /// directories the hour.
    pub fn entry(&mut self, dir: u64, name: &[u8], ino: u64) -> String {
        match trashed(dir, name) {
            Some((parent, node, rest)) => {
                format!("{}-{}-{}", self.ino(parent), self.ino(node), super::text(rest))
            }
            None if dir == TRASH => self.ino(ino),
            None => super::text(name),
        }
    }

    /// Describes whether a counter that is taken in batches is ahead of every id in use.
    pub fn ahead(what: &str, last: i64, used: Option<u64>) -> String {
        let used = used.unwrap_or(0);
        if u64::try_from(last).is_ok_and(|last| last >= used) {
            format!("ahead of every {what}")
        } else {
            format!("{last}, behind {what} {used}")
        }
    }

    pub fn last_ino(&self) -> Option<u64> {
        self.inos.keys().copied().filter(|ino| *ino < TRASH).max()
    }

    /// Returns the number of hour directories ever created, if none was lost.
    pub fn last_hour(&self) -> Option<u64> {
        self.inos.keys().copied().max().filter(|ino| *ino > TRASH).map(|ino| ino - TRASH)
    }

    pub fn last_slice(&self) -> Option<u64> {
        self.slices.keys().copied().max()
    }

    pub fn last_sid(&self) -> Option<u64> {
        self.sids.keys().copied().max()
    }

    fn walk(&mut self, shape: &Shape, dir: u64) {
        let mut entries = shape.entries.get(&dir).cloned().unwrap_or_default();
        // Names in the trash begin with ids, which must not determine the order.
        entries.sort_by(|(one, a), (two, b)| {
            let plain = |name| trashed(dir, name).map_or(name, |(_, _, rest)| rest);
            (plain(one), a).cmp(&(plain(two), b))
        });
        for (_, ino) in entries {
            self.meet(shape, ino);
            self.walk(shape, ino);
        }
    }

    fn meet(&mut self, shape: &Shape, ino: u64) {
        self.ino(ino);
        for (_, slices) in shape.chunks.range((ino, 0)..=(ino, u64::MAX)) {
            for id in slices {
                self.slice(*id);
            }
        }
    }
}

/// Returns parent, inode and name of an entry in an hour directory.
fn trashed(dir: u64, name: &[u8]) -> Option<(u64, u64, &[u8])> {
    if dir <= TRASH {
        return None;
    }
    let mut parts = name.splitn(3, |byte| *byte == b'-');
    let mut id = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
    let (parent, ino) = (id()?, id()?);
    Some((parent, ino, parts.next()?))
}

/// One stored slice record.
pub struct Slice {
    pub pos: u64,
    pub id: u64,
    pub size: u64,
    pub off: u64,
    pub len: u64,
}

impl Slice {
    pub fn decode(record: &[u8]) -> Self {
        assert_eq!(record.len(), 24, "a slice record");
        let mut fields = Fields(record);
        let (pos, id) = (fields.number(4), fields.number(8));
        Self { pos, id, size: fields.number(4), off: fields.number(4), len: fields.number(4) }
    }

    /// Shows all slices of a chunk, with new ids.
    pub fn show_all(records: &[u8], ids: &mut Ids) -> Vec<String> {
        records.chunks(24).map(|record| Self::decode(record).show(ids)).collect()
    }

    pub fn show(&self, ids: &mut Ids) -> String {
        let Self { pos, id, size, len, .. } = *self;
        // The offset of a hole has no meaning; the Go client may store any number.
        let off = if id == 0 { 0 } else { self.off };
        format!("at {pos}: {} of {size}, {len} from {off}", ids.slice(id))
    }
}

/// Shows a list of (slice, size) as compaction stores it.
pub fn show_delayed(items: &[u8], ids: &mut Ids) -> Vec<String> {
    items
        .chunks(12)
        .map(|item| {
            let mut fields = Fields(item);
            format!("{} of {}", ids.slice(fields.number(8)), fields.number(4))
        })
        .collect()
}
