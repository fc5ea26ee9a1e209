use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::meta::record::secret::Secret;
use crate::meta::record::setting::Tier;

// Records as the Go client stored them in SQLite.
const PLAIN: &[u8] = include_bytes!("../golden/plain.json");
const FULL: &[u8] = include_bytes!("../golden/full.json");
const CONFIGURED: &[u8] = include_bytes!("../golden/configured.json");

fn text(raw: &[u8]) -> &str {
    std::str::from_utf8(raw).unwrap()
}

fn encoded(setting: &Setting) -> String {
    String::from_utf8(setting.encode().unwrap()).unwrap()
}

#[test]
fn settings_of_the_go_client_are_rewritten_byte_for_byte() {
    for raw in [PLAIN, FULL, CONFIGURED] {
        assert_eq!(encoded(&Setting::decode(raw).unwrap()), text(raw));
    }
}

#[test]
fn a_new_setting_equals_that_of_the_go_client() {
    let uuid = "36d4194c-6ec5-428e-93e7-6cf2453c4436".parse().unwrap();
    let mut setting = Setting::new("plain", uuid).unwrap();
    setting.bucket = "/tmp/records/b1/".into();
    assert_eq!(encoded(&setting), text(PLAIN));
}

#[test]
fn every_field_of_a_full_setting_is_read() {
    let full = Setting::decode(FULL).unwrap();
    assert_eq!(
        full,
        Setting {
            name: "full-vol".into(),
            uuid: "945c5514-81a9-4ebc-8e39-d91d463d3558".into(),
            storage: "file".into(),
            storage_class: "STANDARD_IA".into(),
            tiers: Some(BTreeMap::from([(0, Tier::new(0, "STANDARD_IA"))])),
            bucket: "/tmp/records/b2/".into(),
            access_key: "a<k>&".into(),
            secret_key: full.secret_key.clone(),
            session_token: full.session_token.clone(),
            block_size: 256,
            compression: "zstd".into(),
            hash_prefix: true,
            capacity: 11 << 30,
            inodes: 1000,
            encrypt_key: full.encrypt_key.clone(),
            encrypt_algo: "aes256gcm-rsa".into(),
            key_encrypted: true,
            meta_version: 1,
            min_client_version: "1.4.0-A".into(),
            dir_stats: true,
            enable_acl: true,
            ranger_rest_url: "http://r?a=1&b=2".into(),
            ranger_service: "svc".into(),
            kerb_conf: "krb\t\"q\" \\ <a> & b\r\n\u{1}\u{1f}\u{7f}\u{8}\u{c}\u{2028}\u{2029} \
                        \u{fffd}\u{fffd} é/"
                .into(),
            ..Setting::default()
        }
    );
    let configured = Setting::decode(CONFIGURED).unwrap();
    assert_eq!(configured.tier(2).unwrap().storage_class, "COLD<&>");
    assert_eq!((configured.upload_limit, configured.download_limit), (800, 16));
    assert_eq!((configured.change_log_max_age, configured.change_log_max_lines), (7200, 5000));
    assert!(configured.change_log && configured.user_group_quota);
}

#[test]
fn the_table_of_keys_matches_the_struct() {
    let filled: Map<String, Value> = FIELDS
        .iter()
        .map(|(name, shape)| {
            let value = match shape {
                Text => json!("x"),
                Number => json!(7),
                Flag => json!(true),
                Tiers => json!({"0": {"ID": 0, "StorageClass": "s", "Tag": "t"}}),
            };
            ((*name).to_owned(), value)
        })
        .collect();
    let raw = serde_json::to_vec(&filled).unwrap();
    let setting = Setting::decode(&raw).unwrap();
    assert!(setting.unknown.is_empty());
    let written = setting.to_object().unwrap();
    assert!(written.iter().eq(filled.iter()), "{written:?}");
}

#[test]
fn keys_match_in_any_case_and_the_last_wins() {
    let raw = br#"{"name": "a", "NAME": "b", "uuid": "u", "blocksize": 64, "enableAcl": true,
        "tiers": {"0": {"id": 0, "storageclass": "C", "TAG": null}}}"#;
    let setting = Setting::decode(raw).unwrap();
    assert_eq!((setting.name.as_str(), setting.uuid.as_str()), ("b", "u"));
    assert_eq!((setting.block_size, setting.enable_acl), (64, true));
    assert_eq!(setting.tier(0), Some(Tier::new(0, "C")));
    assert!(setting.unknown.is_empty());
}

#[test]
fn unknown_keys_are_written_back_last() {
    let raw = text(PLAIN)
        .replace("\"UUID\"", "\"New\": {\n\"B\": [\n1,\n\"\\u003c\"\n],\n\"A\": 1\n},\n\"UUID\"");
    let setting = Setting::decode(raw.as_bytes()).unwrap();
    let wanted = text(PLAIN).replace(
        "\"EnableACL\": false\n",
        "\"EnableACL\": false,\n\"New\": {\n\"B\": [\n1,\n\"\\u003c\"\n],\n\"A\": 1\n}\n",
    );
    assert_eq!(encoded(&setting), wanted);
}

#[test]
fn unknown_keys_of_a_tier_are_written_back() {
    let raw = text(PLAIN).replace("\"Tag\": \"\"\n", "\"Tag\": \"\",\n\"New\": 1\n");
    assert_eq!(encoded(&Setting::decode(raw.as_bytes()).unwrap()), raw);
}

#[test]
fn a_volume_older_than_tiers_has_its_storage_class() {
    for raw in [r#"{"StorageClass": "IA", "Tiers": null}"#, r#"{"StorageClass": "IA"}"#] {
        let mut setting = Setting::decode(raw.as_bytes()).unwrap();
        assert_eq!(setting.tiers, None);
        assert_eq!(setting.tier(0), Some(Tier::new(0, "IA")));
        assert_eq!(setting.tier(1), None);
        assert!(encoded(&setting).contains("\n\"Tiers\": null,\n"));
        setting.tiers_mut().insert(1, Tier::new(1, "COLD"));
        assert_eq!(setting.tier(0), Some(Tier::new(0, "IA")));
    }
}

#[test]
fn null_is_ignored() {
    let setting = Setting::decode(br#"{"Name": null, "TrashDays": null, "New": null}"#).unwrap();
    assert_eq!((setting.name.as_str(), setting.trash_days), ("", 0));
    assert!(setting.unknown.contains_key("New"));
}

#[test]
fn errors_of_a_damaged_setting_contain_no_values() {
    for (raw, cause) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        (r#"{"SecretKey": 4711}"#, "SecretKey is not text"),
        (r#"{"blockSize": "4711"}"#, "BlockSize is not a number"),
        (r#"{"DirStats": 4711}"#, "DirStats is neither true nor false"),
        (r#"{"Tiers": [4711]}"#, "Tiers is not an object"),
        (r#"{"Tiers": {"0": 4711}}"#, "Tiers holds a tier that is not an object"),
    ] {
        let error = Setting::decode(raw.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), format!("damaged record setting: {cause}"));
    }
    for raw in [r"[]", r#"{"Tiers": {"x": {}}}"#, r#"{"Capacity": -1}"#, r#"{"Shards": 1.5}"#] {
        assert!(Setting::decode(raw.as_bytes()).is_err(), "{raw}");
    }
}

#[test]
fn displayed_settings_are_indented_and_without_secrets() {
    let shown = Setting::decode(FULL).unwrap().display().unwrap();
    assert!(shown.contains("\n  \"SecretKey\": \"removed\",\n"), "{shown}");
    assert!(shown.contains("\n  \"Tiers\": {\n    \"0\": {\n      \"ID\": 0,\n"), "{shown}");
}

prop_compose! {
    fn settings()(
        texts in prop::array::uniform12(any::<String>()),
        numbers in prop::array::uniform8(any::<i64>()),
        sizes: (u64, u64),
        flags in prop::array::uniform6(any::<bool>()),
        tiers in prop::option::of(prop::collection::vec(any::<(u8, String, String)>(), 0..4)),
        unknown in prop::collection::vec(("x[a-z]{0,4}", any::<String>()), 0..3),
    ) -> Setting {
        let [name, uuid, bucket, access_key, secret_key, session_token, compression, encrypt_key,
            encrypt_algo, min_client_version, ranger_rest_url, kerb_conf] = texts;
        let [block_size, shards, upload_limit, download_limit, trash_days, meta_version,
            change_log_max_age, change_log_max_lines] = numbers;
        let [hash_prefix, key_encrypted, dir_stats, user_group_quota, enable_acl, change_log] =
            flags;
        let tier = |(id, class, tag): (u8, String, String)| (id, Tier { tag, ..Tier::new(id, class) });
        Setting {
            name, uuid, bucket, access_key, compression, encrypt_algo, min_client_version,
            ranger_rest_url, kerb_conf, block_size, shards, upload_limit, download_limit,
            trash_days, meta_version, change_log_max_age, change_log_max_lines, hash_prefix,
            key_encrypted, dir_stats, user_group_quota, enable_acl, change_log,
            secret_key: Secret::new(secret_key),
            session_token: Secret::new(session_token),
            encrypt_key: Secret::new(encrypt_key),
            capacity: sizes.0,
            inodes: sizes.1,
            tiers: tiers.map(|tiers| tiers.into_iter().map(tier).collect()),
            unknown: unknown.into_iter().map(|(key, text)| (key, Value::String(text))).collect(),
            ..Setting::default()
        }
    }
}

proptest! {
    #[test]
    fn an_encoded_setting_decodes_to_the_same(setting in settings()) {
        prop_assert_eq!(Setting::decode(&setting.encode().unwrap()).unwrap(), setting);
    }

    #[test]
    fn any_bytes_decode_or_fail(raw: Vec<u8>) {
        let _ = Setting::decode(&raw);
    }
}

/// A setting of the Go client with some values replaced by unusual ones, and then some bytes
/// changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let values = prop::sample::select(vec![
        json!(-1),
        json!(0),
        json!(3),
        json!(100_000),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1e300),
        json!(null),
        json!(true),
        json!("../../.."),
        json!("a\0b"),
        json!({"0": {"ID": 300}}),
        json!([[[]]]),
    ]);
    let edits = prop::collection::vec((0..FIELDS.len(), values), 0..6);
    let bytes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (prop::sample::select(vec![PLAIN, FULL, CONFIGURED]), edits, bytes).prop_map(
        |(raw, edits, bytes)| {
            let mut object: Map<String, Value> = serde_json::from_slice(raw).unwrap();
            for (field, value) in edits {
                object.insert(FIELDS[field].0.to_owned(), value);
            }
            let mut raw = serde_json::to_vec(&object).unwrap();
            for (at, byte) in bytes {
                let at = at.index(raw.len());
                raw[at] = byte;
            }
            raw
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// Accepted settings have usable sizes and names.
    #[test]
    fn a_mutated_setting_is_refused_or_usable(raw in mutated()) {
        if let Ok(setting) = Setting::decode(&raw) && setting.check_stored().is_ok() {
            let kib = setting.block_size;
            prop_assert!((64..=16384).contains(&kib) && kib.count_ones() == 1);
            prop_assert!(!setting.name.contains(['/', '.', '\0']) && !setting.name.is_empty());
            prop_assert!(!setting.uuid.contains(['/', '.', '\0']) && !setting.uuid.is_empty());
            prop_assert!((0..=256).contains(&setting.shards) && setting.trash_days >= 0);
            prop_assert!(setting.compression().is_ok());
        }
    }
}

#[test]
fn a_setting_that_is_too_long_is_refused() {
    let long = |field: &str, len: usize| {
        let mut object: Map<String, Value> = serde_json::from_slice(PLAIN).unwrap();
        object.insert(field.to_owned(), json!("x".repeat(len)));
        Setting::decode(&serde_json::to_vec(&object).unwrap())
    };
    long("Bucket", 1000).unwrap();
    let told = long("Bucket", 100_000).unwrap_err().to_string();
    assert!(told.contains("Bucket is longer") && told.len() < 200, "{told}");
    let told = long("Anything", 2 << 20).unwrap_err().to_string();
    assert!(told.contains("bytes") && told.len() < 200, "{told}");
    let deep = format!("{{\"Tiers\": {}", "[".repeat(100_000));
    Setting::decode(deep.as_bytes()).unwrap_err();
}
