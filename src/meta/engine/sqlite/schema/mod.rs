//! The schema: creating the tables, columns and indexes that the Go client declares.
//!
//! Tables, columns and indexes that older versions lack are added; additional ones are left alone.
//! A table that cannot be migrated is an error with the table and the column.

mod definitions;

use std::collections::HashMap;

use self::definitions::{Column, Constraint, Index, TABLES, Table};
use crate::meta::engine::sqlite::columns::Columns;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::{self, DbError, DbResult};

/// Returns the statements that migrate the database to the schema; none if it is up to date.
pub fn missing(db: &Db) -> DbResult<Vec<String>> {
    let mut statements = Vec::new();
    for table in TABLES {
        let name = db.table(table.name);
        let found = columns(db, &name)?;
        if found.is_empty() {
            statements.push(create(table, &name));
            statements.extend(table.indexes.iter().map(|index| create_index(index, &name)));
            continue;
        }
        statements.extend(missing_columns(db, table, &name, &found)?);
        statements.extend(missing_indexes(db, table, &name)?);
    }
    Ok(statements)
}

/// Migrates the database to the schema.
pub fn migrate(db: &Db) -> DbResult<()> {
    for statement in missing(db)? {
        db.run_once(&statement)?;
    }
    Ok(())
}

/// Drops every table of the volume.
pub fn drop_all(db: &Db) -> DbResult<()> {
    let names = TABLES.iter().map(|table| table.name).chain(["jfs_session"]);
    for name in names {
        db.run_once(&format!("DROP TABLE IF EXISTS `{}`", db.table(name)))?;
    }
    Ok(())
}

fn create(table: &Table, name: &str) -> String {
    let mut parts: Vec<String> = table.columns.iter().map(declare).collect();
    let keys: Vec<&str> = table
        .columns
        .iter()
        .filter(|c| c.constraint == Constraint::PartOfKey)
        .map(|c| c.name)
        .collect();
    if !keys.is_empty() {
        parts.push(format!("PRIMARY KEY ( `{}` )", keys.join("`,`")));
    }
    format!("CREATE TABLE IF NOT EXISTS `{name}` ({})", parts.join(", "))
}

fn declare(column: &Column) -> String {
    let constraint = match column.constraint {
        Constraint::Serial => "PRIMARY KEY AUTOINCREMENT NOT NULL",
        Constraint::Key => "PRIMARY KEY NOT NULL",
        Constraint::PartOfKey | Constraint::Required => "NOT NULL",
        Constraint::Zero => "DEFAULT 0 NOT NULL",
        Constraint::Optional => "NULL",
    };
    format!("`{}` {} {constraint}", column.name, column.kind)
}

fn create_index(index: &Index, table: &str) -> String {
    let (unique, prefix) = if index.unique { ("UNIQUE ", "UQE") } else { ("", "IDX") };
    let columns = index.columns.join("`,`");
    format!(
        "CREATE {unique}INDEX IF NOT EXISTS `{prefix}_{table}_{}` ON `{table}` (`{columns}`)",
        index.name
    )
}

fn missing_columns(
    db: &Db,
    table: &Table,
    name: &str,
    found: &HashMap<String, StoredColumn>,
) -> DbResult<Vec<String>> {
    let mut statements = Vec::new();
    for column in table.columns {
        let wrong = |why: String| {
            let cause = format!("table {name}, column {}: {why}", column.name);
            Err(DbError::Other(errors::engine_error(db.place(), cause)))
        };
        let Some(present) = found.get(column.name) else {
            if !matches!(column.constraint, Constraint::Zero | Constraint::Optional) {
                return wrong("missing, and it cannot be added".to_owned());
            }
            statements.push(format!("ALTER TABLE `{name}` ADD {}", declare(column)));
            continue;
        };
        if affinity(&present.declared) != column.kind {
            return wrong(format!("declared {:?} instead of {}", present.declared, column.kind));
        }
        let key = matches!(
            column.constraint,
            Constraint::Serial | Constraint::Key | Constraint::PartOfKey
        );
        if key != present.in_key {
            let is = if key { "not part" } else { "part" };
            return wrong(format!("{is} of the primary key"));
        }
    }
    Ok(statements)
}

fn missing_indexes(db: &Db, table: &Table, name: &str) -> DbResult<Vec<String>> {
    let present = indexes(db, name)?;
    let lacks = |index: &&Index| {
        !present.iter().any(|(unique, columns)| {
            *unique == index.unique && columns.iter().eq(index.columns.iter())
        })
    };
    Ok(table.indexes.iter().filter(lacks).map(|index| create_index(index, name)).collect())
}

/// A column as it is in the database.
struct StoredColumn {
    declared: String,
    in_key: bool,
}

fn columns(db: &Db, table: &str) -> DbResult<HashMap<String, StoredColumn>> {
    let mut found = HashMap::new();
    db.each("SELECT name, type, pk FROM pragma_table_info(?1)", [table], |row| {
        let columns = Columns::new(row, &"the schema");
        let declared = text(columns.bytes(1)?);
        found.insert(
            text(columns.bytes(0)?),
            StoredColumn { declared, in_key: columns.signed(2)? > 0 },
        );
        Ok(())
    })?;
    Ok(found)
}

/// Returns for each index of a table whether it is unique, and its columns.
fn indexes(db: &Db, table: &str) -> DbResult<Vec<(bool, Vec<String>)>> {
    let sql = "SELECT name, `unique` FROM pragma_index_list(?1) WHERE partial = 0";
    let names = db.all(sql, [table], |row| {
        let columns = Columns::new(row, &"the schema");
        Ok((text(columns.bytes(0)?), columns.signed(1)? != 0))
    })?;
    names
        .into_iter()
        .map(|(name, unique)| {
            let sql = "SELECT name FROM pragma_index_info(?1) ORDER BY seqno";
            let columns =
                db.all(sql, [name], |row| Ok(text(Columns::new(row, &"the schema").bytes(0)?)))?;
            Ok((unique, columns))
        })
        .collect()
}

/// Returns the affinity that SQLite gives to a declared type.
fn affinity(declared: &str) -> &'static str {
    let declared = declared.to_ascii_uppercase();
    let has = |word: &str| declared.contains(word);
    if has("INT") {
        "INTEGER"
    } else if has("CHAR") || has("CLOB") || has("TEXT") {
        "TEXT"
    } else if has("BLOB") || declared.is_empty() {
        "BLOB"
    } else if has("REAL") || has("FLOA") || has("DOUB") {
        "REAL"
    } else {
        "NUMERIC"
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
