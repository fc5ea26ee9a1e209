//! The setting, without what makes a volume this one.

use serde_json::{Value, json};

/// What is different on purpose between two volumes, and secrets, whose nonce is random.
const OWN: [&str; 6] = ["Name", "UUID", "Bucket", "SecretKey", "SessionToken", "EncryptKey"];

pub fn show(setting: &Value) -> Value {
    let mut setting = setting.clone();
    for key in OWN {
        if let Some(value) = setting.get_mut(key) {
            *value = json!(if value == "" { "empty" } else { "set" });
        }
    }
    setting
}

pub fn parse(stored: &[u8]) -> Value {
    show(&serde_json::from_slice(stored).unwrap())
}
