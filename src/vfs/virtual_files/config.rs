//! Renders `.config`.
//!
//! If several mounts share a file system, it describes how *this* mount behaves and nothing else:
//! not where data and metadata are stored, who reaches them with which key, or paths on the host.
//! JuiceFS's tools that work through a mount (`info`, `rmr`, `warmup`, `clone`, `summary`,
//! `compact`, `stats`, `profile`) need none of that; those that look for the process behind it
//! (`umount`) are for the host.

use serde_json::Value;

use super::Visibility;
use crate::meta::record::{Setting, go_json};

/// The fields shown of each section. Of the rest, everything that is not an object.
const OWN: [(&str, &[&str]); 4] = [
    ("Meta", &["ReadOnly", "CaseInsensi", "OpenCache", "AtimeMode", "SortDir", "SkipDirMtime"]),
    (
        "Format",
        &["Name", "BlockSize", "Compression", "HashPrefix", "TrashDays", "EnableACL", "DirStats"],
    ),
    ("Chunk", &["Compress", "HashPrefix", "BlockSize", "Writeback", "Readahead", "Prefetch"]),
    ("Security", &["EnableCap", "EnableSELinux"]),
];
/// Fields about the host and the process.
const HIDDEN: [&str; 3] = ["Pid", "PPid", "Mountpoint"];

/// Renders the client's configuration with the current setting of the volume and without secrets.
pub fn render(config: &Value, setting: &Setting, visibility: Visibility) -> Vec<u8> {
    let mut config = config.clone();
    if let (Some(fields), Some(setting)) = (config.as_object_mut(), without_secrets(setting)) {
        fields.insert("Format".to_owned(), setting);
    }
    if visibility != Visibility::All {
        reduce(&mut config);
    }
    // Serializing a value cannot fail.
    go_json::indented(&config, b" ").unwrap_or_default()
}

fn without_secrets(setting: &Setting) -> Option<Value> {
    serde_json::from_str(&setting.display().ok()?).ok()
}

fn reduce(config: &mut Value) {
    let Some(fields) = config.as_object_mut() else { return };
    fields.retain(|name, value| match OWN.iter().find(|(part, _)| part == name) {
        Some((_, kept)) => {
            if let Some(part) = value.as_object_mut() {
                part.retain(|name, _| kept.contains(&name.as_str()));
            }
            true
        }
        None => !value.is_object() && !HIDDEN.contains(&name.as_str()),
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_setting_is_the_current_one_without_secrets() {
        let config = json!({"Meta": {"Sid": 7}, "Format": {"Name": "old"}, "Version": "1"});
        let setting = Setting::decode(br#"{"Name": "vol", "SecretKey": "hush"}"#).unwrap();
        let text = String::from_utf8(render(&config, &setting, Visibility::All)).unwrap();
        assert!(text.starts_with(
            "{\n \"Meta\": {\n  \"Sid\": 7\n },\n \"Format\": {\n  \"Name\": \"vol\",\n"
        ));
        assert!(text.ends_with(" },\n \"Version\": \"1\"\n}"));
        assert!(text.contains("\"SecretKey\": \"removed\"") && !text.contains("hush"));
    }

    #[test]
    fn of_a_shared_file_system_only_the_mount_itself_is_shown() {
        let config = json!({
            "Meta": {"Sid": 7, "ReadOnly": true, "MountPoint": "/host"},
            "Chunk": {"CacheDir": "/host/cache/uuid", "BlockSize": 4096},
            "FuseOpts": {"FsName": "x"}, "Port": {"PrometheusAgent": "1.2.3.4:5"},
            "Version": "1", "AttrTimeout": 5, "Pid": 1, "PPid": 2, "Mountpoint": "/host",
        });
        let setting =
            br#"{"Name": "vol", "UUID": "u-u", "Storage": "s3", "Bucket": "b", "AccessKey": "k"}"#;
        let setting = Setting::decode(setting).unwrap();
        let text = render(&config, &setting, Visibility::Own);
        let shown: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(shown["Meta"], json!({"ReadOnly": true}));
        assert_eq!(shown["Chunk"], json!({"BlockSize": 4096}));
        assert_eq!((&shown["Format"]["Name"], &shown["Version"]), (&json!("vol"), &json!("1")));
        let text = String::from_utf8(text).unwrap();
        for word in ["u-u", "Bucket", "AccessKey", "host", "Sid", "Pid", "1.2.3.4"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }
}
