//! The replies to a pipeline's commands, taken one by one and converted.

use std::sync::Arc;
use std::vec::IntoIter;

use bytes::Bytes;
use redis::Value;

use super::server_error::{ServerError, engine_error};
use crate::error::{Error, Result};

/// Replies in the order of the commands. Each method takes the next one; its `key` names the key that
/// the command was about, for errors.
pub(in super::super) struct Replies {
    place: Arc<str>,
    values: IntoIter<Value>,
}

impl Replies {
    pub fn new(place: Arc<str>, values: Vec<Value>) -> Self {
        Self { place, values: values.into_iter() }
    }

    pub fn value(&mut self, key: &str) -> Result<Value> {
        let value = self
            .values
            .next()
            .ok_or_else(|| engine_error(&self.place, format!("no reply about {key}")))?;
        match ServerError::of(&value) {
            Some(error) => Err(error.into_error(&self.place, key)),
            None => Ok(value),
        }
    }

    pub fn bytes(&mut self, key: &str) -> Result<Option<Bytes>> {
        bytes(self.value(key)?, key)
    }

    pub fn int(&mut self, key: &str) -> Result<i64> {
        match self.value(key)? {
            Value::Int(number) => Ok(number),
            other => Err(unexpected(key, &other)),
        }
    }

    /// Takes a decimal string; none if the key or field is absent.
    pub fn number(&mut self, key: &str) -> Result<Option<i64>> {
        self.bytes(key)?.map(|raw| number(&raw, key)).transpose()
    }

    pub fn list(&mut self, key: &str) -> Result<Vec<Bytes>> {
        list(self.value(key)?, key)?
            .into_iter()
            .map(|item| item.ok_or_else(|| incomplete(key)))
            .collect()
    }

    /// As [`Replies::list`], where items may be absent.
    pub fn options(&mut self, key: &str) -> Result<Vec<Option<Bytes>>> {
        list(self.value(key)?, key)
    }

    /// Takes fields with their values, or members with their scores.
    pub fn pairs(&mut self, key: &str) -> Result<Vec<(Bytes, Bytes)>> {
        Ok(pairs(self.list(key)?))
    }

    /// Takes one page of a scan: the cursor of the next page, 0 after the last, and the items.
    pub fn page(&mut self, key: &str) -> Result<(u64, Vec<Bytes>)> {
        let Value::Array(parts) = self.value(key)? else { return Err(incomplete(key)) };
        let mut parts = parts.into_iter();
        let (Some(cursor), Some(items)) = (parts.next(), parts.next()) else {
            return Err(incomplete(key));
        };
        let cursor = bytes(cursor, key)?.ok_or_else(|| incomplete(key))?;
        let cursor = text(&cursor, key)?.parse().map_err(|e| Error::damaged(key, e))?;
        let items = list(items, key)?;
        Ok((cursor, items.into_iter().flatten().collect()))
    }
}

/// Groups a flat list of alternating items into pairs.
pub(in super::super) fn pairs(items: Vec<Bytes>) -> Vec<(Bytes, Bytes)> {
    let mut items = items.into_iter();
    let mut pairs = Vec::with_capacity(items.len() / 2);
    while let (Some(first), Some(second)) = (items.next(), items.next()) {
        pairs.push((first, second));
    }
    pairs
}

pub(super) fn bytes(value: Value, key: &str) -> Result<Option<Bytes>> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(raw) => Ok(Some(raw.into())),
        Value::SimpleString(raw) => Ok(Some(raw.into())),
        other => Err(unexpected(key, &other)),
    }
}

pub(in super::super) fn list(value: Value, key: &str) -> Result<Vec<Option<Bytes>>> {
    match value {
        Value::Array(items) => items.into_iter().map(|item| bytes(item, key)).collect(),
        Value::Nil => Ok(Vec::new()),
        other => Err(unexpected(key, &other)),
    }
}

pub(in super::super) fn number(raw: &[u8], key: &str) -> Result<i64> {
    text(raw, key)?.parse().map_err(|_| {
        Error::damaged(key, format!("{:?} is not a number", String::from_utf8_lossy(raw)))
    })
}

/// Parses the number in a field or member of `key`.
pub(in super::super) fn id(raw: &[u8], key: &str) -> Result<u64> {
    text(raw, key)?.parse().map_err(|_| {
        Error::damaged(key, format!("{:?} is not an id", String::from_utf8_lossy(raw)))
    })
}

/// Parses a score as a time. Sorted sets store doubles; times are whole seconds.
#[expect(clippy::cast_possible_truncation, reason = "seconds are far below 2^53")]
pub(in super::super) fn score(raw: &[u8], key: &str) -> Result<i64> {
    let value: f64 = text(raw, key)?.parse().map_err(|_| {
        Error::damaged(key, format!("{:?} is not a score", String::from_utf8_lossy(raw)))
    })?;
    Ok(value as i64)
}

/// Adds the key to the error of a record that does not decode.
pub(in super::super) fn at<T>(key: &str, decoded: Result<T>) -> Result<T> {
    decoded.map_err(|error| match error {
        Error::Damaged { record, cause } => Error::damaged(format!("{record} {key}"), cause),
        other => other,
    })
}

fn text<'a>(raw: &'a [u8], key: &str) -> Result<&'a str> {
    std::str::from_utf8(raw).map_err(|error| Error::damaged(key, error))
}

fn incomplete(key: &str) -> Error {
    Error::damaged(key, "the server's reply is incomplete")
}

fn unexpected(key: &str, value: &Value) -> Error {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::Array(_) => "a list",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "a string",
        _ => "something else",
    };
    Error::damaged(key, format!("the server returned {kind}"))
}
