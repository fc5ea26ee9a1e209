//! Converting records and ids to column values and back.
//!
//! A value that does not fit its record is an [`Error::Damaged`] with the table and the row.

use std::fmt::Display;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Row, ToSql};

use super::errors::{DbError, DbResult};
use crate::error::Error;
use crate::meta::record::FileKind;
use crate::meta::{Ino, LockOwner, Name, Sid, SliceId};

macro_rules! stored_as_integer {
    ($($id:ty),*) => {$(
        /// SQLite has only signed integers: the bits are kept.
        impl ToSql for $id {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(ToSqlOutput::from(self.0.cast_signed()))
            }
        }
    )*};
}

stored_as_integer!(Ino, SliceId, Sid, LockOwner);

/// Names are blobs, so they sort by their bytes.
impl ToSql for Name {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(self.as_bytes())))
    }
}

/// Bytes for a TEXT column, whether they are UTF-8 or not, as the Go client stores them.
pub struct Text<'a>(pub &'a [u8]);

impl ToSql for Text<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}

/// The columns of one row, and which row it is.
pub struct Columns<'a, 'row> {
    row: &'a Row<'row>,
    /// Such as `table node, inode 5`.
    of: &'a dyn Display,
}

impl<'a, 'row> Columns<'a, 'row> {
    pub fn new(row: &'a Row<'row>, of: &'a dyn Display) -> Self {
        Self { row, of }
    }

    /// Returns a number; 0 where older clients left the column empty.
    pub fn number<T: TryFrom<i64>>(&self, index: usize) -> DbResult<T> {
        let value = self.signed(index)?;
        T::try_from(value).map_err(|_| self.damaged(index, format!("{value} is out of range")))
    }

    pub fn signed(&self, index: usize) -> DbResult<i64> {
        match self.row.get_ref(index)? {
            ValueRef::Integer(value) => Ok(value),
            ValueRef::Null => Ok(0),
            other => Err(self.damaged(index, format!("{} instead of a number", kind(&other)))),
        }
    }

    pub fn unsigned(&self, index: usize) -> DbResult<u64> {
        Ok(self.signed(index)?.cast_unsigned())
    }

    pub fn ino(&self, index: usize) -> DbResult<Ino> {
        Ok(Ino(self.unsigned(index)?))
    }

    /// Returns bytes, whether stored as a blob or as text: appending to a blob in SQL makes it
    /// text.
    pub fn bytes(&self, index: usize) -> DbResult<&'a [u8]> {
        match self.row.get_ref(index)? {
            ValueRef::Blob(bytes) | ValueRef::Text(bytes) => Ok(bytes),
            ValueRef::Null => Ok(&[]),
            other => Err(self.damaged(index, format!("{} instead of bytes", kind(&other)))),
        }
    }

    pub fn kind(&self, index: usize) -> DbResult<FileKind> {
        let value = self.signed(index)?;
        u8::try_from(value)
            .ok()
            .and_then(FileKind::from_u8)
            .ok_or_else(|| self.damaged(index, format!("unknown file type {value}")))
    }

    /// Adds this row to the error of decoding one of its columns.
    pub fn decoded<T>(&self, index: usize, decoded: Result<T, Error>) -> DbResult<T> {
        decoded.map_err(|error| match error {
            Error::Damaged { cause, .. } => self.damaged(index, cause),
            other => DbError::Other(other),
        })
    }

    pub fn damaged(&self, index: usize, cause: impl Display) -> DbError {
        let column = self.row.as_ref().column_name(index).unwrap_or("?");
        DbError::Other(Error::damaged(format!("{}, column {column}", self.of), cause))
    }
}

fn kind(value: &ValueRef<'_>) -> &'static str {
    match value {
        ValueRef::Null => "null",
        ValueRef::Integer(_) => "a number",
        ValueRef::Real(_) => "a fraction",
        ValueRef::Text(_) => "text",
        ValueRef::Blob(_) => "a blob",
    }
}
