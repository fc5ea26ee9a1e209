//! Slice references and delayed slices.

use jfs::meta::SliceId;
use jfs::meta::engine::{Change, DelayedSlices, Engine};
use jfs::meta::record::SliceSize;

use crate::fixtures::*;

async fn refs(engine: &dyn Engine, id: u64) -> i64 {
    slice_refs(engine, sized(id).id, sized(id).size).await
}

async fn add(engine: &dyn Engine, id: u64, by: i64) -> i64 {
    commit(engine, &[Change::AddSliceRef { slice: sized(id), by }]).await[0]
}

async fn dead(engine: &dyn Engine) -> Vec<SliceSize> {
    let mut slices = engine.dead_slices(100).await.expect("lists");
    slices.sort();
    slices
}

fn delayed(id: u64, at: i64, slices: &[SliceSize]) -> DelayedSlices {
    DelayedSlices { id: SliceId(id), at, slices: slices.to_vec() }
}

async fn all_delayed(engine: &dyn Engine, before: i64) -> Vec<DelayedSlices> {
    let mut lists = engine.delayed_slices(before, 100).await.expect("lists");
    lists.sort_by_key(|list| (list.at, list.id));
    lists
}

on_every_engine! {
    async fn a_slice_just_written_has_one_reference(store) {
        let engine = store.engine.as_ref();
        assert_eq!(commit(engine, &written(FILE, 1)).await, [0, 1]);
        assert_eq!(refs(engine, 1).await, 1);
        assert_eq!(dead(engine).await, []);
    }

    async fn references_are_added_and_removed(store) {
        let engine = store.engine.as_ref();
        commit(engine, &written(FILE, 1)).await;
        assert_eq!(add(engine, 1, 1).await, 2);
        assert_eq!(add(engine, 1, 2).await, 4);
        assert_eq!(refs(engine, 1).await, 4);
        assert_eq!(add(engine, 1, -1).await, 3);
        assert_eq!(dead(engine).await, []);
    }

    async fn references_of_one_slice_in_one_commit_add_up(store) {
        let engine = store.engine.as_ref();
        commit(engine, &written(FILE, 1)).await;
        let twice = [1, 1].map(|by| Change::AddSliceRef { slice: sized(1), by });
        assert_eq!(commit(engine, &twice).await, [2, 3]);
    }

    async fn a_slice_without_references_is_dead_until_its_record_is_removed(store) {
        let engine = store.engine.as_ref();
        commit(engine, &written(FILE, 1)).await;
        commit(engine, &written(FILE, 2)).await;
        assert_eq!(add(engine, 1, -1).await, 0);
        assert_eq!(dead(engine).await, [sized(1)]);
        commit(engine, &[Change::RemoveSliceRef(sized(1))]).await;
        assert_eq!(dead(engine).await, []);
        assert_eq!(refs(engine, 2).await, 1);
    }

    async fn the_list_of_dead_slices_is_limited(store) {
        let engine = store.engine.as_ref();
        for id in 1..=5 {
            commit(engine, &written(FILE, id)).await;
            add(engine, id, -1).await;
        }
        assert_eq!(engine.dead_slices(3).await.expect("lists").len(), 3);
        assert_eq!(dead(engine).await.len(), 5);
    }

    async fn a_tracked_slice_has_one_reference_and_keeps_it(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::TrackSlice(sized(1))]).await;
        assert_eq!(refs(engine, 1).await, 1);
        engine.drop_single_refs().await.expect("drops");
        assert_eq!(refs(engine, 1).await, 1);
        assert_eq!(add(engine, 1, -1).await, 0);
    }

    async fn a_tracked_slice_has_a_reference_record(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::TrackSlice(sized(1))]).await;
        assert!(engine.has_slice_ref(sized(1)).await.expect("reads"));
        add(engine, 1, -1).await;
        commit(engine, &[Change::RemoveSliceRef(sized(1))]).await;
        let doubted = engine.has_slice_ref(sized(1)).await.expect("reads");
        let never = engine.has_slice_ref(sized(2)).await.expect("reads");
        assert_eq!(doubted, never, "a removed record is as if it had never been");
    }

    async fn dropping_a_single_reference_record_leaves_one_reference(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::TrackSlice(sized(1)), Change::TrackSlice(sized(2))]).await;
        add(engine, 2, 1).await;
        engine.drop_single_ref(sized(1)).await.expect("drops");
        engine.drop_single_ref(sized(2)).await.expect("leaves");
        engine.drop_single_ref(sized(3)).await.expect("finds nothing");
        assert_eq!((refs(engine, 1).await, refs(engine, 2).await), (1, 2));
    }

    async fn dropping_single_reference_records_keeps_the_others(store) {
        let engine = store.engine.as_ref();
        for id in 1..=3 {
            commit(engine, &written(FILE, id)).await;
        }
        add(engine, 1, 1).await;
        add(engine, 2, -1).await;
        add(engine, 3, 1).await;
        add(engine, 3, -1).await;
        engine.drop_single_refs().await.expect("drops");
        assert_eq!(refs(engine, 1).await, 2);
        assert_eq!(refs(engine, 3).await, 1);
        assert_eq!(dead(engine).await, [sized(2)]);
    }

    async fn delayed_slices_are_listed_once_they_are_old_enough(store) {
        let engine = store.engine.as_ref();
        let put = |id, at, slices: &[SliceSize]| Change::PutDelayed {
            id: SliceId(id),
            at,
            slices: slices.to_vec(),
        };
        commit(engine, &[put(10, 1000, &[sized(1), sized(2)])]).await;
        commit(engine, &[put(11, 2000, &[sized(3)])]).await;
        let (old, young) =
            (delayed(10, 1000, &[sized(1), sized(2)]), delayed(11, 2000, &[sized(3)]));
        assert_eq!(all_delayed(engine, 999).await, []);
        assert_eq!(all_delayed(engine, 1000).await, std::slice::from_ref(&old));
        assert_eq!(all_delayed(engine, 2000).await, [old, young]);
        assert_eq!(engine.delayed_slices(2000, 1).await.expect("lists").len(), 1);
    }

    async fn a_delayed_list_is_read_by_slice_and_time(store) {
        let engine = store.engine.as_ref();
        let slices = vec![sized(1), sized(2)];
        commit(engine, &[Change::PutDelayed { id: SliceId(10), at: 5, slices: slices.clone() }])
            .await;
        assert_eq!(delayed_list(engine, SliceId(10), 5).await, slices);
        assert_eq!(delayed_list(engine, SliceId(11), 5).await, []);
    }

    async fn removed_delayed_slices_are_gone(store) {
        let engine = store.engine.as_ref();
        for (id, at) in [(10, 1000), (11, 1001)] {
            let slices = vec![sized(1)];
            commit(engine, &[Change::PutDelayed { id: SliceId(id), at, slices }]).await;
        }
        commit(engine, &[Change::RemoveDelayed { id: SliceId(10), at: 1000 }]).await;
        assert_eq!(all_delayed(engine, 9999).await, [delayed(11, 1001, &[sized(1)])]);
    }
}
