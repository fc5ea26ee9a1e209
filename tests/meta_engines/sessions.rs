//! Sessions: stored, extended, listed as stale and removed.

use jfs::meta::Sid;
use jfs::meta::engine::{Engine, StoredSession};

fn stored(sid: u64, expire: i64, info: &[u8]) -> StoredSession {
    StoredSession { sid: Sid(sid), expire, info: info.to_vec() }
}

async fn put(engine: &dyn Engine, sid: u64, expire: i64) {
    engine.put_session(Sid(sid), expire, b"{}").await.expect("puts");
}

async fn stale(engine: &dyn Engine, now: i64) -> Vec<Sid> {
    let mut sids = engine.stale_sessions(now, 100).await.expect("lists");
    sids.sort();
    sids
}

on_every_engine! {
    async fn a_session_is_read_with_its_info(store) {
        let engine = store.engine.as_ref();
        assert_eq!(engine.session(Sid(1)).await.expect("reads"), None);
        let info = br#"{"Version":"1.4.1","HostName":"h\u00e4"}"#;
        engine.put_session(Sid(1), 1000, info).await.expect("puts");
        assert_eq!(engine.session(Sid(1)).await.expect("reads"), Some(stored(1, 1000, info)));
        assert_eq!(engine.session(Sid(2)).await.expect("reads"), None);
    }

    async fn a_session_put_again_is_replaced(store) {
        let engine = store.engine.as_ref();
        engine.put_session(Sid(1), 1000, b"{\"ProcessID\":1}").await.expect("puts");
        engine.put_session(Sid(1), 2000, b"{}").await.expect("puts");
        assert_eq!(engine.sessions().await.expect("lists"), [stored(1, 2000, b"{}")]);
    }

    async fn all_sessions_are_listed(store) {
        let engine = store.engine.as_ref();
        assert_eq!(engine.sessions().await.expect("lists"), []);
        put(engine, 10, 1000).await;
        put(engine, 2, 2000).await;
        let mut sessions = engine.sessions().await.expect("lists");
        sessions.sort_by_key(|session| session.sid);
        assert_eq!(sessions, [stored(2, 2000, b"{}"), stored(10, 1000, b"{}")]);
    }

    async fn extending_a_session_moves_its_expiry_and_keeps_its_info(store) {
        let engine = store.engine.as_ref();
        engine.put_session(Sid(1), 1000, b"{\"ProcessID\":1}").await.expect("puts");
        assert!(engine.extend_session(Sid(1), 5000).await.expect("extends"));
        let extended = stored(1, 5000, b"{\"ProcessID\":1}");
        assert_eq!(engine.session(Sid(1)).await.expect("reads"), Some(extended));
    }

    async fn a_session_that_is_gone_is_not_extended(store) {
        let engine = store.engine.as_ref();
        assert!(!engine.extend_session(Sid(1), 5000).await.expect("reads"));
        assert_eq!(engine.sessions().await.expect("lists"), []);
    }

    async fn expired_sessions_are_stale(store) {
        let engine = store.engine.as_ref();
        put(engine, 1, 1000).await;
        put(engine, 2, 2000).await;
        assert_eq!(stale(engine, 1000).await, []);
        assert_eq!(stale(engine, 1001).await, [Sid(1)]);
        assert_eq!(stale(engine, 2001).await, [Sid(1), Sid(2)]);
    }

    async fn the_list_of_stale_sessions_is_limited(store) {
        let engine = store.engine.as_ref();
        for sid in 1..=5 {
            put(engine, sid, 1000).await;
        }
        assert_eq!(engine.stale_sessions(2000, 3).await.expect("lists").len(), 3);
        assert_eq!(stale(engine, 2000).await.len(), 5);
    }

    async fn a_removed_session_is_gone(store) {
        let engine = store.engine.as_ref();
        put(engine, 1, 1000).await;
        put(engine, 2, 1000).await;
        engine.remove_session(Sid(1)).await.expect("removes");
        engine.remove_session(Sid(1)).await.expect("removes nothing");
        assert_eq!(engine.session(Sid(1)).await.expect("reads"), None);
        assert_eq!(engine.sessions().await.expect("lists"), [stored(2, 1000, b"{}")]);
        assert_eq!(stale(engine, 9999).await, [Sid(2)]);
    }
}
