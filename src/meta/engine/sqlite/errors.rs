//! Errors within this engine, and turning them into the errors that it returns.

use std::time::Duration;

use rusqlite::ErrorCode;

use crate::error::Error;
use crate::meta::engine::CommitError;

/// An error within the engine. It does not know the address that an [`Error`] contains.
#[derive(Debug)]
pub enum DbError {
    /// A guarded record has changed.
    Conflict,
    Sql(rusqlite::Error),
    /// Complete already.
    Other(Error),
}

pub type DbResult<T> = Result<T, DbError>;

impl From<rusqlite::Error> for DbError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for DbError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl DbError {
    /// Returns whether another connection holds the lock that this one needs.
    pub fn is_busy(&self) -> bool {
        matches!(
            self.code(),
            Some(
                ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::FileLockingProtocolFailed
            )
        )
    }

    /// Returns the error of a commit that ended before COMMIT, so certainly without effect.
    pub fn into_commit_error(self, place: &str) -> CommitError {
        match self {
            Self::Conflict => CommitError::Conflict,
            other => CommitError::Failed(other.into_error(place)),
        }
    }

    pub fn into_error(self, place: &str) -> Error {
        match self {
            Self::Other(error) => error,
            Self::Conflict => engine_error(place, "a record changed while it was written"),
            Self::Sql(error) => engine_error(place, explain(&error)),
        }
    }

    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Sql(error) => error.sqlite_error_code(),
            _ => None,
        }
    }
}

pub fn engine_error(place: &str, cause: impl Into<String>) -> Error {
    Error::Engine { place: place.to_owned(), cause: cause.into() }
}

/// Returns the error for a lock that was not free within `waited`.
pub fn locked(place: &str, waited: Duration) -> Error {
    engine_error(
        place,
        format!("the database is locked: another process has held the write lock for {waited:?}"),
    )
}

fn explain(error: &rusqlite::Error) -> String {
    let message = message(error);
    let what = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "the database is locked by another process"
        }
        Some(ErrorCode::NotADatabase) => "the file is not a SQLite database",
        Some(ErrorCode::DatabaseCorrupt) => "the database file is damaged",
        Some(ErrorCode::CannotOpen) => {
            "the database cannot be opened (check the path and its permissions)"
        }
        Some(ErrorCode::PermissionDenied) => "the database may not be accessed",
        Some(ErrorCode::ReadOnly) => "the database is read-only",
        Some(ErrorCode::DiskFull) => "the disk that holds the database is full",
        Some(ErrorCode::Unknown)
            if message.contains("no such table") || message.contains("no such column") =>
        {
            "no volume, or its tables are not prepared"
        }
        _ => return message,
    };
    format!("{what}: {message}")
}

/// Returns SQLite's own message, without the text of the statement.
fn message(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}
