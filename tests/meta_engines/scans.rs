//! Scans: all chunks and all delayed slices, page by page.

use std::collections::BTreeSet;

use jfs::meta::engine::{Change, Cursor, Engine};
use jfs::meta::{Ino, SliceId};

use crate::fixtures::*;

async fn scanned_chunks(engine: &dyn Engine, limit: usize) -> BTreeSet<(u64, u32, u64)> {
    let (mut found, mut cursor) = (BTreeSet::new(), Cursor::Start);
    while cursor != Cursor::End {
        let page = engine.scan_chunks(&cursor, limit).await.expect("scans");
        for chunk in page.records {
            let slices = chunk.slices.expect("the chunk is readable");
            found.extend(slices.iter().map(|slice| (chunk.ino.0, chunk.index, slice.id.0)));
        }
        cursor = page.next;
    }
    found
}

on_every_engine! {
    async fn all_chunks_are_scanned_whatever_the_page(store) {
        let engine = store.engine.as_ref();
        let mut expected = BTreeSet::new();
        for ino in 10..30 {
            commit(engine, &[Change::PutAttr(Ino(ino), file())]).await;
            for index in [0, 3] {
                commit(engine, &[append(Ino(ino), index, vec![slice(ino), slice(ino + 100)])]).await;
                expected.extend([(ino, index, ino), (ino, index, ino + 100)]);
            }
        }
        for limit in [1, 7, 10_000] {
            assert_eq!(scanned_chunks(engine, limit).await, expected, "{limit}");
        }
    }

    async fn all_delayed_slices_are_scanned_whatever_the_page(store) {
        let engine = store.engine.as_ref();
        let mut expected = BTreeSet::new();
        for id in 1..20 {
            let slices = vec![sized(id + 100)];
            commit(engine, &[Change::PutDelayed { id: SliceId(id), at: 5, slices }]).await;
            expected.insert((id, 5, id + 100));
        }
        for limit in [1, 7, 10_000] {
            let (mut found, mut cursor) = (BTreeSet::new(), Cursor::Start);
            while cursor != Cursor::End {
                let page = engine.scan_delayed(&cursor, limit).await.expect("scans");
                for list in page.records {
                    found.extend(list.slices.iter().map(|slice| (list.id.0, list.at, slice.id.0)));
                }
                cursor = page.next;
            }
            assert_eq!(found, expected, "{limit}");
        }
    }

    async fn a_scan_of_an_empty_volume_ends(store) {
        let engine = store.engine.as_ref();
        assert_eq!(scanned_chunks(engine, 10).await, BTreeSet::new());
        let page = engine.scan_delayed(&Cursor::End, 10).await.expect("scans");
        assert!(page.records.is_empty() && page.next == Cursor::End);
    }
}
