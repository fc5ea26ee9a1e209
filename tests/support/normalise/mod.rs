//! Compares two volumes on which the same operations were run.
//!
//! Legitimate differences are rewritten: inodes, slices and sessions are numbered by their first
//! appearance in a walk of the tree, clock times become an order, and counters of ids taken in batches
//! become the statement that they are ahead of every id in use. Everything else stays as stored, so it
//! must be equal. Data without a rule stays raw, so it differs.

mod attr;
pub mod changelog;
pub mod dump;
mod ids;
pub mod keyspace;
pub mod pairs;
pub mod tables;

use serde_json::{Value, json};

/// Fails the test with all differences.
#[track_caller]
pub fn assert_same(left: &Value, right: &Value) {
    let differences = diff(left, right);
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// Returns the differences of two normalised volumes, one line each.
pub fn diff(left: &Value, right: &Value) -> Vec<String> {
    let mut out = Vec::new();
    compare("", left, right, &mut out);
    out
}

fn compare(at: &str, left: &Value, right: &Value, out: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(one), Value::Object(two)) => {
            for (key, value) in one {
                match two.get(key) {
                    Some(other) => compare(&format!("{at}/{key}"), value, other, out),
                    None => out.push(format!("{at}/{key}: {value} only on the left")),
                }
            }
            for (key, value) in two.iter().filter(|(key, _)| !one.contains_key(*key)) {
                out.push(format!("{at}/{key}: {value} only on the right"));
            }
        }
        (Value::Array(one), Value::Array(two)) if one.len() == two.len() => {
            for (i, (value, other)) in one.iter().zip(two).enumerate() {
                compare(&format!("{at}[{i}]"), value, other, out);
            }
        }
        _ if left != right => out.push(format!("{at}: {left} != {right}")),
        _ => {}
    }
}

/// Returns bytes as an unambiguous string: plain text as it is, anything else in hex.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) && !text.starts_with("hex:") => {
            text.to_owned()
        }
        _ => format!("hex:{}", hex(bytes)),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// Reads big-endian fields off the front of a record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn number(&mut self, width: usize) -> u64 {
        assert!(self.0.len() >= width, "record ends early: {} bytes left", self.0.len());
        let (field, rest) = self.0.split_at(width);
        self.0 = rest;
        field.iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Fields of the setting that differ between any two volumes, and secrets, whose nonce is random.
const SETTING_OF_ONE_VOLUME: [&str; 6] =
    ["Name", "UUID", "Bucket", "SecretKey", "SessionToken", "EncryptKey"];

fn show_setting(setting: &Value) -> Value {
    let mut setting = setting.clone();
    for key in SETTING_OF_ONE_VOLUME {
        if let Some(value) = setting.get_mut(key) {
            *value = json!(if value == "" { "empty" } else { "set" });
        }
    }
    setting
}

fn parse_setting(stored: &[u8]) -> Value {
    show_setting(&serde_json::from_slice(stored).unwrap())
}
