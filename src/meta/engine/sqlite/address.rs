//! The address: `sqlite3://path[?parameters]`.
//!
//! Parameters are those of the Go client and its driver. Those without a meaning here (its
//! connection pool, its mutexes) are accepted; those that this client does not support or know are
//! refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use url::form_urlencoded;

use crate::error::{Error, Result};

#[derive(Debug, Clone)]
pub struct Address {
    /// Absolute, so that later connections do not depend on the working directory.
    pub path: PathBuf,
    /// For errors and logs. It contains no secret.
    pub place: Arc<str>,
    /// The prefix of every table name.
    pub prefix: String,
    pub journal: Journal,
    pub synchronous: &'static str,
    /// How long to wait for a lock that another process holds.
    pub timeout: Duration,
    pub cache_size: Option<i64>,
    pub secure_delete: Option<&'static str>,
    /// The user's limit on connections.
    pub max_connections: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Journal {
    Wal,
    Delete,
    Truncate,
    Persist,
    Memory,
}

impl Journal {
    pub fn name(self) -> &'static str {
        match self {
            Self::Wal => "WAL",
            Self::Delete => "DELETE",
            Self::Truncate => "TRUNCATE",
            Self::Persist => "PERSIST",
            Self::Memory => "MEMORY",
        }
    }
}

impl Address {
    pub fn parse(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("sqlite3://").unwrap_or(url);
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = locate(path)?;
        let mut address = Self {
            place: format!("sqlite3://{}", path.display()).into(),
            path,
            prefix: "jfs_".to_owned(),
            journal: Journal::Wal,
            // With the Go client's NORMAL, a crash can lose the commits since the last checkpoint.
            // Here a confirmed commit is on disk; group commits make up for the cost.
            synchronous: "FULL",
            timeout: Duration::from_secs(5),
            cache_size: None,
            secure_delete: None,
            max_connections: None,
        };
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            address.set(&key, &value)?;
        }
        Ok(address)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let bad = |why: &str| {
            Err(Error::bad_input(format!("{}: parameter {key}={value}: {why}", self.place)))
        };
        match key {
            "_journal" | "_journal_mode" => match value.to_ascii_uppercase().as_str() {
                "WAL" | "" => self.journal = Journal::Wal,
                "DELETE" => self.journal = Journal::Delete,
                "TRUNCATE" => self.journal = Journal::Truncate,
                "PERSIST" => self.journal = Journal::Persist,
                "MEMORY" => self.journal = Journal::Memory,
                "OFF" => return bad("transactions cannot be rolled back without a journal"),
                _ => return bad("expected WAL, DELETE, TRUNCATE, PERSIST or MEMORY"),
            },
            "_timeout" | "_busy_timeout" => match value.parse() {
                Ok(millis) => self.timeout = Duration::from_millis(millis),
                Err(_) => return bad("expected milliseconds"),
            },
            "_synchronous" | "_sync" => match value.to_ascii_uppercase().as_str() {
                "0" | "OFF" => self.synchronous = "OFF",
                "1" | "NORMAL" => self.synchronous = "NORMAL",
                "2" | "FULL" => self.synchronous = "FULL",
                "3" | "EXTRA" => self.synchronous = "EXTRA",
                _ => return bad("expected OFF, NORMAL, FULL or EXTRA"),
            },
            "_cache_size" => match value.parse() {
                Ok(size) => self.cache_size = Some(size),
                Err(_) => return bad("expected a number"),
            },
            "_secure_delete" => match value.to_ascii_lowercase().as_str() {
                "default" => self.secure_delete = None,
                "0" | "no" | "false" | "off" => self.secure_delete = Some("OFF"),
                "1" | "yes" | "true" | "on" => self.secure_delete = Some("ON"),
                "fast" => self.secure_delete = Some("FAST"),
                _ => return bad("expected OFF, ON, FAST or DEFAULT"),
            },
            "table_prefix" => {
                if value.contains(['`', '\0']) {
                    return bad("invalid character in a table name");
                }
                if !value.is_empty() {
                    self.prefix = format!("jfs_{value}_");
                }
            }
            "max_open_conns" => match value.parse() {
                Ok(0) => self.max_connections = None,
                Ok(count) => self.max_connections = Some(count),
                Err(_) => return bad("expected a number"),
            },
            "max_idle_conns" | "max_idle_time" | "max_life_time" => {
                if value.parse::<i64>().is_err() {
                    return bad("expected a number");
                }
            }
            "cache" => {
                if !matches!(value, "shared" | "private") {
                    return bad("expected shared or private");
                }
            }
            "_locking" | "_locking_mode" => {
                if !value.eq_ignore_ascii_case("NORMAL") {
                    return bad("the database needs several connections");
                }
            }
            // Options of the Go driver's own behaviour, or of SQL features that the volume does not
            // use.
            "_loc"
            | "_mutex"
            | "_txlock"
            | "_foreign_keys"
            | "_fk"
            | "_defer_foreign_keys"
            | "_defer_fk"
            | "_case_sensitive_like"
            | "_cslike"
            | "_recursive_triggers"
            | "_rt"
            | "_ignore_check_constraints" => {}
            "_auto_vacuum" | "_vacuum" | "_query_only" | "_writable_schema" | "vfs" | "mode"
            | "immutable" | "nolock" | "psow" | "_auth" | "_auth_user" | "_auth_pass"
            | "_auth_crypt" | "_auth_salt" => {
                return Err(Error::bad_input(format!(
                    "{}: parameter {key} is not supported",
                    self.place
                )));
            }
            _ => {
                return Err(Error::bad_input(format!("{}: unknown parameter {key}", self.place)));
            }
        }
        Ok(())
    }
}

/// Returns the absolute path, after checking that its directory exists.
fn locate(given: &str) -> Result<PathBuf> {
    let bad = |why: &str| Err(Error::bad_input(format!("sqlite3://{given}: {why}")));
    if given.is_empty() || given == ":memory:" {
        return bad("the path of a database file is missing");
    }
    if given.starts_with("file:") {
        return bad("a file: URI is not supported, give the plain path");
    }
    let path = std::path::absolute(Path::new(given))
        .map_err(|error| Error::bad_input(format!("sqlite3://{given}: {error}")))?;
    if path.is_dir() {
        return bad("this is a directory, not a database file");
    }
    let dir = path.parent().unwrap_or(Path::new("/"));
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => Ok(path),
        Ok(_) => bad(&format!("{} is not a directory", dir.display())),
        Err(error) => bad(&format!("directory {}: {error}", dir.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_go_client_except_durability() {
        let address = Address::parse("sqlite3://meta.db").unwrap();
        assert!(address.path.is_absolute() && address.path.ends_with("meta.db"));
        assert_eq!(address.prefix, "jfs_");
        assert_eq!(address.journal, Journal::Wal);
        assert_eq!(address.timeout, Duration::from_secs(5));
        assert_eq!(address.synchronous, "FULL");
    }

    #[test]
    fn parameters_are_decoded_and_the_path_is_not() {
        let address = Address::parse("sqlite3:///tmp/a%20b.db?table_prefix=a%2Db").unwrap();
        assert_eq!(address.path, Path::new("/tmp/a%20b.db"));
        assert_eq!(address.prefix, "jfs_a-b_");
    }

    #[test]
    fn an_address_without_a_file_is_refused() {
        for url in
            ["sqlite3://", "sqlite3://:memory:", "sqlite3://file:/tmp/a.db", "sqlite3:///tmp"]
        {
            assert!(matches!(Address::parse(url), Err(Error::BadInput(_))), "{url}");
        }
    }
}
