//! The JSON form of `dump`, normalised.

use serde_json::{Map, Value, json};

use super::ids::{Ids, ROOT, Shape, Slice, TRASH};
use super::{attr, show_setting};

pub fn normalise(dump: &Value) -> Value {
    let mut shape = Shape::default();
    collect(&dump["FSTree"], ROOT, &mut shape);
    collect(&dump["Trash"], TRASH, &mut shape);
    for list in ["DelFiles", "Sustained"] {
        for item in list_of(&dump[list]) {
            shape.nodes.extend(item["inode"].as_u64());
            shape.nodes.extend(list_of(&item["inodes"]).iter().filter_map(Value::as_u64));
        }
    }
    let mut ids = Ids::of(&shape);
    let mut out = Map::new();
    for (part, value) in dump.as_object().unwrap() {
        let value = match part.as_str() {
            "Setting" => show_setting(value),
            // The log of a TiKV volume is compared as stored.
            "Counters" | "ChangeLog" => continue,
            "Sustained" => sustained(value, &mut ids),
            "DelFiles" => deleted(value, &mut ids),
            "Quotas" => rekey(value, &mut ids),
            "FSTree" => node(value, ROOT, &mut ids),
            "Trash" => node(value, TRASH, &mut ids),
            _ => value.clone(),
        };
        out.insert(part.clone(), value);
    }
    // Last, since they are compared with every id in use.
    out.insert("Counters".to_owned(), counters(&dump["Counters"], &ids));
    Value::Object(out)
}

fn collect(entry: &Value, ino: u64, shape: &mut Shape) {
    for chunk in list_of(&entry["chunks"]) {
        let ids = list_of(&chunk["slices"]).iter().map(|slice| number(&slice["id"])).collect();
        shape.chunks.insert((ino, number(&chunk["index"])), ids);
    }
    for (name, child) in entry["entries"].as_object().into_iter().flatten() {
        let child_ino = number(&child["attr"]["inode"]);
        shape.enter(ino, name.as_bytes(), child_ino);
        collect(child, child_ino, shape);
    }
}

fn node(entry: &Value, ino: u64, ids: &mut Ids) -> Value {
    let mut out = Map::new();
    for (part, value) in entry.as_object().into_iter().flatten() {
        let value = match part.as_str() {
            "attr" => attr(value, ids),
            "chunks" => chunks(value, ids),
            "entries" => {
                let children = value.as_object().into_iter().flatten().map(|(name, child)| {
                    let child_ino = number(&child["attr"]["inode"]);
                    (ids.entry(ino, name.as_bytes(), child_ino), node(child, child_ino, ids))
                });
                Value::Object(children.collect())
            }
            "xattrs" => {
                let pairs = list_of(value).iter().map(|pair| {
                    (pair["name"].as_str().unwrap_or_default().to_owned(), pair["value"].clone())
                });
                Value::Object(pairs.collect())
            }
            _ => value.clone(),
        };
        out.insert(part.clone(), value);
    }
    Value::Object(out)
}

fn attr(attr: &Value, ids: &mut Ids) -> Value {
    let mut out = attr.as_object().unwrap().clone();
    let mut time = |name: &str| {
        let sec = out.remove(name).and_then(|sec| sec.as_i64()).unwrap_or(0);
        let nsec = out.remove(&format!("{name}nsec")).and_then(|nsec| nsec.as_u64()).unwrap_or(0);
        (sec, nsec)
    };
    let (atime, mtime, ctime) = (time("atime"), time("mtime"), time("ctime"));
    let is_dir = attr["type"] == "directory";
    out.insert("times".to_owned(), attr::show_times(is_dir, atime, mtime, ctime));
    out.insert("inode".to_owned(), json!(ids.ino(number(&attr["inode"]))));
    Value::Object(out)
}

fn chunks(chunks: &Value, ids: &mut Ids) -> Value {
    let chunks = list_of(chunks).iter().map(|chunk| {
        let slices: Vec<String> = list_of(&chunk["slices"])
            .iter()
            .map(|slice| {
                let field = |name: &str| number(&slice[name]);
                let (pos, id) = (field("pos"), field("id"));
                let slice =
                    Slice { pos, id, size: field("size"), off: field("off"), len: field("len") };
                slice.show(ids)
            })
            .collect();
        (number(&chunk["index"]).to_string(), json!(slices))
    });
    Value::Object(chunks.collect())
}

fn counters(counters: &Value, ids: &Ids) -> Value {
    let shown = counters.as_object().into_iter().flatten().map(|(name, value)| {
        // These two hold the next id, the others the last one.
        let last = value.as_i64().unwrap_or(0);
        let shown = match name.as_str() {
            "nextInodes" => json!(Ids::ahead("inode", last - 1, ids.last_ino())),
            "nextChunk" => json!(Ids::ahead("slice", last - 1, ids.last_slice())),
            "nextSession" => json!(Ids::ahead("session", last, ids.last_sid())),
            "nextTrash" => json!(Ids::ahead("hour", last, ids.last_hour())),
            _ => value.clone(),
        };
        (name.clone(), shown)
    });
    Value::Object(shown.filter(|(name, _)| name != "nextCleanupSlices").collect())
}

fn sustained(list: &Value, ids: &mut Ids) -> Value {
    let sessions = list_of(list).iter().map(|item| {
        let mut inos: Vec<String> =
            list_of(&item["inodes"]).iter().map(|ino| ids.ino(number(ino))).collect();
        inos.sort();
        (ids.sid(number(&item["sid"])), json!(inos))
    });
    Value::Object(sessions.collect())
}

fn deleted(list: &Value, ids: &mut Ids) -> Value {
    let files = list_of(list)
        .iter()
        .map(|item| (ids.ino(number(&item["inode"])), item["length"].clone()))
        .collect();
    Value::Object(files)
}

fn rekey(map: &Value, ids: &mut Ids) -> Value {
    let items = map.as_object().into_iter().flatten();
    let renamed = items.map(|(ino, value)| (ids.ino(ino.parse().unwrap_or(0)), value.clone()));
    Value::Object(renamed.collect())
}

fn list_of(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns a number; a missing field is zero.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
