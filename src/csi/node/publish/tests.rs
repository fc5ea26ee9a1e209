use proptest::collection::hash_map;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::csi::proto::csi::VolumeCapability;
use crate::csi::proto::csi::volume_capability::MountVolume;
use crate::policy::Flags;

/// Part of every secret value, and of no message.
const CANARY: &str = "Canary-7F";

/// Every key of a Secret, and an unknown one.
const KEYS: &[&str] = &[
    "name",
    "metaurl",
    "storage",
    "bucket",
    "access-key",
    "accesskey",
    "secret-key",
    "secretkey",
    "session-token",
    "format-options",
    "block-size",
    "compress",
    "trash-days",
    "capacity",
    "inodes",
    "shards",
    "envs",
    "configs",
    "encrypt_rsa_key",
    "token",
    "colour",
];

/// Prefixes of options.
const WORDS: &[&str] = &[
    "cache-size=",
    "subdir=",
    "cache-dir=",
    "suid",
    "ro",
    "umask=",
    "upload-limit=",
    "x-",
    "o=",
    "root-squash=",
    "max_read=",
    "context=",
    "writeback",
    "debug",
    "heartbeat=",
    "custom-labels=",
];
const ATTRIBUTES: &[&str] = &[
    "subPath",
    "subdir",
    "mountOptions",
    "capacity",
    "size",
    "juicefs/mount-memory-limit",
    "juicefs/clean-cache",
    "csi.storage.k8s.io/ephemeral",
    "csi.storage.k8s.io/pod.name",
    "colour",
];

fn policy() -> Arc<Policy> {
    Policy::new(Flags::default()).unwrap()
}

fn secret(more: &[(&str, &str)]) -> HashMap<String, String> {
    let plain =
        [("name", "vol"), ("metaurl", "redis://h/1"), ("storage", "s3"), ("bucket", "http://h/b")];
    let pairs = plain.iter().chain(more);
    pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Arbitrary text, and text that resembles valid values.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,40}",
        "[-{}\\[\\]:,\"'&*!|>%@`# a-z=\n]{0,60}",
        "[a-z0-9]{0,8}://[-a-z:@/?&=%_.\\[\\]]{0,40}",
        "\\{?[A-Z_]{0,20}: ?[/a-z]{0,20}\\}?",
        "[a-z-]{0,12}=[0-9a-zA-Z/]{0,20},?[a-z-]{0,12}",
    ]
}

fn with_canary(mut text: String, at: usize) -> String {
    let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.insert_str(at, CANARY);
    text
}

fn request(context: HashMap<String, String>, flags: Vec<String>) -> NodePublishVolumeRequest {
    let mount = MountVolume { mount_flags: flags, ..MountVolume::default() };
    NodePublishVolumeRequest {
        volume_id: "pvc-1".to_owned(),
        target_path: "/target".to_owned(),
        volume_capability: Some(VolumeCapability {
            access_type: Some(AccessType::Mount(mount)),
            access_mode: None,
        }),
        secrets: secret(&[]),
        volume_context: context,
        ..NodePublishVolumeRequest::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_secret_is_read_or_refused_by_its_key_and_never_shown(
        key in select(KEYS), value in text(), at in 0_usize..60,
    ) {
        let value = with_canary(value, at);
        match Access::from_secret(&secret(&[(key, &value)]), &policy()) {
            Ok(access) => {
                let shown = format!("{access:?} {}", access.id());
                prop_assert!(key == "name" || !shown.contains(CANARY), "{shown}");
            }
            Err(error) => {
                let message = error.to_string();
                prop_assert!(message.contains(key), "{key}: {message}");
                prop_assert!(!message.contains(CANARY), "{message}");
            }
        }
    }

    #[test]
    fn options_and_attributes_are_read_or_refused(
        context in hash_map(select(ATTRIBUTES), text(), 0..4),
        flags in proptest::collection::vec((select(WORDS), text()), 0..4),
    ) {
        let context = context.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let flags = flags.into_iter().map(|(word, text)| format!("{word}{text}")).collect();
        if let Ok((publish, _)) = super::publish_request(&request(context, flags), &policy()) {
            let mut parts = publish.path.split('/');
            prop_assert!(parts.all(|part| part != ".."), "{}", publish.path);
            let reserved = [".jfs-csi", ".snapshots", ".trash"];
            let top = publish.path.split('/').find(|part| !part.is_empty());
            prop_assert!(top.is_none_or(|top| !reserved.contains(&top)), "{}", publish.path);
            prop_assert!(publish.args.cache.cache_dir.is_none());
            prop_assert!(publish.args.fuse.options.more.iter().all(|one| one != "suid" && one != "dev"));
            prop_assert!(!publish.ephemeral);
        }
    }
}

#[test]
fn inline_volumes_are_recognised_by_the_form_of_their_id() {
    assert!(is_inline(&format!("csi-{}", "0a".repeat(32))));
    for other in ["csi-1234", "pvc-1", &format!("csi-{}", "zz".repeat(32))] {
        assert!(!is_inline(other), "{other}");
    }
}
