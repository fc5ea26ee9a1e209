//! Encoding and decoding settings: JSON as Go writes it, parsed as leniently as Go parses it.

use serde_json::{Map, Value};

use super::Setting;
use crate::error::{Error, Result};
use crate::meta::record::go_json;

/// The type of a known key. It is checked before decoding, so that errors never contain a value.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Number,
    Flag,
    Tiers,
}

use Shape::{Flag, Number, Text, Tiers};

/// Every key that this client knows, in the stored order.
const FIELDS: [(&str, Shape); 33] = [
    ("Name", Text),
    ("UUID", Text),
    ("Storage", Text),
    ("StorageClass", Text),
    ("Tiers", Tiers),
    ("Bucket", Text),
    ("AccessKey", Text),
    ("SecretKey", Text),
    ("SessionToken", Text),
    ("BlockSize", Number),
    ("Compression", Text),
    ("Shards", Number),
    ("HashPrefix", Flag),
    ("Capacity", Number),
    ("Inodes", Number),
    ("EncryptKey", Text),
    ("EncryptAlgo", Text),
    ("KeyEncrypted", Flag),
    ("UploadLimit", Number),
    ("DownloadLimit", Number),
    ("TrashDays", Number),
    ("MetaVersion", Number),
    ("MinClientVersion", Text),
    ("MaxClientVersion", Text),
    ("DirStats", Flag),
    ("UserGroupQuota", Flag),
    ("EnableACL", Flag),
    ("RangerRestUrl", Text),
    ("RangerService", Text),
    ("ChangeLog", Flag),
    ("ChangeLogMaxAge", Number),
    ("ChangeLogMaxLines", Number),
    ("KerbConf", Text),
];

/// Largest setting in bytes. The largest parts are a private key and a Kerberos configuration.
const MAX_LEN: usize = 1 << 20;

/// Largest text in a setting, in bytes.
const MAX_TEXT_LEN: usize = 64 << 10;

const TIER_FIELDS: [&str; 3] = ["ID", "StorageClass", "Tag"];

impl Setting {
    /// Encodes the setting: one field per line without indent.
    pub fn encode(&self) -> Result<Vec<u8>> {
        go_json::indented(&self.to_object()?, b"").map_err(encode_error)
    }

    /// Formats the setting for users: indented, with every secret replaced by `removed`.
    pub fn display(&self) -> Result<String> {
        let json = go_json::indented(&self.without_secrets().to_object()?, b"  ");
        String::from_utf8(json.map_err(encode_error)?).map_err(encode_error)
    }

    /// Decodes a setting. Keys match in any case, the last of equal keys wins, and `null` is
    /// ignored.
    pub fn decode(raw: &[u8]) -> Result<Self> {
        if raw.len() > MAX_LEN {
            return Err(damaged(format!("{} bytes, more than {MAX_LEN}", raw.len())));
        }
        let object: Map<String, Value> = serde_json::from_slice(raw).map_err(damaged)?;
        let mut known = Map::new();
        let mut unknown = Map::new();
        for (key, value) in object {
            match FIELDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&key)) {
                None => drop(unknown.insert(key, value)),
                Some(_) if value.is_null() => {}
                Some((name, shape)) => {
                    let value =
                        shape.check(value).map_err(|cause| damaged(format!("{name} {cause}")))?;
                    known.insert((*name).to_owned(), value);
                }
            }
        }
        let setting: Self = serde_json::from_value(Value::Object(known)).map_err(damaged)?;
        Ok(Self { unknown, ..setting })
    }

    /// Returns the setting as an object, with its fields in the stored order.
    pub fn to_object(&self) -> Result<Map<String, Value>> {
        match serde_json::to_value(self).map_err(encode_error)? {
            Value::Object(mut object) => {
                object.extend(self.unknown.clone());
                Ok(object)
            }
            _ => Err(encode_error("not an object")),
        }
    }
}

impl Shape {
    /// Returns the value with its keys in the usual spelling, or what is wrong with it.
    fn check(self, value: Value) -> Result<Value, &'static str> {
        match (self, value) {
            (Tiers, Value::Object(tiers)) => tiers
                .into_iter()
                .map(|(id, tier)| Ok((id, normalize_tier(tier)?)))
                .collect::<Result<Map<_, _>, _>>()
                .map(Value::Object),
            (Text, Value::String(text)) if text.len() > MAX_TEXT_LEN => {
                Err("is longer than 65536 bytes")
            }
            (Text, value @ Value::String(_))
            | (Number, value @ Value::Number(_))
            | (Flag, value @ Value::Bool(_)) => Ok(value),
            (Text, _) => Err("is not text"),
            (Number, _) => Err("is not a number"),
            (Flag, _) => Err("is neither true nor false"),
            (Tiers, _) => Err("is not an object"),
        }
    }
}

fn normalize_tier(tier: Value) -> Result<Value, &'static str> {
    let Value::Object(fields) = tier else { return Err("holds a tier that is not an object") };
    let normalized = fields.into_iter().filter_map(|(key, value)| {
        match TIER_FIELDS.iter().find(|name| name.eq_ignore_ascii_case(&key)) {
            None => Some((key, value)),
            Some(_) if value.is_null() => None,
            Some(name) => Some(((*name).to_owned(), value)),
        }
    });
    Ok(Value::Object(normalized.collect()))
}

fn damaged(cause: impl std::fmt::Display) -> Error {
    Error::damaged("setting", cause)
}

fn encode_error(cause: impl std::fmt::Display) -> Error {
    Error::bad_input(format!("cannot encode the setting: {cause}"))
}

#[cfg(test)]
mod tests;
