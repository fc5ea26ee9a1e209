//! ACL rules: inserted, read by id and listed.

use jfs::meta::record::{AclEntry, AclRule};

use crate::fixtures::*;

fn rule() -> AclRule {
    AclRule {
        owner: 7,
        group: 5,
        mask: 6,
        other: 4,
        users: vec![AclEntry { id: 1000, perm: 7 }, AclEntry { id: u32::MAX, perm: 0 }],
        groups: vec![AclEntry { id: 3, perm: 1 }],
    }
}

fn minimal() -> AclRule {
    AclRule { mask: AclRule::UNSET, users: vec![], groups: vec![], ..rule() }
}

on_every_engine! {
    async fn a_rule_is_read_by_the_id_it_was_given(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        let first = engine.insert_acl(&rule()).await.expect("inserts");
        let second = engine.insert_acl(&minimal()).await.expect("inserts");
        assert_eq!((first, second), (1, 2));
        assert_eq!(acl(engine, first).await, Some(rule()));
        assert_eq!(acl(engine, second).await, Some(minimal()));
        assert_eq!(acl(engine, 3).await, None);
    }

    async fn all_rules_are_listed(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        assert_eq!(engine.acls().await.expect("lists"), []);
        engine.insert_acl(&rule()).await.expect("inserts");
        engine.insert_acl(&minimal()).await.expect("inserts");
        let mut rules = engine.acls().await.expect("lists");
        rules.sort_by_key(|(id, _)| *id);
        assert_eq!(rules, [(1, rule()), (2, minimal())]);
    }
}
