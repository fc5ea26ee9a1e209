//! The pairs of a TiKV volume, normalised.
//!
//! Keys are decoded here without the code of the engine, which these tests check.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::ids::{Ids, Shape, Slice, show_delayed};
use super::keyspace::show_ranges;
use super::{Fields, attr, changelog, hex, parse_setting, text};

/// Every key of a volume, without its prefix.
pub type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns a normalised value for each normalised key.
pub fn normalise(all: &Pairs) -> Value {
    let mut ids = Ids::of(&shape(all));
    let acl = |id: u64| {
        let id = u32::try_from(id).unwrap_or(0);
        let rule = all.get([b"R".as_slice(), &id.to_be_bytes()].concat().as_slice());
        if id == 0 { json!(0) } else { rule.map_or(json!("missing"), |rule| json!(hex(rule))) }
    };
    let mut out = Map::new();
    for (key, value) in all {
        let (mut name, value) = match key.first() {
            Some(b'A') if key.len() >= 10 => of_inode(key, value, &mut ids, &acl),
            Some(b'C') => match of_counter(key, value) {
                Some(shown) => shown,
                None => continue,
            },
            // Handled below, in the order of their numbers.
            Some(b'X') if key.starts_with(b"XLOG") => continue,
            _ => of_volume(key, value, &mut ids),
        };
        while out.contains_key(&name) {
            name.push('\'');
        }
        out.insert(name, value);
    }
    out.insert("txnLog".to_owned(), json!(log(all, &mut ids)));
    // Last, since they are compared with every id in use.
    let counter = |name: &str| {
        all.get(format!("C{name}").as_bytes()).map_or(0, |value| little(value).cast_signed())
    };
    // These two hold the next id, the others the last one.
    let mut put = |name: &str, what: &str, last: i64, used| {
        out.insert(name.to_owned(), json!(Ids::ahead(what, last, used)));
    };
    put("nextInode", "inode", counter("nextInode") - 1, ids.last_ino());
    put("nextChunk", "slice", counter("nextChunk") - 1, ids.last_slice());
    put("nextSession", "session", counter("nextSession"), ids.last_sid());
    put("nextTrash", "hour", counter("nextTrash"), ids.last_hour());
    Value::Object(out)
}

fn shape(all: &Pairs) -> Shape {
    let mut shape = Shape::default();
    for (key, value) in all {
        match (key.first(), key.get(9)) {
            (Some(b'A'), Some(b'I')) | (Some(b'D'), _) => drop(shape.nodes.insert(ino_of(key))),
            (Some(b'A'), Some(b'D')) => {
                shape.enter(ino_of(key), &key[10..], Fields(&value[1..]).number(8));
            }
            (Some(b'A'), Some(b'C')) => {
                shape.chunk(ino_of(key), Fields(&key[10..]).number(4), value);
            }
            _ => {}
        }
    }
    shape
}

fn of_inode(
    key: &[u8],
    value: &[u8],
    ids: &mut Ids,
    acl: &dyn Fn(u64) -> Value,
) -> (String, Value) {
    let ino = ino_of(key);
    let (kind, rest) = (key[9], &key[10..]);
    let node = ids.ino(ino);
    match kind {
        b'I' if rest.is_empty() => (format!("A{node}I"), attr::show(value, ids, acl)),
        b'D' => {
            let child = Fields(&value[1..]).number(8);
            let name = ids.entry(ino, rest, child);
            (format!("A{node}D{name}"), json!([value.len(), value[0], ids.ino(child)]))
        }
        b'C' => {
            let index = Fields(rest).number(4);
            (format!("A{node}C{index}"), json!(Slice::show_all(value, ids)))
        }
        b'P' => (format!("A{node}P{}", ids.ino(little(rest))), number(value)),
        b'S' if rest.is_empty() => (format!("A{node}S"), json!(text(value))),
        b'X' => (format!("A{node}X{}", text(rest)), json!(text(value))),
        _ => (text(key), json!(text(value))),
    }
}

/// Not those of ids, nor those that say when a background job last ran: about the clients, not
/// about the volume.
fn of_counter(key: &[u8], value: &[u8]) -> Option<(String, Value)> {
    let name = text(key);
    let counts_ids =
        ["CnextInode", "CnextChunk", "CnextSession", "CnextTrash"].contains(&name.as_str());
    let elects = name.starts_with("ClastCleanup") || name == "CnextCleanupSlices";
    (!counts_ids && !elects).then(|| (name, number(value)))
}

fn of_volume(key: &[u8], value: &[u8], ids: &mut Ids) -> (String, Value) {
    match (key[0], key.get(1), key.len()) {
        (b's', ..) if key == b"setting" => ("setting".to_owned(), parse_setting(value)),
        (b'D', _, 17) => {
            let length = Fields(&key[9..]).number(8);
            (format!("D{}:{length}", ids.ino(ino_of(key))), json!(value.len()))
        }
        (b'F', _, 9) => {
            let locks = value.chunks(17).map(|lock| {
                let sid = ids.sid(Fields(lock).number(8));
                format!("{sid}, some owner: {}", text(&lock[16..]))
            });
            let locks: BTreeSet<String> = locks.collect();
            (format!("F{}", ids.ino(ino_of(key))), json!(locks))
        }
        (b'P', _, 9) => (format!("P{}", ids.ino(ino_of(key))), plocks(value, ids)),
        (b'K', _, 13) => {
            let mut fields = Fields(&key[1..]);
            let (slice, size) = (ids.slice(fields.number(8)), fields.number(4));
            (format!("K{slice} of {size}"), number(value))
        }
        (b'L', _, 17) => {
            let slice = ids.slice(Fields(&key[9..]).number(8));
            (format!("L{slice}"), json!(show_delayed(value, ids)))
        }
        (b'S', Some(b'E'), 10) => {
            (format!("SE{}", ids.sid(Fields(&key[2..]).number(8))), json!(value.len()))
        }
        // A client's description of itself: only that it is there.
        (b'S', Some(b'I'), 10) => {
            let info: Map<String, Value> = serde_json::from_slice(value).unwrap();
            let sid = ids.sid(Fields(&key[2..]).number(8));
            (format!("SI{sid}"), json!(info.keys().collect::<BTreeSet<_>>()))
        }
        (b'S', Some(b'S'), 18) => {
            let (sid, ino) = (Fields(&key[2..]).number(8), little(&key[10..]));
            (format!("SS{} {}", ids.sid(sid), ids.ino(ino)), json!(text(value)))
        }
        (b'U' | b'N', _, 9) => {
            let shown = if key[0] == b'U' { json!(hex(value)) } else { json!(value.len()) };
            (format!("{}{}", key[0] as char, ids.ino(ino_of(key))), shown)
        }
        (b'Q', Some(b'D'), 10) => (format!("QD{}", ids.ino(little(&key[2..]))), json!(hex(value))),
        // Shown where they are used.
        (b'R', _, 5) => (format!("R{}", hex(value)), Value::Null),
        _ => (text(key), json!(text(value))),
    }
}

fn plocks(mut value: &[u8], ids: &mut Ids) -> Value {
    let mut locks = Vec::new();
    while !value.is_empty() {
        let mut fields = Fields(value);
        let (sid, _owner, len) = (fields.number(8), fields.number(8), fields.number(4));
        let (ranges, rest) = value[20..].split_at(usize::try_from(len).unwrap());
        locks.push(json!([ids.sid(sid), show_ranges(ranges)]));
        value = rest;
    }
    locks.sort_by_cached_key(Value::to_string);
    json!(locks)
}

/// Returns the log lines by number; the order of keys depends on their shard.
fn log(all: &Pairs, ids: &mut Ids) -> Vec<String> {
    let prefix = b"XLOG";
    let mut lines: Vec<(u64, &[u8])> = all
        .iter()
        .filter(|(key, _)| key.starts_with(prefix))
        .map(|(key, line)| {
            assert_eq!(key.len(), 13, "shard and number: {}", hex(key));
            let version = Fields(&key[5..]).number(8);
            assert_eq!(u64::from(key[4]), (version ^ (version >> 18)) % 64, "its shard");
            (version, line.as_slice())
        })
        .collect();
    lines.sort_unstable();
    let lines = lines.iter().flat_map(|(_, lines)| lines.split(|byte| *byte == b'\n'));
    changelog::show_all(lines, ids)
}

/// Returns the inode after the first letter.
fn ino_of(key: &[u8]) -> u64 {
    little(&key[1..])
}

fn little(raw: &[u8]) -> u64 {
    raw.iter().take(8).rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Shows a little-endian counter and its length in bytes.
fn number(value: &[u8]) -> Value {
    json!([value.len(), little(value).cast_signed()])
}
