//! ACL rules: setting and reading them, and their effect on modes, new nodes and access checks.

use std::sync::Arc;

use bytes::Bytes;
use jfs::Error;
use jfs::meta::engine::{Key, Record};
use jfs::meta::record::AclKind::{Access, Default};
use jfs::meta::record::attr::flag;
use jfs::meta::record::{AclEntry, AclRule, Attr};
use jfs::meta::{AttrSet, Caller, Ino, Meta, Name, Options};

use crate::support::records::{dir, file, log, put_node, stored, stored_attr};
use crate::support::volume::{Volume, setting, setting_with_acls_and_log};

const INO: Ino = Ino(77);

/// `u::6 u:1001:7 g::4 g:2000:5 m::5 o::0`
fn named() -> AclRule {
    AclRule {
        owner: 6,
        group: 4,
        mask: 5,
        other: 0,
        users: vec![AclEntry { id: 1001, perm: 7 }],
        groups: vec![AclEntry { id: 2000, perm: 5 }],
    }
}

fn minimal(owner: u16, group: u16, other: u16) -> AclRule {
    AclRule { owner, group, other, ..AclRule::empty() }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A caller whose permissions this client checks.
fn checked(uid: u32, gid: u32, gids: &[u32]) -> Caller {
    Caller { gids: gids.to_vec(), check: true, ..Caller::user(uid, gid) }
}

async fn rules(meta: &Meta) -> usize {
    meta.engine().acls().await.unwrap().len()
}

async fn client_with(volume: &Volume, node: Attr) -> Arc<Meta> {
    let meta = volume.client().await;
    put_node(&meta, INO, &node).await;
    meta
}

// Setting and reading.

async fn an_access_rule_is_stored_and_changes_the_mode(volume: Volume) {
    let meta = client_with(&volume, file(0o4777)).await;
    assert!(matches!(meta.facl(INO, Access).await, Err(Error::NoAttribute)));
    let attr = meta.set_facl(&Caller::root(), INO, Access, &named()).await.unwrap();
    assert_eq!(attr.mode, 0o4650);
    assert!(attr.ctime > file(0).ctime);
    assert_eq!(stored_attr(&meta, INO).await, attr);
    assert_eq!(*meta.facl(INO, Access).await.unwrap(), named());
    assert!(matches!(meta.facl(INO, Default).await, Err(Error::NoAttribute)));

    let key = Key::Acl(attr.access_acl);
    assert_eq!(stored(&meta, key).await, Record::Acl(Some(named())));
}

async fn a_default_rule_does_not_change_the_mode(volume: Volume) {
    let meta = client_with(&volume, dir(0o755)).await;
    let attr = meta.set_facl(&Caller::root(), INO, Default, &named()).await.unwrap();
    assert_eq!((attr.mode, attr.access_acl), (0o755, 0));
    assert_eq!(*meta.facl(INO, Default).await.unwrap(), named());
    // The mode cannot express a default rule, so even a minimal one is kept.
    let attr = meta.set_facl(&Caller::root(), INO, Default, &minimal(7, 5, 0)).await.unwrap();
    assert_eq!(attr.mode, 0o755);
    assert_eq!(*meta.facl(INO, Default).await.unwrap(), minimal(7, 5, 0));
}

async fn a_minimal_access_rule_becomes_the_mode(volume: Volume) {
    let meta = client_with(&volume, file(0o2644)).await;
    let root = Caller::root();
    meta.set_facl(&root, INO, Access, &named()).await.unwrap();
    let attr = meta.set_facl(&root, INO, Access, &minimal(7, 1, 0)).await.unwrap();
    assert_eq!((attr.mode, attr.access_acl), (0o2710, 0));
    assert!(matches!(meta.facl(INO, Access).await, Err(Error::NoAttribute)));
}

async fn an_empty_rule_removes_the_stored_one(volume: Volume) {
    let meta = client_with(&volume, dir(0o755)).await;
    let root = Caller::root();
    for kind in [Access, Default] {
        meta.set_facl(&root, INO, kind, &named()).await.unwrap();
        meta.set_facl(&root, INO, kind, &AclRule::empty()).await.unwrap();
        assert!(matches!(meta.facl(INO, kind).await, Err(Error::NoAttribute)));
    }
    let attr = stored_attr(&meta, INO).await;
    assert_eq!((attr.mode, attr.access_acl, attr.default_acl), (0o650, 0, 0));
}

async fn missing_classes_are_taken_from_the_mode(volume: Volume) {
    let meta = client_with(&volume, file(0o751)).await;
    let given = AclRule { mask: 4, users: named().users, ..AclRule::empty() };
    let attr = meta.set_facl(&Caller::root(), INO, Access, &given).await.unwrap();
    assert_eq!(attr.mode, 0o741);
    let rule = AclRule { owner: 7, group: 5, other: 1, ..given };
    assert_eq!(*meta.facl(INO, Access).await.unwrap(), rule);
}

async fn a_rule_set_again_changes_nothing(volume: Volume) {
    let meta = client_with(&volume, file(0o644)).await;
    let root = Caller::root();
    let first = meta.set_facl(&root, INO, Access, &named()).await.unwrap();
    let again = meta.set_facl(&root, INO, Access, &named()).await.unwrap();
    assert_eq!(first, again);
    let file = meta.set_facl(&root, INO, Default, &AclRule::empty()).await.unwrap();
    assert_eq!(first, file);
}

async fn only_the_owner_and_root_may_set_rules(volume: Volume) {
    let meta = client_with(&volume, file(0o644)).await;
    let stranger = Caller::user(1001, 1000);
    let refused = meta.set_facl(&stranger, INO, Access, &named()).await;
    assert!(matches!(refused, Err(Error::NotPermitted)));
    meta.set_facl(&Caller::user(1000, 1000), INO, Access, &named()).await.unwrap();
    meta.set_facl(&Caller::root(), INO, Access, &minimal(6, 4, 4)).await.unwrap();
}

async fn an_owner_outside_the_group_loses_setgid(volume: Volume) {
    let meta = client_with(&volume, file(0o2755)).await;
    let attr = meta.set_facl(&Caller::user(1000, 5), INO, Access, &named()).await.unwrap();
    assert_eq!(attr.mode, 0o650);

    put_node(&meta, INO, &file(0o2755)).await;
    let member = Caller { gids: vec![1000], ..Caller::user(1000, 5) };
    let attr = meta.set_facl(&member, INO, Access, &named()).await.unwrap();
    assert_eq!(attr.mode, 0o2650);

    // Even if the rule itself changes nothing.
    put_node(&meta, INO, &dir(0o2755)).await;
    let owner = Caller::user(1000, 5);
    let attr = meta.set_facl(&owner, INO, Default, &AclRule::empty()).await.unwrap();
    assert_eq!(attr.mode, 0o755);
}

async fn immutable_nodes_get_no_rule(volume: Volume) {
    let meta = client_with(&volume, Attr { flags: flag::IMMUTABLE, ..file(0o644) }).await;
    let root = Caller::root();
    for ino in [INO, Ino::TRASH, Ino(Ino::TRASH.0 + 1)] {
        let refused = meta.set_facl(&root, ino, Access, &named()).await;
        assert!(matches!(refused, Err(Error::NotPermitted)), "{ino}");
    }
    let missing = meta.set_facl(&root, Ino(99), Access, &named()).await;
    assert!(matches!(missing, Err(Error::NotFound)));
    assert!(matches!(meta.facl(Ino(99), Access).await, Err(Error::NotFound)));
    assert_eq!(rules(&meta).await, 0);
}

async fn a_read_only_client_stores_no_rule(volume: Volume) {
    let writer = client_with(&volume, file(0o644)).await;
    let reader = volume.client_with(Options { read_only: true, ..Options::default() }).await;
    let refused = reader.set_facl(&Caller::root(), INO, Access, &named()).await;
    assert!(matches!(refused, Err(Error::ReadOnly)));
    assert_eq!(rules(&writer).await, 0);
}

async fn changes_are_logged(volume: Volume) {
    let meta = client_with(&volume, file(0o644)).await;
    let lines_before = log(&meta).await.len();
    let rule = AclRule { mask: 7, ..minimal(6, 4, AclRule::UNSET) };
    meta.set_facl(&Caller::root(), INO, Access, &rule).await.unwrap();
    meta.set_facl(&Caller::root(), INO, Access, &rule).await.unwrap();
    assert_eq!(
        log(&meta).await[lines_before..],
        ["SETFACL(77,1,%00%06%00%04%00%07%00%04%00%00%00%00%00%00%00%00)"]
    );
}

// Rules are shared.

async fn equal_rules_have_one_id(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    for ino in [Ino(77), Ino(78), Ino(79)] {
        put_node(&here, ino, &file(0o644)).await;
    }
    let root = Caller::root();
    let one = here.set_facl(&root, Ino(77), Access, &named()).await.unwrap().access_acl;
    let two = here.set_facl(&root, Ino(78), Access, &named()).await.unwrap().access_acl;
    // This client has not loaded the rule when it needs it.
    let three = there.set_facl(&root, Ino(79), Access, &named()).await.unwrap().access_acl;
    assert_eq!((one, two), (two, three));
    assert_eq!(rules(&here).await, 1);
}

async fn a_rule_of_another_client_is_loaded_when_needed(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    put_node(&here, INO, &file(0o644)).await;
    here.set_facl(&Caller::root(), INO, Access, &named()).await.unwrap();
    assert_eq!(*there.facl(INO, Access).await.unwrap(), named());
}

async fn a_missing_rule_is_damage(volume: Volume) {
    let meta = client_with(&volume, Attr { access_acl: 5, ..file(0o644) }).await;
    assert!(matches!(meta.facl(INO, Access).await, Err(Error::Damaged { .. })));
}

async fn a_rule_requested_concurrently_is_stored_once(volume: Volume) {
    let meta = client_with(&volume, dir(0o777)).await;
    meta.set_facl(&Caller::root(), INO, Default, &named()).await.unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let meta = Arc::clone(&meta);
            tokio::spawn(async move {
                let (caller, name) = (Caller::root(), name(&format!("f{n}")));
                meta.create(&caller, INO, &name, 0o644, 0, true).await.unwrap().1
            })
        })
        .collect();
    let mut ids = Vec::new();
    for task in tasks {
        ids.push(task.await.unwrap().access_acl);
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
    assert_eq!(rules(&meta).await, 2);
}

// New nodes and changed modes.

async fn a_new_file_inherits_the_default_rule(volume: Volume) {
    let meta = client_with(&volume, dir(0o777)).await;
    let root = Caller::root();
    meta.set_facl(&root, INO, Default, &named()).await.unwrap();
    // The umask is not used.
    let (ino, attr) = meta.create(&root, INO, &name("f"), 0o4666, 0o777, true).await.unwrap();
    assert_eq!((attr.mode, attr.default_acl), (0o4640, 0));
    let rule = AclRule { owner: 6, mask: 4, other: 0, ..named() };
    assert_eq!(*meta.facl(ino, Access).await.unwrap(), rule);
    assert_eq!(stored_attr(&meta, ino).await, attr);
}

async fn a_new_directory_inherits_the_default_rule(volume: Volume) {
    let meta = client_with(&volume, dir(0o777)).await;
    let root = Caller::root();
    let default = meta.set_facl(&root, INO, Default, &named()).await.unwrap().default_acl;
    let (ino, attr) = meta.mkdir(&root, INO, &name("d"), 0o777, 0o022).await.unwrap();
    // The rule that limits it is the default rule itself.
    assert_eq!((attr.mode, attr.access_acl, attr.default_acl), (0o650, default, default));
    let (_, below) = meta.mkdir(&root, ino, &name("d"), 0o700, 0o022).await.unwrap();
    assert_eq!((below.mode, below.default_acl), (0o600, default));
}

async fn a_minimal_default_rule_only_limits_the_mode(volume: Volume) {
    let meta = client_with(&volume, dir(0o777)).await;
    let root = Caller::root();
    meta.set_facl(&root, INO, Default, &minimal(7, 5, 0)).await.unwrap();
    let (_, attr) = meta.create(&root, INO, &name("f"), 0o666, 0o077, true).await.unwrap();
    assert_eq!((attr.mode, attr.access_acl), (0o640, 0));
}

async fn a_symlink_inherits_nothing(volume: Volume) {
    let meta = client_with(&volume, dir(0o777)).await;
    let root = Caller::root();
    meta.set_facl(&root, INO, Default, &named()).await.unwrap();
    let target = Bytes::from_static(b"t");
    let (_, attr) = meta.symlink(&root, INO, &name("s"), target).await.unwrap();
    assert_eq!((attr.mode, attr.access_acl, attr.default_acl), (0o777, 0, 0));
}

async fn chmod_changes_the_rule(volume: Volume) {
    let meta = client_with(&volume, file(0o644)).await;
    let root = Caller::root();
    let before = meta.set_facl(&root, INO, Access, &named()).await.unwrap();
    let set = AttrSet { mode: Some(0o1731), ..AttrSet::default() };
    let attr = meta.setattr(&root, INO, set).await.unwrap();
    assert_eq!(attr.mode, 0o1731);
    assert_ne!(attr.access_acl, before.access_acl);
    // The group bits are the mask; the group entry itself stays.
    let rule = AclRule { owner: 7, mask: 3, other: 1, ..named() };
    assert_eq!(*meta.facl(INO, Access).await.unwrap(), rule);
    let key = Key::Acl(before.access_acl);
    assert_eq!(stored(&meta, key).await, Record::Acl(Some(named())));
}

// Checks.

/// Whether the caller may search the directory.
async fn may_search(meta: &Meta, caller: &Caller) -> bool {
    match meta.lookup(caller, INO, &name("missing")).await {
        Err(Error::NotFound) => true,
        Err(Error::AccessDenied) => false,
        other => panic!("{other:?}"),
    }
}

async fn mode_bits_decide_without_a_rule(volume: Volume) {
    let meta = client_with(&volume, dir(0o710)).await;
    assert!(may_search(&meta, &checked(1000, 5, &[])).await);
    assert!(may_search(&meta, &checked(1001, 1000, &[])).await);
    assert!(may_search(&meta, &checked(1001, 5, &[6, 1000])).await);
    assert!(!may_search(&meta, &checked(1001, 5, &[6])).await);
    assert!(may_search(&meta, &checked(0, 0, &[])).await);
    // The kernel has checked.
    assert!(may_search(&meta, &Caller::user(1001, 5)).await);

    // The first class that matches decides.
    put_node(&meta, INO, &dir(0o011)).await;
    assert!(!may_search(&meta, &checked(1000, 1000, &[])).await);
    put_node(&meta, INO, &dir(0o701)).await;
    assert!(!may_search(&meta, &checked(1001, 1000, &[])).await);
}

async fn a_rule_decides_if_there_is_one(volume: Volume) {
    let meta = client_with(&volume, dir(0o755)).await;
    meta.set_facl(&Caller::root(), INO, Access, &named()).await.unwrap();
    // u::6 u:1001:7 g::4 g:2000:5 m::5 o::0
    assert!(!may_search(&meta, &checked(1000, 2000, &[])).await);
    assert!(may_search(&meta, &checked(1001, 5, &[])).await);
    assert!(!may_search(&meta, &checked(1002, 1000, &[])).await);
    assert!(may_search(&meta, &checked(1002, 1000, &[2000])).await);
    assert!(!may_search(&meta, &checked(1002, 5, &[])).await);

    // The mask limits named users.
    let add = meta.create(&checked(1001, 5, &[]), INO, &name("f"), 0o644, 0, true).await;
    assert!(matches!(add, Err(Error::AccessDenied)));
}

async fn with_an_empty_mask_the_mode_decides(volume: Volume) {
    let meta = client_with(&volume, dir(0o755)).await;
    let rule = AclRule { mask: 0, other: 1, ..named() };
    let attr = meta.set_facl(&Caller::root(), INO, Access, &rule).await.unwrap();
    assert_eq!(attr.mode, 0o601);
    // The rule would deny user 1001; by the mode it is in the class of others.
    assert!(may_search(&meta, &checked(1001, 5, &[])).await);
    assert!(!may_search(&meta, &checked(1001, 1000, &[])).await);
}

crate::on_every_engine! {
    super::setting_with_acls_and_log();
    an_access_rule_is_stored_and_changes_the_mode,
    a_default_rule_does_not_change_the_mode,
    a_minimal_access_rule_becomes_the_mode,
    an_empty_rule_removes_the_stored_one,
    missing_classes_are_taken_from_the_mode,
    a_rule_set_again_changes_nothing,
    only_the_owner_and_root_may_set_rules,
    an_owner_outside_the_group_loses_setgid,
    immutable_nodes_get_no_rule,
    a_read_only_client_stores_no_rule,
    changes_are_logged,
    equal_rules_have_one_id,
    a_rule_of_another_client_is_loaded_when_needed,
    a_missing_rule_is_damage,
    a_rule_requested_concurrently_is_stored_once,
    a_new_file_inherits_the_default_rule,
    a_new_directory_inherits_the_default_rule,
    a_minimal_default_rule_only_limits_the_mode,
    a_symlink_inherits_nothing,
    chmod_changes_the_rule,
    mode_bits_decide_without_a_rule,
    a_rule_decides_if_there_is_one,
    with_an_empty_mask_the_mode_decides,
}

mod without_acls {
    use super::*;

    #[tokio::test]
    async fn a_volume_without_acls_has_and_accepts_no_rules() {
        let volume = Volume::memory_with(setting()).await;
        let meta = client_with(&volume, file(0o644)).await;
        let refused = meta.set_facl(&Caller::root(), INO, Access, &named()).await;
        assert!(matches!(refused, Err(Error::NotSupported)));
        assert!(matches!(meta.facl(INO, Access).await, Err(Error::NoAttribute)));
    }
}
