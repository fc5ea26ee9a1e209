use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::meta::{Meta, Options};

fn secret(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn access(pairs: &[(&str, &str)]) -> Result<Access> {
    Access::from_secret(&secret(pairs), &Policy::unrestricted())
}

/// An address that no other test uses.
fn address() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("memkv://access-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

async fn formatted(url: &str, bucket: &str) -> std::sync::Arc<Meta> {
    let access = access(&[
        ("name", "vol"),
        ("metaurl", url),
        ("storage", "file"),
        ("bucket", bucket),
        ("access-key", "first"),
        ("secret-key", "sesame"),
        ("block-size", "4M"),
        ("format-options", "block-size=1M,trash-days=0"),
    ]);
    access.unwrap().connect(Options::default()).await.unwrap()
}

#[test]
fn unknown_keys_and_invalid_values_are_refused_by_name() {
    let plain = [("name", "vol"), ("metaurl", "host")];
    for (key, value, word) in [
        ("colour", "sesame", "colour"),
        ("token", "sesame", "enterprise"),
        ("encrypt_rsa_key", "sesame", "encrypt_rsa_key"),
        ("format-options", "sesame", "format-options"),
        ("format-options", "trash-days=1,secret-key=abc,sesame", "number 3"),
        ("format-options", "trash-days=sesame", "trash-days"),
        ("format-options", "force", "format-options"),
        ("block-size", "much", "block-size"),
        ("configs", "{other: /nowhere/at/all}", "/nowhere/at/all"),
        ("envs", "{JFS_FILE_SYNC: perhaps}", "JFS_FILE_SYNC"),
    ] {
        let error = access(&[plain[0], plain[1], (key, value)]).unwrap_err().to_string();
        assert!(error.contains(word), "{key}: {error}");
        assert!(!error.contains("sesame"), "{error}");
    }
    assert!(access(&[plain[0]]).unwrap_err().to_string().contains("metaurl"));
    assert!(access(&[plain[1]]).unwrap_err().to_string().contains("name"));
}

#[test]
fn nothing_secret_is_shown() {
    let access = access(&[
        ("name", "vol"),
        ("metaurl", ":sesame@host/1"),
        ("secretkey", "sesame"),
        ("envs", "{META_PASSWORD: sesame, COLOUR: sesame}"),
    ])
    .unwrap();
    let shown = format!("{access:?} {} {}", access.masked_address(), access.id());
    assert!(!shown.contains("sesame"), "{shown}");
    assert_eq!(access.masked_address(), "redis://:****@host/1");
    assert_eq!(access.unused_variables(), ["COLOUR"]);
}

#[test]
fn the_environment_of_a_secret_stays_out_of_the_process() {
    let overrides = access(&[
        ("name", "vol"),
        ("metaurl", "host"),
        (
            "envs",
            r#"{"AWS_ACCESS_KEY_ID": "a", "JFS_RSA_PASSPHRASE": "p", "JFS_FILE_SYNC": "false"}"#,
        ),
    ])
    .unwrap()
    .overrides();
    assert_eq!((overrides.passphrase.expose(), overrides.sync), ("p", Some(false)));
    assert_eq!(overrides.env["AWS_ACCESS_KEY_ID"].expose(), "a");
    assert!(std::env::var_os("JFS_RSA_PASSPHRASE").is_none());
}

#[test]
fn regression_a_secret_may_name_a_proxy() {
    let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"];
    for name in names {
        let envs = format!("{{{name}: sesame}}");
        let access = access(&[("name", "vol"), ("metaurl", "host"), ("envs", &envs)]).unwrap();
        assert_eq!(access.overrides().env[name].expose(), "sesame");
        assert!(access.unused_variables().is_empty(), "{name}");
    }
}

#[tokio::test]
async fn a_file_system_is_formatted_once_and_format_options_win() {
    let (folder, url) = (tempfile::tempdir().unwrap(), address());
    let bucket = folder.path().to_str().unwrap();
    let meta = formatted(&url, bucket).await;
    let setting = meta.context().setting();
    assert_eq!((setting.block_size, setting.trash_days), (1024, 0));

    let other = access(&[
        ("name", "vol"),
        ("metaurl", &url),
        ("storage", "file"),
        ("bucket", "/elsewhere"),
        ("trash-days", "9"),
    ])
    .unwrap();
    let again = other.connect(Options::default()).await.unwrap();
    assert_eq!(*again.context().setting(), *setting);
}

#[tokio::test]
async fn nothing_is_formatted_without_a_storage_and_a_bucket() {
    let url = address();
    let access = access(&[("name", "vol"), ("metaurl", &url), ("storage", "file")]).unwrap();
    let error = access.connect(Options::default()).await.err().unwrap();
    assert!(matches!(&error, Error::Refused(why) if why.contains("bucket")), "{error}");
    let meta = Meta::attach(&url, Options::default()).await.unwrap();
    assert!(meta.stored_setting().await.unwrap().is_none());
}

#[tokio::test]
async fn a_file_system_of_another_name_is_refused() {
    let (folder, url) = (tempfile::tempdir().unwrap(), address());
    formatted(&url, folder.path().to_str().unwrap()).await;
    let access = access(&[("name", "other"), ("metaurl", &url)]).unwrap();
    let error = access.connect(Options::default()).await.err().unwrap().to_string();
    assert!(error.contains("\"vol\"") && error.contains("\"other\""), "{error}");
}

#[tokio::test]
async fn changed_keys_are_stored_and_announced_and_nothing_else_is() {
    let (folder, url) = (tempfile::tempdir().unwrap(), address());
    let bucket = folder.path().to_str().unwrap();
    let meta = formatted(&url, bucket).await;
    let mut changes = meta.setting_changes();
    changes.mark_unchanged();
    let next = access(&[
        ("name", "vol"),
        ("metaurl", &url),
        ("storage", "file"),
        ("bucket", bucket),
        ("access-key", "second"),
        ("secret-key", "other"),
        ("trash-days", "7"),
    ])
    .unwrap();
    assert!(next.update_keys(&meta).await.unwrap());
    assert!(changes.has_changed().unwrap());
    let mut stored = meta.stored_setting().await.unwrap().unwrap();
    stored.decrypt().unwrap();
    assert_eq!((stored.access_key.as_str(), stored.secret_key.expose()), ("second", "other"));
    assert_eq!(stored.trash_days, 0);
    assert!(!next.update_keys(&meta).await.unwrap());
}
