//! Faults: what goes wrong between this engine and SQLite, and the errors they become.

use std::time::Duration;

use rusqlite::ErrorCode;

use crate::error::Error;
use crate::meta::engine::CommitError;

/// Inside the engine. Only the edge knows the address that an [`Error`] names.
#[derive(Debug)]
pub enum Fault {
    /// A guard does not hold.
    Conflict,
    Sql(rusqlite::Error),
    /// Already an answer.
    Told(Error),
}

pub type Outcome<T> = Result<T, Fault>;

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl Fault {
    /// Another connection holds the lock that this one needs.
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

    /// As the failure of a commit that ended before COMMIT, so surely without effect.
    pub fn into_commit_error(self, place: &str) -> CommitError {
        match self {
            Self::Conflict => CommitError::Conflict,
            other => CommitError::Failed(other.into_error(place)),
        }
    }

    pub fn into_error(self, place: &str) -> Error {
        match self {
            Self::Told(error) => error,
            Self::Conflict => engine(place, "a record changed while it was written"),
            Self::Sql(error) => engine(place, explain(&error)),
        }
    }

    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Sql(error) => error.sqlite_error_code(),
            _ => None,
        }
    }
}

pub fn engine(place: &str, cause: impl Into<String>) -> Error {
    Error::Engine { place: place.to_owned(), cause: cause.into() }
}

/// The lock was not to be had in `waited`.
pub fn locked(place: &str, waited: Duration) -> Error {
    engine(
        place,
        format!("the database is locked: another process has kept it from writing for {waited:?}"),
    )
}

fn explain(error: &rusqlite::Error) -> String {
    let said = said(error);
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
            if said.contains("no such table") || said.contains("no such column") =>
        {
            "no volume, or one whose tables are not prepared"
        }
        _ => return said,
    };
    format!("{what}: {said}")
}

/// SQLite's words, without the text of the statement.
fn said(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}
