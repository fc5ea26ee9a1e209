//! The keys of a Redis volume, normalised.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::ids::{Ids, Shape, Slice, show_delayed};
use super::{Fields, attr, changelog, hex, parse_setting, text};

/// A value as stored in Redis.
#[derive(Debug, Clone, PartialEq)]
pub enum Stored {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    List(Vec<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    Sorted(BTreeMap<Vec<u8>, f64>),
}

/// All keys of one database.
pub type Keyspace = BTreeMap<String, Stored>;

/// Reads the database of a URL.
pub fn read(url: &str) -> Keyspace {
    let mut server = redis::Client::open(url).unwrap().get_connection().unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server).unwrap();
    let mut all = Keyspace::new();
    for key in keys {
        let kind: String = redis::cmd("TYPE").arg(&key).query(&mut server).unwrap();
        let mut ask = |command: &str, args: &[&str]| {
            let mut command = redis::cmd(command);
            command.arg(&key).arg(args);
            command.query::<redis::Value>(&mut server).unwrap()
        };
        let stored = match kind.as_str() {
            "string" => Stored::Text(convert(ask("GET", &[]))),
            "hash" => Stored::Hash(convert(ask("HGETALL", &[]))),
            "list" => Stored::List(convert(ask("LRANGE", &["0", "-1"]))),
            "set" => Stored::Set(convert(ask("SMEMBERS", &[]))),
            "zset" => Stored::Sorted(convert(ask("ZRANGE", &["0", "-1", "WITHSCORES"]))),
            other => panic!("key {key} is a {other}"),
        };
        all.insert(key, stored);
    }
    all
}

fn convert<T: redis::FromRedisValue>(value: redis::Value) -> T {
    redis::from_redis_value(value).unwrap()
}

/// When a background job last ran: about the clients, not about the volume.
const ELECTIONS: [&str; 5] = [
    "lastCleanupSessions",
    "lastCleanupFiles",
    "nextCleanupSlices",
    "lastCleanupTrash",
    "lastCleanupChangelog",
];

/// Returns a normalised value for each normalised key.
pub fn normalise(all: &Keyspace) -> Value {
    let mut ids = Ids::of(&shape(all));
    let acl = |id: u64| match all.get("acl") {
        Some(Stored::Hash(rules)) if id != 0 => {
            rules.get(id.to_string().as_bytes()).map_or(json!("missing"), |rule| json!(hex(rule)))
        }
        _ => json!(id),
    };
    let mut out = Map::new();
    for (key, stored) in all {
        let (name, value) = match split(key) {
            Some((letters, ino, rest)) => (
                format!("{letters}{}{rest}", ids.ino(ino)),
                of_inode(letters, ino, stored, &mut ids, &acl),
            ),
            None if key == "txnLastLog" => (key.clone(), last_line(all)),
            None => (of_session_key(key, &mut ids), of_volume(key, stored, &mut ids)),
        };
        if !ELECTIONS.contains(&key.as_str()) && !is_counter_of_ids(key) {
            out.insert(name, value);
        }
    }
    // Last, since they are compared with every id in use.
    let counter = |name: &str| match all.get(name) {
        Some(Stored::Text(value)) => String::from_utf8_lossy(value).parse().unwrap_or(-1),
        _ => 0,
    };
    let mut put = |name: &str, what: &str, used| {
        out.insert(name.to_owned(), json!(Ids::ahead(what, counter(name), used)));
    };
    put("nextinode", "inode", ids.last_ino());
    put("nextchunk", "slice", ids.last_slice());
    put("nextsession", "session", ids.last_sid());
    put("nextTrash", "hour", ids.last_hour());
    Value::Object(out)
}

/// Returns the number of the last log line; the number of lines depends on when ids were taken.
fn last_line(all: &Keyspace) -> Value {
    match (all.get("txnLog"), all.get("txnLastLog")) {
        (Some(Stored::List(lines)), Some(Stored::Text(last))) => {
            json!(Ids::ahead("line", number(last).cast_signed(), Some(lines.len() as u64)))
        }
        (_, other) => json!(format!("{other:?} without lines")),
    }
}

fn is_counter_of_ids(key: &str) -> bool {
    matches!(key, "nextinode" | "nextchunk" | "nextsession" | "nextTrash")
}

/// Splits off the inode of a key that has one: `c5_0` is (`c`, 5, `_0`).
fn split(key: &str) -> Option<(&str, u64, &str)> {
    let digits = key.find(|c: char| c.is_ascii_digit())?;
    let (letters, rest) = key.split_at(digits);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let known = matches!(letters, "i" | "d" | "p" | "c" | "s" | "x" | "lockf" | "lockp");
    if known { Some((letters, rest[..end].parse().ok()?, &rest[end..])) } else { None }
}

fn of_session_key(key: &str, ids: &mut Ids) -> String {
    for letters in ["session", "locked"] {
        if let Some(Ok(sid)) = key.strip_prefix(letters).map(str::parse) {
            return format!("{letters}{}", ids.sid(sid));
        }
    }
    key.to_owned()
}

fn shape(all: &Keyspace) -> Shape {
    let mut shape = Shape::default();
    for (key, stored) in all {
        match (split(key), stored) {
            (Some(("d", dir, _)), Stored::Hash(entries)) => {
                for (name, entry) in entries {
                    shape.enter(dir, name, Fields(&entry[1..]).number(8));
                }
            }
            (Some(("c", ino, index)), Stored::List(records)) => {
                let index = index.trim_start_matches('_').parse().unwrap();
                shape.chunk(ino, index, &records.concat());
            }
            (Some(("i", ino, _)), _) => drop(shape.nodes.insert(ino)),
            (None, Stored::Sorted(members)) if key == "delfiles" => {
                let ino = |member: &[u8]| text(member).split(':').next()?.parse::<u64>().ok();
                shape.nodes.extend(members.keys().filter_map(|member| ino(member)));
            }
            _ => {}
        }
    }
    shape
}

fn of_inode(
    letters: &str,
    ino: u64,
    stored: &Stored,
    ids: &mut Ids,
    acl: &dyn Fn(u64) -> Value,
) -> Value {
    match (letters, stored) {
        ("i", Stored::Text(record)) => attr::show(record, ids, acl),
        ("d", Stored::Hash(entries)) => map(entries, |name, entry| {
            let child = Fields(&entry[1..]).number(8);
            (ids.entry(ino, name, child), json!([entry[0], ids.ino(child)]))
        }),
        ("p", Stored::Hash(parents)) => {
            map(parents, |parent, count| (ids.ino(number(parent)), json!(text(count))))
        }
        ("c", Stored::List(records)) => json!(Slice::show_all(&records.concat(), ids)),
        ("lockf", Stored::Hash(locks)) => {
            map(locks, |holder, kind| (of_holder(holder, ids), json!(text(kind))))
        }
        ("lockp", Stored::Hash(locks)) => {
            map(locks, |holder, ranges| (of_holder(holder, ids), show_ranges(ranges)))
        }
        _ => raw(stored),
    }
}

fn of_volume(key: &str, stored: &Stored, ids: &mut Ids) -> Value {
    let by_ino = |field: &[u8], ids: &mut Ids| ids.ino(number(field));
    match (key, stored) {
        ("setting", Stored::Text(stored)) => parse_setting(stored),
        ("allSessions", Stored::Sorted(sids)) => {
            json!(sids.keys().map(|sid| ids.sid(number(sid))).collect::<BTreeSet<_>>())
        }
        // A client's description of itself: only that it is there.
        ("sessionInfos", Stored::Hash(infos)) => map(infos, |sid, info| {
            let info: Map<String, Value> = serde_json::from_slice(info).unwrap();
            (ids.sid(number(sid)), json!(info.keys().collect::<BTreeSet<_>>()))
        }),
        ("delfiles", Stored::Sorted(files)) => {
            let show = |member: &[u8], ids: &mut Ids| {
                let member = text(member);
                let (ino, length) = member.split_once(':').unwrap_or((&member, "?"));
                format!("{}:{length}", ids.ino(number(ino.as_bytes())))
            };
            json!(files.keys().map(|member| show(member, ids)).collect::<BTreeSet<_>>())
        }
        ("detachedNodes", Stored::Sorted(nodes)) => {
            json!(nodes.keys().map(|ino| by_ino(ino, ids)).collect::<BTreeSet<_>>())
        }
        ("delSlices", Stored::Hash(lists)) => map(lists, |field, items| {
            let field = text(field);
            let id = field.split('_').next().unwrap_or_default();
            (ids.slice(number(id.as_bytes())), json!(show_delayed(items, ids)))
        }),
        ("sliceRef", Stored::Hash(refs)) => map(refs, |field, count| {
            let field = text(field);
            let (id, size) = field.trim_start_matches('k').split_once('_').unwrap_or_default();
            (format!("{} of {size}", ids.slice(number(id.as_bytes()))), json!(text(count)))
        }),
        ("acl", Stored::Hash(rules)) => {
            json!(rules.values().map(|rule| hex(rule)).collect::<BTreeSet<_>>())
        }
        ("txnLog", Stored::List(lines)) => {
            json!(changelog::show_all(lines.iter().map(Vec::as_slice), ids))
        }
        (_, Stored::Hash(fields)) if key.starts_with("dir") => {
            map(fields, |ino, value| (by_ino(ino, ids), json!(text(value))))
        }
        (_, Stored::Set(inos)) if key.starts_with("session") => {
            json!(inos.iter().map(|ino| by_ino(ino, ids)).collect::<BTreeSet<_>>())
        }
        (_, Stored::Set(keys)) if key.starts_with("locked") => {
            let show = |key: &[u8], ids: &mut Ids| match split(&text(key)) {
                Some((letters, ino, _)) => format!("{letters}{}", ids.ino(ino)),
                None => text(key),
            };
            json!(keys.iter().map(|key| show(key, ids)).collect::<BTreeSet<_>>())
        }
        _ => raw(stored),
    }
}

/// Normalises `{sid}_{owner}`; the kernel chooses the owner.
fn of_holder(holder: &[u8], ids: &mut Ids) -> String {
    let holder = text(holder);
    let (sid, _) = holder.split_once('_').unwrap_or((&holder, ""));
    format!("{}, some owner", ids.sid(number(sid.as_bytes())))
}

/// Shows POSIX lock ranges without the process id.
pub fn show_ranges(ranges: &[u8]) -> Value {
    let show = |range: &[u8]| {
        let mut fields = Fields(range);
        let (kind, _pid) = (fields.number(4), fields.number(4));
        format!("type {kind} from {} to {}", fields.number(8), fields.number(8))
    };
    json!(ranges.chunks(24).map(show).collect::<Vec<_>>())
}

fn map(
    fields: &BTreeMap<Vec<u8>, Vec<u8>>,
    mut show: impl FnMut(&[u8], &[u8]) -> (String, Value),
) -> Value {
    let mut out = Map::new();
    for (field, value) in fields {
        let (mut name, value) = show(field, value);
        while out.contains_key(&name) {
            name.push('\'');
        }
        out.insert(name, value);
    }
    Value::Object(out)
}

fn raw(stored: &Stored) -> Value {
    match stored {
        Stored::Text(value) => json!(text(value)),
        Stored::Hash(fields) => map(fields, |field, value| (text(field), json!(text(value)))),
        Stored::List(items) => json!(items.iter().map(|item| text(item)).collect::<Vec<_>>()),
        Stored::Set(items) => json!(items.iter().map(|item| text(item)).collect::<Vec<_>>()),
        Stored::Sorted(items) => {
            json!(items.iter().map(|(item, score)| (text(item), score)).collect::<Vec<_>>())
        }
    }
}

fn number(digits: &[u8]) -> u64 {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}
