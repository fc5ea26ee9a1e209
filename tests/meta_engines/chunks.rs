//! Chunks: records are appended, replaced from the start, and removed together.

use jfs::meta::SliceId;
use jfs::meta::engine::{Change, Key, Txn};
use jfs::meta::record::{CHUNK_SIZE, Slice};

use crate::fixtures::*;

/// Replaces the first `count` records.
fn replace(count: usize, with: Vec<Slice>) -> Change {
    Change::ReplaceSlices { ino: FILE, index: 0, count, with }
}

async fn read_chunk(tx: &mut dyn Txn) {
    tx.read(&[Key::Chunk(FILE, 0)]).await.expect("the chunk is read");
}

on_every_engine! {
    async fn appended_records_are_read_in_order(store) {
        let engine = store.engine.as_ref();
        let odd = Slice { pos: 1, id: SliceId(u64::MAX >> 1), size: 1 << 26, off: 3, len: 4 };
        assert_eq!(commit(engine, &[append(FILE, 0, vec![slice(1), odd])]).await, [2]);
        assert_eq!(commit(engine, &[append(FILE, 0, vec![Slice::hole(7, 8)])]).await, [3]);
        assert_eq!(chunk(engine, FILE, 0).await, [slice(1), odd, Slice::hole(7, 8)]);
    }

    async fn chunks_are_distinguished_by_inode_and_index(store) {
        let engine = store.engine.as_ref();
        let appended = [
            append(FILE, 0, vec![slice(1)]),
            append(FILE, 1, vec![slice(2)]),
            append(OTHER, 0, vec![slice(3)]),
        ];
        assert_eq!(commit(engine, &appended).await, [1, 1, 1]);
        assert_eq!(chunk(engine, FILE, 0).await, [slice(1)]);
        assert_eq!(chunk(engine, FILE, 1).await, [slice(2)]);
        assert_eq!(chunk(engine, OTHER, 0).await, [slice(3)]);
        assert_eq!(chunk(engine, OTHER, 1).await, []);
    }

    async fn appends_to_one_chunk_in_one_commit_keep_their_order(store) {
        let engine = store.engine.as_ref();
        let both = [append(FILE, 0, vec![slice(1)]), append(FILE, 0, vec![slice(2)])];
        assert_eq!(commit(engine, &both).await, [1, 2]);
        assert_eq!(chunk(engine, FILE, 0).await, [slice(1), slice(2)]);
    }

    async fn an_append_if_present_skips_a_missing_chunk(store) {
        let engine = store.engine.as_ref();
        let zero = |index| Change::AppendSlices {
            ino: FILE,
            index,
            slices: vec![Slice::hole(0, 1 << 26)],
            if_present: true,
        };
        commit(engine, &[append(FILE, 1, vec![slice(1)])]).await;
        assert_eq!(commit(engine, &[zero(0), zero(1)]).await, [0, 2]);
        assert_eq!(chunk(engine, FILE, 0).await, []);
        assert_eq!(chunk(engine, FILE, 1).await, [slice(1), Slice::hole(0, 1 << 26)]);
    }

    async fn copied_records_and_holes_can_be_appended_repeatedly(store) {
        let engine = store.engine.as_ref();
        commit(engine, &written(FILE, 1)).await;
        commit(engine, &[append(FILE, 0, vec![slice(1)])]).await;
        commit(engine, &[append(FILE, 0, vec![Slice::hole(0, 9)])]).await;
        commit(engine, &[append(FILE, 0, vec![Slice::hole(0, 9)])]).await;
        let all = [slice(1), slice(1), Slice::hole(0, 9), Slice::hole(0, 9)];
        assert_eq!(chunk(engine, FILE, 0).await, all);
    }

    async fn an_append_without_guards_never_conflicts(store) {
        let engine = store.engine.as_ref();
        let mut tx = engine.begin();
        tx.read(&[Key::Attr(FILE)]).await.expect("reads");
        commit(engine, &[append(FILE, 0, vec![slice(1)])]).await;
        let receipts = tx.commit(&[append(FILE, 0, vec![slice(2)])]).await.expect("commits");
        assert_eq!(receipts, [2]);
        assert_eq!(chunk(engine, FILE, 0).await, [slice(1), slice(2)]);
    }

    async fn the_first_records_are_replaced(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[append(FILE, 0, vec![slice(1), slice(2), slice(3)])]).await;
        let mut tx = engine.begin();
        read_chunk(tx.as_mut()).await;
        assert_eq!(tx.commit(&[replace(2, vec![slice(9)])]).await.expect("commits"), [0]);
        assert_eq!(chunk(engine, FILE, 0).await, [slice(9), slice(3)]);
    }

    async fn records_may_be_replaced_by_more_or_by_none(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[append(FILE, 0, vec![slice(1)])]).await;
        let mut tx = engine.begin();
        read_chunk(tx.as_mut()).await;
        tx.commit(&[replace(1, vec![slice(7), slice(8), slice(9)])]).await.expect("commits");
        assert_eq!(chunk(engine, FILE, 0).await, [slice(7), slice(8), slice(9)]);

        let mut tx = engine.begin();
        read_chunk(tx.as_mut()).await;
        tx.commit(&[replace(3, Vec::new())]).await.expect("commits");
        assert_eq!(chunk(engine, FILE, 0).await, []);
    }

    async fn records_appended_while_others_are_replaced_stay(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[append(FILE, 0, vec![slice(1), slice(2)])]).await;
        let mut tx = engine.begin();
        read_chunk(tx.as_mut()).await;
        commit(engine, &[append(FILE, 0, vec![slice(3)])]).await;
        tx.commit(&[replace(2, vec![slice(9)])]).await.expect("an append is no conflict");
        assert_eq!(chunk(engine, FILE, 0).await, [slice(9), slice(3)]);
    }

    async fn records_replaced_meanwhile_are_a_conflict(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[append(FILE, 0, vec![slice(1), slice(2)])]).await;
        let (mut one, mut two) = (engine.begin(), engine.begin());
        read_chunk(one.as_mut()).await;
        read_chunk(two.as_mut()).await;
        one.commit(&[replace(2, vec![slice(8)])]).await.expect("commits");
        assert_conflict(&two.commit(&[replace(2, vec![slice(9)])]).await);
        assert_eq!(chunk(engine, FILE, 0).await, [slice(8)]);
    }

    async fn a_chunk_removed_meanwhile_is_a_conflict(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[append(FILE, 0, vec![slice(1), slice(2)])]).await;
        let mut tx = engine.begin();
        read_chunk(tx.as_mut()).await;
        commit(engine, &[Change::RemoveChunk { ino: FILE, index: 0 }]).await;
        assert_conflict(&tx.commit(&[replace(2, vec![slice(9)])]).await);
        assert_eq!(chunk(engine, FILE, 0).await, []);
    }

    async fn removing_a_chunk_removes_all_its_records(store) {
        let engine = store.engine.as_ref();
        let there = [append(FILE, 0, vec![slice(1), slice(2)]), append(FILE, 1, vec![slice(3)])];
        commit(engine, &there).await;
        commit(engine, &[Change::RemoveChunk { ino: FILE, index: 0 }]).await;
        commit(engine, &[Change::RemoveChunk { ino: FILE, index: 0 }]).await;
        assert_eq!(chunk(engine, FILE, 0).await, []);
        assert_eq!(chunk(engine, FILE, 1).await, [slice(3)]);
    }

    async fn chunk_indexes_are_listed_in_order(store) {
        let engine = store.engine.as_ref();
        let indexes = [300, 0, 2];
        for index in indexes {
            commit(engine, &[append(FILE, index, vec![slice(1)])]).await;
        }
        commit(engine, &[append(OTHER, 1, vec![slice(1)])]).await;
        let length = 300 * CHUNK_SIZE + 1;
        assert_eq!(engine.chunk_indexes(FILE, length).await.expect("lists"), [0, 2, 300]);
        assert!(engine.chunk_indexes(DIR, length).await.expect("lists").is_empty());
    }

    async fn a_long_chunk_is_read_as_written(store) {
        let engine = store.engine.as_ref();
        let records: Vec<Slice> = (1..=2500).map(slice).collect();
        for some in records.chunks(500) {
            commit(engine, &[append(FILE, 0, some.to_vec())]).await;
        }
        assert_eq!(chunk(engine, FILE, 0).await, records);
    }
}
