//! Quotas of directories, users and groups.

use jfs::meta::engine::{Change, Engine};
use jfs::meta::record::{Quota, QuotaKey};

use crate::fixtures::*;

const KEYS: [QuotaKey; 3] = [QuotaKey::Dir(DIR), QuotaKey::User(1000), QuotaKey::Group(u32::MAX)];

fn limited() -> Quota {
    Quota { max_space: 1 << 30, max_inodes: 100, used_space: 24_576, used_inodes: 5 }
}

async fn put(engine: &dyn Engine, key: QuotaKey, quota: &Quota, usage: bool) -> bool {
    engine.put_quota(key, quota, usage).await.expect("puts")
}

on_every_engine! {
    async fn a_quota_is_read_as_written(store) {
        let engine = store.engine.as_ref();
        for key in KEYS {
            assert_eq!(engine.quota(key).await.expect("reads"), None);
            assert!(put(engine, key, &limited(), true).await, "is new");
            assert_eq!(engine.quota(key).await.expect("reads"), Some(limited()));
            assert_eq!(quota(engine, key).await, Some(limited()));
        }
    }

    async fn new_limits_keep_usage_unless_it_is_given(store) {
        let engine = store.engine.as_ref();
        for key in KEYS {
            put(engine, key, &limited(), true).await;
            let more = Quota { max_space: 1 << 40, max_inodes: -1, used_space: 7, used_inodes: 8 };
            assert!(!put(engine, key, &more, false).await, "is not new");
            let kept = Quota { max_space: 1 << 40, max_inodes: -1, ..limited() };
            assert_eq!(engine.quota(key).await.expect("reads"), Some(kept), "{key:?}");
            assert!(!put(engine, key, &more, true).await);
            assert_eq!(engine.quota(key).await.expect("reads"), Some(more), "{key:?}");
        }
    }

    async fn a_new_quota_without_usage_starts_at_zero(store) {
        let engine = store.engine.as_ref();
        for key in KEYS {
            put(engine, key, &limited(), false).await;
            let unused = Quota { used_space: 0, used_inodes: 0, ..limited() };
            assert_eq!(engine.quota(key).await.expect("reads"), Some(unused), "{key:?}");
        }
    }

    async fn all_quotas_are_listed(store) {
        let engine = store.engine.as_ref();
        assert_eq!(engine.quotas().await.expect("lists"), []);
        for key in KEYS {
            put(engine, key, &limited(), true).await;
        }
        let mut all = engine.quotas().await.expect("lists");
        all.sort_by_key(|(key, _)| *key);
        assert_eq!(all, KEYS.map(|key| (key, limited())));
    }

    async fn usage_adds_up(store) {
        let engine = store.engine.as_ref();
        for key in KEYS {
            put(engine, key, &limited(), true).await;
        }
        let deltas = KEYS.map(|key| (key, 4096, 1));
        engine.add_quota_usage(&deltas).await.expect("adds");
        engine.add_quota_usage(&[(KEYS[0], -8192, -2), (KEYS[0], -4096, -1)]).await.expect("adds");
        let more = Quota { used_space: 28_672, used_inodes: 6, ..limited() };
        let less = Quota { used_space: 16_384, used_inodes: 3, ..limited() };
        assert_eq!(engine.quota(KEYS[0]).await.expect("reads"), Some(less));
        assert_eq!(engine.quota(KEYS[1]).await.expect("reads"), Some(more));
        assert_eq!(engine.quota(KEYS[2]).await.expect("reads"), Some(more));
    }

    async fn users_and_groups_without_limits_are_counted(store) {
        let engine = store.engine.as_ref();
        engine.add_quota_usage(&KEYS.map(|key| (key, 4096, 1))).await.expect("adds");
        let counted = Quota { max_space: -1, max_inodes: -1, used_space: 4096, used_inodes: 1 };
        assert_eq!(engine.quota(KEYS[1]).await.expect("reads"), Some(counted));
        assert_eq!(engine.quota(KEYS[2]).await.expect("reads"), Some(counted));
    }

    async fn usage_creates_no_quota_for_a_directory(store) {
        let engine = store.engine.as_ref();
        engine.add_quota_usage(&[(KEYS[0], 4096, 1)]).await.expect("adds");
        let quota = engine.quota(KEYS[0]).await.expect("reads");
        assert!(quota.is_none_or(|quota| quota.is_unset()), "{quota:?}");
    }

    async fn a_removed_quota_of_a_directory_is_gone(store) {
        let engine = store.engine.as_ref();
        put(engine, KEYS[0], &limited(), true).await;
        engine.remove_quota(KEYS[0]).await.expect("removes");
        assert_eq!(engine.quota(KEYS[0]).await.expect("reads"), None);
        assert!(put(engine, KEYS[0], &limited(), true).await, "is new again");
        commit(engine, &[Change::RemoveDirQuota(DIR)]).await;
        commit(engine, &[Change::RemoveDirQuota(DIR)]).await;
        assert_eq!(engine.quota(KEYS[0]).await.expect("reads"), None);
        assert_eq!(engine.quotas().await.expect("lists"), []);
    }

    async fn a_removed_quota_of_an_owner_loses_its_limits_and_keeps_counting(store) {
        let engine = store.engine.as_ref();
        for key in &KEYS[1..] {
            put(engine, *key, &limited(), true).await;
            engine.remove_quota(*key).await.expect("removes");
            let unset = Quota { max_space: -1, max_inodes: -1, ..limited() };
            assert_eq!(engine.quota(*key).await.expect("reads"), Some(unset), "{key:?}");
        }
    }

    async fn clearing_owner_quotas_keeps_those_of_directories(store) {
        let engine = store.engine.as_ref();
        for key in KEYS {
            put(engine, key, &limited(), true).await;
        }
        engine.clear_owner_quotas().await.expect("clears");
        assert_eq!(engine.quotas().await.expect("lists"), [(KEYS[0], limited())]);
    }
}
