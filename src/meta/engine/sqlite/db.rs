//! One connection: its settings, and running statements on it.
//!
//! Statements in the source have the default table prefix `jfs_`. A connection to a volume with
//! another prefix replaces it when it prepares a statement. Prepared statements are cached.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, Connection, OpenFlags, Params, Row};

use super::address::Address;
use super::errors::{DbError, DbResult};
use crate::error::Error;

/// The prefix of table names in the source.
const DEFAULT_PREFIX: &str = "jfs_";
/// Size of the statement cache: more than there are different statements.
const CACHED_STATEMENTS: usize = 160;

pub struct Db {
    conn: Connection,
    /// `None` for the default prefix.
    prefix: Option<String>,
    place: Arc<str>,
    timeout: Duration,
}

impl Db {
    /// Opens the writing connection, and sets the journal mode of the database.
    pub fn open_writer(address: &Address) -> Result<Self, Error> {
        let db = Self::open(address)?;
        let set_up = || -> DbResult<()> {
            db.conn.pragma_update(None, "journal_mode", address.journal.name())?;
            db.conn.pragma_update(None, "synchronous", address.synchronous)?;
            if let Some(secure) = address.secure_delete {
                db.conn.pragma_update(None, "secure_delete", secure)?;
            }
            Ok(())
        };
        set_up().map_err(|error| db.error(error))?;
        Ok(db)
    }

    /// Opens a reading connection.
    pub fn open_reader(address: &Address) -> Result<Self, Error> {
        let db = Self::open(address)?;
        db.conn
            .pragma_update(None, "query_only", true)
            .map_err(|error| db.error(DbError::Sql(error)))?;
        Ok(db)
    }

    fn open(address: &Address) -> Result<Self, Error> {
        // Each connection is used by one thread at a time, so it needs no lock of its own.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let set_up = || -> DbResult<Connection> {
            let conn = Connection::open_with_flags(&address.path, flags)?;
            conn.busy_timeout(address.timeout)?;
            conn.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
            // Without this, SQLite may plan a cached statement again for each set of values.
            conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
            // Savepoints and lists need little temporary space: no files for it.
            conn.pragma_update(None, "temp_store", "MEMORY")?;
            if let Some(size) = address.cache_size {
                conn.pragma_update(None, "cache_size", size)?;
            }
            // Opening alone does not read the file.
            conn.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
            Ok(conn)
        };
        let conn = set_up().map_err(|error| error.into_error(&address.place))?;
        let prefix = (address.prefix != DEFAULT_PREFIX).then(|| address.prefix.clone());
        Ok(Self { conn, prefix, place: Arc::clone(&address.place), timeout: address.timeout })
    }

    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns how long SQLite waits for a lock before it reports an error.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    pub fn error(&self, error: DbError) -> Error {
        error.into_error(&self.place)
    }

    /// Returns the stored name of a table that the source calls `jfs_...`.
    pub fn table(&self, name: &str) -> String {
        match &self.prefix {
            Some(prefix) => name.replacen(DEFAULT_PREFIX, prefix, 1),
            None => name.to_owned(),
        }
    }

    /// Runs a statement and returns how many rows it changed.
    pub fn exec(&self, sql: &str, params: impl Params) -> DbResult<usize> {
        Ok(self.prepare(sql)?.execute(params)?)
    }

    /// Runs a statement as it is, without caching it.
    pub fn run_once(&self, sql: &str) -> DbResult<()> {
        Ok(self.conn.execute_batch(sql)?)
    }

    /// Returns the first row, if there is one.
    pub fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> DbResult<T>,
    ) -> DbResult<Option<T>> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params)?;
        rows.next()?.map(read).transpose()
    }

    pub fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> DbResult<T>,
    ) -> DbResult<Vec<T>> {
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
        mut visit: impl FnMut(&Row<'_>) -> DbResult<()>,
    ) -> DbResult<()> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            visit(row)?;
        }
        Ok(())
    }

    /// Runs `read` on one snapshot of the database.
    pub fn snapshot<T>(&self, read: impl FnOnce() -> DbResult<T>) -> DbResult<T> {
        self.exec("BEGIN", [])?;
        let result = read();
        let ended = if self.in_transaction() { self.exec("COMMIT", []) } else { Ok(0) };
        let result = result?;
        ended?;
        Ok(result)
    }

    /// Returns whether a transaction is open. SQLite ends it by itself on some errors.
    pub fn in_transaction(&self) -> bool {
        !self.conn.is_autocommit()
    }

    /// Returns a number that changes whenever another connection has committed.
    pub fn data_version(&self) -> DbResult<i64> {
        let version = self.one("PRAGMA data_version", [], |row| Ok(row.get(0)?))?;
        Ok(version.unwrap_or(0))
    }

    pub fn last_id(&self) -> i64 {
        self.conn.last_insert_rowid()
    }

    /// Returns whether the table that the source calls `jfs_...` exists.
    pub fn has_table(&self, name: &str) -> DbResult<bool> {
        let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
        Ok(self.one(sql, [self.table(name)], |_| Ok(()))?.is_some())
    }

    fn prepare(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        match &self.prefix {
            None => self.conn.prepare_cached(sql),
            Some(prefix) => self.conn.prepare_cached(&with_prefix(sql, prefix)),
        }
    }
}

/// Returns the statement with another table prefix. It may contain any character, so names are
/// quoted.
fn with_prefix(sql: &str, prefix: &str) -> String {
    let mut out = String::with_capacity(sql.len() + 64);
    let mut rest = sql;
    while let Some(at) = rest.find(DEFAULT_PREFIX) {
        let name = &rest[at + DEFAULT_PREFIX.len()..];
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        out.push_str(&rest[..at]);
        out.extend(["`", prefix, &name[..end], "`"]);
        rest = &name[end..];
    }
    out.push_str(rest);
    out
}
