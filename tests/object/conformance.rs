//! The contract of every store.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use jfs::object::{GetRequest, Object};
use jfs::{Error, Result};

/// Keys that are valid as file names and as S3 keys, and need escaping in a URL.
const ODD_KEYS: [&str; 8] = [
    "a b",
    "a+b",
    "a%2Fb",
    "a&b=c?d#e",
    "\u{e4}\u{4e16}",
    "dir.with.dots/x",
    "~tilde'quote\"",
    "chunks/0/0/1_0_4194304",
];

fn keys(found: &[Object]) -> Vec<&str> {
    found.iter().map(|object| object.key.as_str()).collect()
}

fn is_missing<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::NotFound))
}

fn body(size: usize) -> Bytes {
    (0..size).map(|at| (at >> 4).to_le_bytes()[0]).collect::<Vec<u8>>().into()
}

on_every_store! {
    async fn what_was_put_is_what_is_got(store) {
        let large = body((4 << 20) + 17);
        store.put("large", large.clone(), 0).await.unwrap();
        assert!(store.get("large", GetRequest::whole()).await.unwrap() == large);
    }

    async fn an_object_is_replaced_as_a_whole(store) {
        store.put("a", Bytes::from_static(b"first and long"), 0).await.unwrap();
        store.put("a", Bytes::from_static(b"second"), 0).await.unwrap();
        assert_eq!(store.get("a", GetRequest::whole()).await.unwrap(), "second");
    }

    async fn an_object_may_be_empty(store) {
        store.put("empty", Bytes::new(), 0).await.unwrap();
        assert_eq!(store.get("empty", GetRequest::whole()).await.unwrap(), "");
        assert_eq!(store.get("empty", GetRequest::range(0..10)).await.unwrap(), "");
        assert_eq!(keys(&store.list("", "", 10).await.unwrap()), ["empty"]);
    }

    async fn a_range_has_as_many_bytes_as_there_are(store) {
        store.put("a", Bytes::from_static(b"0123456789"), 0).await.unwrap();
        for (range, expected) in
            [(0..10, "0123456789"), (2..5, "234"), (9..10, "9"), (7..99, "789"), (10..12, ""), (50..60, ""), (4..4, "")]
        {
            assert_eq!(store.get("a", GetRequest::range(range.clone())).await.unwrap(), expected, "{range:?}");
        }
    }

    async fn what_is_not_there_is_not_found(store) {
        assert!(is_missing(&store.get("none", GetRequest::whole()).await));
        assert!(is_missing(&store.get("none", GetRequest::range(0..5)).await));
        assert!(is_missing(&store.get("none", GetRequest::range(3..3)).await));
        assert!(is_missing(&store.head("none").await));
        assert_eq!(store.list("", "", 10).await.unwrap(), []);
    }

    async fn a_deleted_object_is_gone_and_deleting_it_again_is_fine(store) {
        store.put("dir/a", Bytes::from_static(b"x"), 0).await.unwrap();
        store.delete("dir/a").await.unwrap();
        assert!(is_missing(&store.get("dir/a", GetRequest::whole()).await));
        store.delete("dir/a").await.unwrap();
        store.delete("other/b").await.unwrap();
        assert_eq!(store.list("", "", 10).await.unwrap(), []);
    }

    async fn head_tells_what_the_listing_tells(store) {
        store.put("dir/a", body(1000), 0).await.unwrap();
        let found = store.head("dir/a").await.unwrap();
        let listed = store.list("dir/", "", 10).await.unwrap();
        assert_eq!((&found.key, found.size), (&listed[0].key, listed[0].size));
        assert!(found.size >= 1000);
        let apart = found.modified.duration_since(listed[0].modified);
        assert!(apart.unwrap_or_else(|error| error.duration()).as_secs() < 2);
    }

    async fn odd_keys_are_kept_apart(store) {
        for key in ODD_KEYS {
            store.put(key, Bytes::from(key), 0).await.unwrap();
        }
        for key in ODD_KEYS {
            assert_eq!(store.get(key, GetRequest::whole()).await.unwrap(), key);
        }
        let mut expected = ODD_KEYS.to_vec();
        expected.sort_unstable();
        assert_eq!(keys(&store.list("", "", 100).await.unwrap()), expected);
        for key in ODD_KEYS {
            store.delete(key).await.unwrap();
        }
        assert_eq!(store.list("", "", 100).await.unwrap(), []);
    }

    async fn a_listing_begins_with_the_prefix_and_behind_the_marker(store) {
        for key in ["a", "b.x", "b/1", "b/2", "b/2/x", "b0", "c"] {
            // A file cannot be a directory as well.
            let key = if key == "b/2" { "b/20" } else { key };
            store.put(key, Bytes::from_static(b"x"), 0).await.unwrap();
        }
        let all = ["a", "b.x", "b/1", "b/2/x", "b/20", "b0", "c"];
        assert_eq!(keys(&store.list("", "", 100).await.unwrap()), all);
        assert_eq!(keys(&store.list("b", "", 100).await.unwrap()), all[1..6]);
        assert_eq!(keys(&store.list("b/", "", 100).await.unwrap()), all[2..5]);
        assert_eq!(keys(&store.list("b/2", "", 100).await.unwrap()), all[3..5]);
        assert_eq!(keys(&store.list("", "b/1", 100).await.unwrap()), all[3..]);
        assert_eq!(keys(&store.list("b", "b/1", 2).await.unwrap()), all[3..5]);
        assert_eq!(keys(&store.list("b", "b/2", 2).await.unwrap()), all[3..5]);
        assert_eq!(keys(&store.list("", "b/15", 1).await.unwrap()), all[3..4]);
        assert!(store.list("b", "c", 10).await.unwrap().is_empty());
        assert!(store.list("x/", "", 10).await.unwrap().is_empty());
    }

    async fn ten_thousand_objects_are_listed_page_by_page_and_at_once(store) {
        let expected: Vec<String> = (0..10_000).map(|i| format!("d{}/k{i:05}", i / 2500)).collect();
        stream::iter(&expected)
            .map(|key| store.put(key, Bytes::from_static(b""), 0))
            .buffer_unordered(16)
            .try_collect::<Vec<()>>()
            .await
            .unwrap();
        let mut listed: Vec<String> = Vec::new();
        loop {
            let after = listed.last().cloned().unwrap_or_default();
            let page = store.list("", &after, 3000).await.unwrap();
            let is_last = page.len() < 3000;
            listed.extend(page.into_iter().map(|object| object.key));
            if is_last {
                break;
            }
        }
        assert!(listed == expected, "{} keys", listed.len());
        assert_eq!(store.list("", "", 20_000).await.unwrap().len(), 10_000);
        assert_eq!(store.list("d2/", "d2/k05001", 9).await.unwrap()[0].key, "d2/k05002");
    }

    async fn making_a_bucket_that_is_there_changes_nothing(store) {
        store.put("a", Bytes::from_static(b"x"), 0).await.unwrap();
        store.create().await.unwrap();
        assert_eq!(store.get("a", GetRequest::whole()).await.unwrap(), "x");
    }

    async fn writers_of_one_key_leave_one_whole_object(store) {
        let bodies: Vec<Bytes> = (0..8_u8).map(|n| Bytes::from(vec![n; 100_000])).collect();
        stream::iter(bodies.clone())
            .map(|body| store.put("a", body, 0))
            .buffer_unordered(8)
            .try_collect::<Vec<()>>()
            .await
            .unwrap();
        let left = store.get("a", GetRequest::whole()).await.unwrap();
        assert!(bodies.contains(&left));
    }
}
