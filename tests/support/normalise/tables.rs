//! The tables of a SQLite volume, normalised.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Map, Value, json};

use super::attr::{self, DIR};
use super::ids::{Ids, Shape, Slice, show_delayed};
use super::keyspace::show_ranges;
use super::{changelog, hex, parse_setting, text};

/// A value as stored in SQLite. Text need not be UTF-8: what the Go client appends to a blob with
/// `||` is stored as text.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

/// A row by column.
pub type Row = BTreeMap<String, Cell>;
/// Rows by table, without the `jfs_` prefix.
pub type Tables = BTreeMap<String, Vec<Row>>;

/// Reads every table of the file.
pub fn read(file: &Path) -> Tables {
    let db = open(file);
    let mut all = Tables::new();
    for table in names(&db) {
        let mut query = db.prepare(&format!("SELECT * FROM `{table}` ORDER BY 1")).unwrap();
        let columns: Vec<String> = query.column_names().map(str::to_owned).collect();
        let rows = query
            .query_map([], |row| {
                columns
                    .iter()
                    .map(|name| Ok((name.clone(), cell(row.get_ref(name.as_str())?))))
                    .collect()
            })
            .unwrap();
        let rows = rows.map(Result::unwrap).collect();
        all.insert(table.trim_start_matches("jfs_").to_owned(), rows);
    }
    all
}

/// Returns columns and indexes of every table, which another client relies on.
pub fn schema(file: &Path) -> Value {
    let db = open(file);
    let mut out = Map::new();
    for table in names(&db) {
        let columns = ask(
            &db,
            "SELECT name || ' ' || type || ' notnull=' || \"notnull\" || ' default=' || \
             ifnull(dflt_value, '') || ' pk=' || pk FROM pragma_table_info(?1) ORDER BY name",
            &table,
        );
        let indexes = ask(
            &db,
            "SELECT CASE WHEN l.origin = 'c' THEN l.name ELSE l.origin END || ' unique=' || \
             l.\"unique\" || ' ' || group_concat(i.name) FROM pragma_index_list(?1) l, \
             pragma_index_info(l.name) i GROUP BY l.name ORDER BY 1",
            &table,
        );
        out.insert(table, json!({ "columns": columns, "indexes": indexes }));
    }
    Value::Object(out)
}

/// Returns the normalised rows by table, sorted.
pub fn normalise(all: &Tables) -> Value {
    let mut ids = Ids::of(&shape(all));
    let rules: BTreeMap<i64, String> =
        rows(all, "acl").map(|row| (int(row, "id"), rule(row))).collect();
    let mut out = Map::new();
    for table in all.keys().filter(|table| !matches!(table.as_str(), "counter" | "change_log")) {
        let mut shown: Vec<Value> =
            rows(all, table).map(|row| show_row(table, row, &mut ids, &rules)).collect();
        shown.sort_by_cached_key(Value::to_string);
        out.insert(table.clone(), json!({ "rows": shown, "classes": classes(all, table) }));
    }
    let log = rows(all, "change_log").map(|row| bytes(row, "entry"));
    out.insert("change_log".to_owned(), json!(changelog::show_all(log, &mut ids)));
    // Last, since they are compared with every id in use.
    out.insert("counter".to_owned(), counters(all, &ids));
    Value::Object(out)
}

fn shape(all: &Tables) -> Shape {
    let mut shape = Shape::default();
    for row in rows(all, "edge") {
        shape.enter(id(row, "parent"), bytes(row, "name"), id(row, "inode"));
    }
    for row in rows(all, "chunk") {
        shape.chunk(id(row, "inode"), id(row, "indx"), bytes(row, "slices"));
    }
    for table in ["node", "delfile", "sustained"] {
        shape.nodes.extend(rows(all, table).map(|row| id(row, "inode")));
    }
    shape
}

fn show_row(table: &str, row: &Row, ids: &mut Ids, rules: &BTreeMap<i64, String>) -> Value {
    let mut out = Map::new();
    for (column, cell) in row.iter().filter(|(column, _)| !is_incidental(table, column)) {
        let value = match (table, column.as_str()) {
            (_, "inode" | "parent") => json!(ids.ino(id(row, column))),
            (_, "sid") => json!(ids.sid(id(row, column))),
            (_, "chunkid") => json!(ids.slice(id(row, column))),
            ("edge", "name") => {
                json!(ids.entry(id(row, "parent"), bytes(row, "name"), id(row, "inode")))
            }
            ("node", "access_acl_id" | "default_acl_id") => {
                let rule = int(row, column);
                rules.get(&rule).map_or(json!(rule), |shown| json!(shown))
            }
            ("chunk", "slices") => json!(Slice::show_all(bytes(row, column), ids)),
            ("delslices", "slices") => json!(show_delayed(bytes(row, column), ids)),
            ("plock", "records") => show_ranges(bytes(row, column)),
            ("setting", "value") => parse_setting(bytes(row, column)),
            ("session2", "info") => {
                let info: Map<String, Value> = serde_json::from_slice(bytes(row, column)).unwrap();
                json!(info.keys().collect::<BTreeSet<_>>())
            }
            _ => show_cell(cell),
        };
        out.insert(column.clone(), value);
    }
    if table == "node" {
        let time = |name: &str| {
            let (micros, rest) = (int(row, name), int(row, &format!("{name}nsec")));
            let nanos = micros.rem_euclid(1_000_000) * 1000 + rest;
            (micros.div_euclid(1_000_000), nanos.cast_unsigned())
        };
        let is_dir = id(row, "type") == DIR;
        out.insert(
            "times".to_owned(),
            attr::show_times(is_dir, time("atime"), time("mtime"), time("ctime")),
        );
    }
    Value::Object(out)
}

/// Returns whether a column is not about the volume.
fn is_incidental(table: &str, column: &str) -> bool {
    match column {
        // Row numbers, which nothing refers to; the rules of an ACL are shown where they are used.
        "id" => table != "delegation_token",
        // Clocks; those of a node are shown as an order.
        "deleted" | "expire" | "added" | "atime" | "mtime" | "ctime" | "atimensec"
        | "mtimensec" | "ctimensec" => true,
        // Chosen by the kernel.
        "owner" => matches!(table, "flock" | "plock"),
        _ => false,
    }
}

/// Returns the storage classes by column. Text and blob look alike when read, but are not equal in a
/// query.
fn classes(all: &Tables, table: &str) -> Value {
    let mut classes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (column, cell) in rows(all, table).flatten() {
        let class = match cell {
            // No query looks up a chunk by its slices, so either class is fine.
            Cell::Text(_) | Cell::Blob(_) if column == "slices" => "bytes",
            Cell::Null => "null",
            Cell::Integer(_) => "integer",
            Cell::Real(_) => "real",
            Cell::Text(_) => "text",
            Cell::Blob(_) => "blob",
        };
        classes.entry(column).or_default().insert(class);
    }
    json!(classes)
}

fn counters(all: &Tables, ids: &Ids) -> Value {
    let mut out = Map::new();
    for row in rows(all, "counter") {
        let name = text(bytes(row, "name"));
        let value = int(row, "value");
        let shown = match name.as_str() {
            // These two hold the next id, the others the last one.
            "nextInode" => json!(Ids::ahead("inode", value - 1, ids.last_ino())),
            "nextChunk" => json!(Ids::ahead("slice", value - 1, ids.last_slice())),
            "nextSession" => json!(Ids::ahead("session", value, ids.last_sid())),
            "nextTrash" => json!(Ids::ahead("hour", value, ids.last_hour())),
            // When a background job last ran: about the clients, not about the volume.
            _ if name.starts_with("lastCleanup") || name == "nextCleanupSlices" => continue,
            _ => json!(value),
        };
        out.insert(name, shown);
    }
    Value::Object(out)
}

fn rule(row: &Row) -> String {
    let bits = ["owner", "group", "mask", "other"].map(|name| format!("{:o}", int(row, name)));
    let named = ["named_users", "named_groups"].map(|name| hex(bytes(row, name)));
    format!("{} {}", bits.join(":"), named.join(":"))
}

fn show_cell(cell: &Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Integer(value) => json!(value),
        Cell::Real(value) => json!(value),
        Cell::Text(value) => json!(text(value)),
        Cell::Blob(value) => json!(format!("blob {}", text(value))),
    }
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(value) => Cell::Integer(value),
        ValueRef::Real(value) => Cell::Real(value),
        ValueRef::Text(value) => Cell::Text(value.to_vec()),
        ValueRef::Blob(value) => Cell::Blob(value.to_vec()),
    }
}

fn rows<'a>(all: &'a Tables, table: &str) -> impl Iterator<Item = &'a Row> {
    all.get(table).into_iter().flatten()
}

fn int(row: &Row, column: &str) -> i64 {
    match row.get(column) {
        Some(Cell::Integer(value)) => *value,
        _ => 0,
    }
}

fn id(row: &Row, column: &str) -> u64 {
    int(row, column).cast_unsigned()
}

fn bytes<'a>(row: &'a Row, column: &str) -> &'a [u8] {
    match row.get(column) {
        Some(Cell::Blob(value) | Cell::Text(value)) => value,
        _ => &[],
    }
}

fn open(file: &Path) -> Connection {
    Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap()
}

fn names(db: &Connection) -> Vec<String> {
    ask(
        db,
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE ?1 ORDER BY name",
        "jfs%",
    )
}

fn ask(db: &Connection, query: &str, argument: &str) -> Vec<String> {
    let mut query = db.prepare(query).unwrap();
    let rows = query.query_map([argument], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}
