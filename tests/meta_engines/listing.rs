//! Listings: every entry once, page by page.

use std::collections::BTreeMap;

use jfs::meta::engine::{Change, Cursor, Engine};
use jfs::meta::record::Entry;
use jfs::meta::{Ino, Name};

use crate::fixtures::*;

/// Returns all entries in the order of the listing; panics if it does not end.
async fn list(engine: &dyn Engine, dir: Ino, limit: usize) -> Vec<(Name, Entry)> {
    let mut cursor = Cursor::Start;
    let mut entries = Vec::new();
    for _ in 0..10_000 {
        let page = engine.list(dir, &cursor, limit).await.expect("lists");
        entries.extend(page.entries);
        if page.next == Cursor::End {
            return entries;
        }
        cursor = page.next;
    }
    panic!("the listing does not end");
}

async fn fill(engine: &dyn Engine, count: u64) -> BTreeMap<Name, Entry> {
    let entries: BTreeMap<Name, Entry> =
        (0..count).map(|n| (name(format!("entry-{n}")), entry(Ino(100 + n)))).collect();
    let put: Vec<Change> =
        entries.iter().map(|(name, entry)| Change::PutEntry(DIR, name.clone(), *entry)).collect();
    for some in put.chunks(500) {
        commit(engine, some).await;
    }
    entries
}

fn once(listed: Vec<(Name, Entry)>) -> BTreeMap<Name, Entry> {
    let count = listed.len();
    let entries: BTreeMap<Name, Entry> = listed.into_iter().collect();
    assert_eq!(entries.len(), count, "an entry came twice");
    entries
}

on_every_engine! {
    async fn an_empty_directory_lists_nothing(store) {
        assert_eq!(list(store.engine.as_ref(), DIR, 10).await, []);
    }

    async fn every_entry_is_listed_once_with_any_page_size(store) {
        let engine = store.engine.as_ref();
        let entries = fill(engine, 1500).await;
        commit(engine, &[Change::PutEntry(OTHER, name("elsewhere"), entry(FILE))]).await;
        for limit in [7, 100, 1500, 100_000] {
            assert_eq!(once(list(engine, DIR, limit).await), entries, "pages of {limit}");
        }
    }

    async fn a_small_directory_is_listed_in_pages_of_one(store) {
        let engine = store.engine.as_ref();
        let entries = fill(engine, 5).await;
        assert_eq!(once(list(engine, DIR, 1).await), entries);
    }

    async fn a_listing_is_in_name_order_on_engines_that_say_so(store) {
        let engine = store.engine.as_ref();
        for raw in [b"b".to_vec(), b"\xff".to_vec(), b"a".to_vec(), b"B".to_vec(), b"aa".to_vec()] {
            commit(engine, &[Change::PutEntry(DIR, name(raw), entry(FILE))]).await;
        }
        if engine.properties().sorted {
            let listed = list(engine, DIR, 2).await;
            assert!(listed.is_sorted_by_key(|(name, _)| name.clone()), "{listed:?}");
        }
    }

    async fn entries_that_stay_are_listed_while_others_change(store) {
        let engine = store.engine.as_ref();
        let mut staying = fill(engine, 1000).await;
        let mut cursor = Cursor::Start;
        let mut seen = BTreeMap::new();
        let mut round = 0;
        loop {
            let page = engine.list(DIR, &cursor, 100).await.expect("lists");
            for (name, entry) in page.entries {
                seen.insert(name, entry);
            }
            if page.next == Cursor::End {
                break;
            }
            cursor = page.next;
            let gone = name(format!("entry-{}", round * 37 % 1000));
            let changes = [
                Change::RemoveEntry(DIR, gone.clone()),
                Change::PutEntry(DIR, name(format!("new-{round}")), entry(FILE)),
            ];
            commit(engine, &changes).await;
            staying.remove(&gone);
            round += 1;
        }
        for name in staying.keys() {
            assert!(seen.contains_key(name), "{name} was there all the time and not listed");
        }
    }

    async fn a_listing_that_has_ended_stays_ended(store) {
        let engine = store.engine.as_ref();
        fill(engine, 3).await;
        let page = engine.list(DIR, &Cursor::End, 10).await.expect("lists");
        assert_eq!((page.entries, page.next), (Vec::new(), Cursor::End));
    }
}
