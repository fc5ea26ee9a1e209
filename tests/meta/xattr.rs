//! Extended attributes: setting, reading, listing, removing, and what is refused.

use bytes::Bytes;
use jfs::Error;
use jfs::meta::engine::{Key, Record};
use jfs::meta::record::attr::flag;
use jfs::meta::record::{AclKind, AclRule, Attr};
use jfs::meta::{Caller, Ino, Meta, Options, XattrMode};

use crate::support::records::{dir, file, log, put_node, stored, stored_attr};
use crate::support::volume::{Volume, setting_with_acls_and_log};

const INO: Ino = Ino(77);
const MAX_NAME: usize = 255;
const MAX_VALUE: usize = 65536;

async fn set(meta: &Meta, name: &str, value: &[u8]) -> Result<(), Error> {
    meta.set_xattr(INO, name.as_bytes(), value, XattrMode::Put).await
}

async fn names(meta: &Meta, ino: Ino) -> Vec<String> {
    let mut names: Vec<String> =
        meta.xattrs(ino).await.unwrap().iter().map(ToString::to_string).collect();
    names.sort();
    names
}

async fn client_with_file(volume: &Volume) -> std::sync::Arc<Meta> {
    let meta = volume.client().await;
    put_node(&meta, INO, &file(0o644)).await;
    meta
}

async fn an_attribute_is_set_read_listed_and_removed(volume: Volume) {
    let meta = client_with_file(&volume).await;
    assert!(matches!(meta.xattr(INO, b"user.k").await, Err(Error::NoAttribute)));
    assert!(names(&meta, INO).await.is_empty());

    set(&meta, "user.k", b"one").await.unwrap();
    set(&meta, "user.k", b"two").await.unwrap();
    set(&meta, "user.a/b", &[0, 255, 10]).await.unwrap();
    assert_eq!(meta.xattr(INO, b"user.k").await.unwrap(), "two");
    assert_eq!(meta.xattr(INO, b"user.a/b").await.unwrap(), Bytes::from_static(&[0, 255, 10]));
    assert_eq!(names(&meta, INO).await, ["user.a/b", "user.k"]);

    meta.remove_xattr(INO, b"user.k").await.unwrap();
    assert!(matches!(meta.xattr(INO, b"user.k").await, Err(Error::NoAttribute)));
    assert!(matches!(meta.remove_xattr(INO, b"user.k").await, Err(Error::NoAttribute)));
    assert_eq!(names(&meta, INO).await, ["user.a/b"]);
}

async fn create_fails_if_present_and_replace_if_absent(volume: Volume) {
    let meta = client_with_file(&volume).await;
    let put = |value: &'static [u8], mode| meta.set_xattr(INO, b"user.k", value, mode);
    assert!(matches!(put(b"1", XattrMode::Replace).await, Err(Error::NoAttribute)));
    put(b"2", XattrMode::Create).await.unwrap();
    assert!(matches!(put(b"3", XattrMode::Create).await, Err(Error::Exists)));
    assert_eq!(meta.xattr(INO, b"user.k").await.unwrap(), "2");
    put(b"4", XattrMode::Replace).await.unwrap();
    assert_eq!(meta.xattr(INO, b"user.k").await.unwrap(), "4");
}

async fn unknown_flags_are_invalid(_volume: Volume) {
    for (flags, mode) in [(0, XattrMode::Put), (1, XattrMode::Create), (2, XattrMode::Replace)] {
        assert_eq!(XattrMode::from_flags(flags).unwrap(), mode);
    }
    assert!(matches!(XattrMode::from_flags(3), Err(Error::Invalid)));
}

async fn names_and_values_have_limits(volume: Volume) {
    let meta = client_with_file(&volume).await;
    let longest = "n".repeat(MAX_NAME);
    set(&meta, &longest, &vec![7; MAX_VALUE]).await.unwrap();
    assert_eq!(meta.xattr(INO, longest.as_bytes()).await.unwrap().len(), MAX_VALUE);

    let too_long = "n".repeat(MAX_NAME + 1);
    assert!(matches!(set(&meta, &too_long, b"v").await, Err(Error::OutOfRange)));
    assert!(matches!(meta.xattr(INO, too_long.as_bytes()).await, Err(Error::OutOfRange)));
    assert!(matches!(meta.remove_xattr(INO, too_long.as_bytes()).await, Err(Error::OutOfRange)));
    let too_big = set(&meta, "user.k", &vec![7; MAX_VALUE + 1]).await;
    assert!(matches!(too_big, Err(Error::OutOfRange)));
    assert!(matches!(set(&meta, "", b"v").await, Err(Error::Invalid)));
    assert!(matches!(meta.xattr(INO, b"").await, Err(Error::Invalid)));
    assert!(matches!(set(&meta, "a\0b", b"v").await, Err(Error::Invalid)));
}

async fn an_empty_value_is_kept_if_the_store_supports_it(volume: Volume) {
    let meta = client_with_file(&volume).await;
    let outcome = set(&meta, "user.k", b"").await;
    if meta.engine().properties().refuses_empty_xattr {
        assert!(matches!(outcome, Err(Error::Invalid)));
    } else {
        outcome.unwrap();
        assert_eq!(meta.xattr(INO, b"user.k").await.unwrap(), "");
        let again = meta.set_xattr(INO, b"user.k", b"", XattrMode::Create).await;
        assert!(matches!(again, Err(Error::Exists)));
        assert_eq!(names(&meta, INO).await, ["user.k"]);
    }
}

async fn setting_an_attribute_of_a_missing_node_fails(volume: Volume) {
    let meta = volume.client().await;
    assert!(matches!(set(&meta, "user.k", b"v").await, Err(Error::NotFound)));
    assert!(matches!(meta.xattrs(INO).await, Err(Error::NotFound)));
    assert!(matches!(meta.xattr(INO, b"user.k").await, Err(Error::NoAttribute)));
}

async fn changing_an_attribute_updates_the_ctime(volume: Volume) {
    let meta = client_with_file(&volume).await;
    let before = file(0o644);
    set(&meta, "user.k", b"v").await.unwrap();
    let set_at = stored_attr(&meta, INO).await;
    assert!(set_at.ctime > before.ctime);
    set(&meta, "user.k", b"v").await.unwrap();
    assert_eq!(stored_attr(&meta, INO).await, set_at, "nothing new");
    meta.remove_xattr(INO, b"user.k").await.unwrap();
    let removed_at = stored_attr(&meta, INO).await;
    assert!(removed_at.ctime > set_at.ctime);
    assert_eq!(Attr { ctime: before.ctime, ..removed_at }, before, "nothing else");
}

async fn frozen_nodes_keep_their_attributes(volume: Volume) {
    let meta = client_with_file(&volume).await;
    set(&meta, "user.k", b"v").await.unwrap();
    for flags in [flag::IMMUTABLE, flag::APPEND] {
        put_node(&meta, INO, &Attr { flags, ..file(0o644) }).await;
        assert!(matches!(set(&meta, "user.k", b"w").await, Err(Error::NotPermitted)));
        let removed = meta.remove_xattr(INO, b"user.k").await;
        assert!(matches!(removed, Err(Error::NotPermitted)));
        assert_eq!(meta.xattr(INO, b"user.k").await.unwrap(), "v");
    }
}

async fn the_root_has_attributes(volume: Volume) {
    let meta = volume.client().await;
    meta.set_xattr(Ino::ROOT, b"user.k", b"v", XattrMode::Put).await.unwrap();
    assert_eq!(meta.xattr(Ino::ROOT, b"user.k").await.unwrap(), "v");
    let key = Key::Xattr(Ino::ROOT, jfs::meta::Name::new("user.k").unwrap());
    assert_eq!(stored(&meta, key).await, Record::Xattr(Some("v".into())));
}

async fn setting_an_attribute_of_the_trash_fails(volume: Volume) {
    let meta = volume.client().await;
    for ino in [Ino::TRASH, Ino(Ino::TRASH.0 + 1)] {
        let set = meta.set_xattr(ino, b"user.k", b"v", XattrMode::Put).await;
        assert!(matches!(set, Err(Error::NotPermitted)));
        assert!(matches!(meta.remove_xattr(ino, b"user.k").await, Err(Error::NotPermitted)));
        assert!(matches!(meta.xattr(ino, b"user.k").await, Err(Error::NoAttribute)));
    }
}

async fn acl_rules_are_listed(volume: Volume) {
    let meta = volume.client().await;
    put_node(&meta, INO, &dir(0o755)).await;
    set(&meta, "user.k", b"v").await.unwrap();
    let rule = AclRule { owner: 7, group: 5, mask: 7, other: 0, ..AclRule::empty() };
    let root = Caller::root();
    meta.set_facl(&root, INO, AclKind::Default, &rule).await.unwrap();
    assert_eq!(names(&meta, INO).await, ["system.posix_acl_default", "user.k"]);
    meta.set_facl(&root, INO, AclKind::Access, &rule).await.unwrap();
    assert_eq!(
        names(&meta, INO).await,
        ["system.posix_acl_access", "system.posix_acl_default", "user.k"]
    );
}

async fn a_read_only_client_only_reads(volume: Volume) {
    let writer = client_with_file(&volume).await;
    set(&writer, "user.k", b"v").await.unwrap();
    let reader = volume.client_with(Options { read_only: true, ..Options::default() }).await;
    assert_eq!(reader.xattr(INO, b"user.k").await.unwrap(), "v");
    assert!(matches!(set(&reader, "user.k", b"w").await, Err(Error::ReadOnly)));
    assert!(matches!(reader.remove_xattr(INO, b"user.k").await, Err(Error::ReadOnly)));
}

async fn changes_are_logged(volume: Volume) {
    let meta = client_with_file(&volume).await;
    let lines_before = log(&meta).await.len();
    set(&meta, "user.k", b"a,b").await.unwrap();
    set(&meta, "user.k", b"a,b").await.unwrap();
    meta.set_xattr(INO, b"user.k", b"\xff", XattrMode::Replace).await.unwrap();
    meta.remove_xattr(INO, b"user.k").await.unwrap();
    assert_eq!(
        log(&meta).await[lines_before..],
        ["SETXATTR(77,user.k,a%2Cb,0)", "SETXATTR(77,user.k,%FF,2)", "REMOVEXATTR(77,user.k)"]
    );
}

crate::on_every_engine! {
    super::setting_with_acls_and_log();
    an_attribute_is_set_read_listed_and_removed,
    create_fails_if_present_and_replace_if_absent,
    unknown_flags_are_invalid,
    names_and_values_have_limits,
    an_empty_value_is_kept_if_the_store_supports_it,
    setting_an_attribute_of_a_missing_node_fails,
    changing_an_attribute_updates_the_ctime,
    frozen_nodes_keep_their_attributes,
    the_root_has_attributes,
    setting_an_attribute_of_the_trash_fails,
    acl_rules_are_listed,
    a_read_only_client_only_reads,
    changes_are_logged,
}
