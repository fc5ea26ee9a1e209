//! One connection: its settings, and running statements on it.
//!
//! Statements are written with the default table prefix `jfs_`; a connection to a volume with
//! another prefix puts it in as it prepares them. Prepared statements are kept.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, Connection, OpenFlags, Params, Row};

use super::address::Address;
use super::fault::{Fault, Outcome};
use crate::error::Error;

/// The prefix that statements are written with.
const WRITTEN_PREFIX: &str = "jfs_";
/// More than there are different statements.
const STATEMENTS: usize = 160;

pub struct Db {
    conn: Connection,
    /// `None`: as the statements are written.
    prefix: Option<String>,
    place: Arc<str>,
    timeout: Duration,
}

impl Db {
    /// The connection that writes; it also brings the database into its journal mode.
    pub fn open_writer(address: &Address) -> Result<Self, Error> {
        let db = Self::open(address)?;
        let set_up = || -> Outcome<()> {
            db.conn.pragma_update(None, "journal_mode", address.journal.name())?;
            db.conn.pragma_update(None, "synchronous", address.synchronous)?;
            if let Some(secure) = address.secure_delete {
                db.conn.pragma_update(None, "secure_delete", secure)?;
            }
            Ok(())
        };
        set_up().map_err(|fault| db.blame(fault))?;
        Ok(db)
    }

    /// A connection for reads only.
    pub fn open_reader(address: &Address) -> Result<Self, Error> {
        let db = Self::open(address)?;
        db.conn
            .pragma_update(None, "query_only", true)
            .map_err(|error| db.blame(Fault::Sql(error)))?;
        Ok(db)
    }

    fn open(address: &Address) -> Result<Self, Error> {
        // Each connection is used by one thread at a time, so it needs no lock of its own.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let set_up = || -> Outcome<Connection> {
            let conn = Connection::open_with_flags(&address.path, flags)?;
            conn.busy_timeout(address.timeout)?;
            conn.set_prepared_statement_cache_capacity(STATEMENTS);
            // Without this, SQLite may plan a kept statement anew for each set of values.
            conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
            // What savepoints and lists need meanwhile is small: no temporary files for it.
            conn.pragma_update(None, "temp_store", "MEMORY")?;
            if let Some(size) = address.cache_size {
                conn.pragma_update(None, "cache_size", size)?;
            }
            // Opening alone does not read the file.
            conn.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
            Ok(conn)
        };
        let conn = set_up().map_err(|fault| fault.into_error(&address.place))?;
        let prefix = (address.prefix != WRITTEN_PREFIX).then(|| address.prefix.clone());
        Ok(Self { conn, prefix, place: Arc::clone(&address.place), timeout: address.timeout })
    }

    pub fn place(&self) -> &str {
        &self.place
    }

    /// How long SQLite waits for a lock before it says so.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    pub fn blame(&self, fault: Fault) -> Error {
        fault.into_error(&self.place)
    }

    /// The real name of a table written as `jfs_...`.
    pub fn table(&self, written: &str) -> String {
        match &self.prefix {
            Some(prefix) => written.replacen(WRITTEN_PREFIX, prefix, 1),
            None => written.to_owned(),
        }
    }

    /// Runs a statement and answers how many rows it changed.
    pub fn exec(&self, sql: &str, params: impl Params) -> Outcome<usize> {
        Ok(self.prepare(sql)?.execute(params)?)
    }

    /// Runs a statement as it is, without keeping it.
    pub fn run_once(&self, sql: &str) -> Outcome<()> {
        Ok(self.conn.execute_batch(sql)?)
    }

    /// The first row, if there is one.
    pub fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Outcome<T>,
    ) -> Outcome<Option<T>> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params)?;
        rows.next()?.map(read).transpose()
    }

    pub fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Outcome<T>,
    ) -> Outcome<Vec<T>> {
        let mut found = Vec::new();
        self.each(sql, params, |row| {
            found.push(read(row)?);
            Ok(())
        })?;
        Ok(found)
    }

    pub fn each(
        &self,
        sql: &str,
        params: impl Params,
        mut see: impl FnMut(&Row<'_>) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            see(row)?;
        }
        Ok(())
    }

    /// Runs `read` on one snapshot of the database.
    pub fn snapshot<T>(&self, read: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        self.exec("BEGIN", [])?;
        let answer = read();
        let ended = if self.in_transaction() { self.exec("COMMIT", []) } else { Ok(0) };
        let answer = answer?;
        ended?;
        Ok(answer)
    }

    /// Whether a transaction is open. SQLite ends it by itself on some errors.
    pub fn in_transaction(&self) -> bool {
        !self.conn.is_autocommit()
    }

    /// A number that changes whenever another connection has committed.
    pub fn foreign_version(&self) -> Outcome<i64> {
        let version = self.one("PRAGMA data_version", [], |row| Ok(row.get(0)?))?;
        Ok(version.unwrap_or(0))
    }

    pub fn last_id(&self) -> i64 {
        self.conn.last_insert_rowid()
    }

    /// Whether the table, written as `jfs_...`, exists.
    pub fn has_table(&self, written: &str) -> Outcome<bool> {
        let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
        Ok(self.one(sql, [self.table(written)], |_| Ok(()))?.is_some())
    }

    fn prepare(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        match &self.prefix {
            None => self.conn.prepare_cached(sql),
            Some(prefix) => self.conn.prepare_cached(&renamed(sql, prefix)),
        }
    }
}

/// The statement with another table prefix. It may hold any character, so names are quoted.
fn renamed(sql: &str, prefix: &str) -> String {
    let mut out = String::with_capacity(sql.len() + 64);
    let mut rest = sql;
    while let Some(at) = rest.find(WRITTEN_PREFIX) {
        let name = &rest[at + WRITTEN_PREFIX.len()..];
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        out.push_str(&rest[..at]);
        out.extend(["`", prefix, &name[..end], "`"]);
        rest = &name[end..];
    }
    out.push_str(rest);
    out
}
