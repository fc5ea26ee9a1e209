//! The text of `.config`.

use serde_json::Value;

use crate::meta::record::{Setting, go_json};

/// The client's configuration, with the volume's setting as it is now and without its secrets.
pub fn render(config: &Value, setting: &Setting) -> Vec<u8> {
    let mut config = config.clone();
    if let (Some(fields), Some(setting)) = (config.as_object_mut(), shown(setting)) {
        fields.insert("Format".to_owned(), setting);
    }
    // Nothing in a value makes this fail.
    go_json::indented(&config, b" ").unwrap_or_default()
}

fn shown(setting: &Setting) -> Option<Value> {
    serde_json::from_str(&setting.display().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_setting_is_that_of_the_moment_and_has_no_secrets() {
        let config = json!({"Meta": {"Sid": 7}, "Format": {"Name": "old"}, "Version": "1"});
        let setting = Setting::decode(br#"{"Name": "vol", "SecretKey": "hush"}"#).unwrap();
        let text = String::from_utf8(render(&config, &setting)).unwrap();
        assert!(text.starts_with(
            "{\n \"Meta\": {\n  \"Sid\": 7\n },\n \"Format\": {\n  \"Name\": \"vol\",\n"
        ));
        assert!(text.ends_with(" },\n \"Version\": \"1\"\n}"));
        assert!(text.contains("\"SecretKey\": \"removed\"") && !text.contains("hush"));
    }
}
