use std::sync::Arc;

use super::*;
use crate::meta::record::Setting;
use crate::meta::{Options, Registration};

/// Metadata for one test.
async fn meta() -> Arc<Meta> {
    let url = format!("memkv://records-{}", Uuid::new_v4());
    let meta = Meta::attach(&url, Options::default()).await.unwrap();
    let setting = Setting { trash_days: 1, ..Setting::new("vol", Uuid::new_v4()).unwrap() };
    meta.init(setting, false).await.unwrap();
    meta.start(Registration::None).await.unwrap();
    meta
}

fn record(id: &str, capacity: u64) -> VolumeRecord {
    let context = [("subPath".to_owned(), id.to_owned())].into_iter().collect();
    let (id, path) = (id.to_owned(), id.to_owned());
    VolumeRecord { id, path, capacity, context, ..VolumeRecord::default() }
}

#[tokio::test]
async fn reading_returns_the_last_written_record() {
    let meta = meta().await;
    assert_eq!(read::<VolumeRecord>(&meta, "a").await.unwrap(), None);
    for capacity in [1, 2, 3] {
        write(&meta, &record("a", capacity)).await.unwrap();
        assert_eq!(read(&meta, "a").await.unwrap(), Some(record("a", capacity)));
    }
    write(&meta, &record("b", 1)).await.unwrap();
    assert_eq!(ids::<VolumeRecord>(&meta).await.unwrap(), ["a", "b"]);
    assert_eq!(all::<VolumeRecord>(&meta).await.unwrap(), [record("a", 3), record("b", 1)]);
    assert!(ids::<SnapshotRecord>(&meta).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_removed_record_leaves_nothing_in_the_trash() {
    let meta = meta().await;
    write(&meta, &record("a", 1)).await.unwrap();
    write(&meta, &record("a", 2)).await.unwrap();
    remove::<VolumeRecord>(&meta, "a").await.unwrap();
    remove::<VolumeRecord>(&meta, "a").await.unwrap();
    assert_eq!(read::<VolumeRecord>(&meta, "a").await.unwrap(), None);
    assert!(meta.entries(Ino::TRASH, false).await.unwrap().is_empty());
}

#[tokio::test]
async fn only_root_can_read_records() {
    let meta = meta().await;
    write(&meta, &record("a", 1)).await.unwrap();
    let (_, attr) = meta.resolve(CONTROLLER_DIR).await.unwrap();
    assert_eq!(attr.mode, 0o700);
}

#[tokio::test]
async fn attributes_that_do_not_fit_are_refused() {
    let meta = meta().await;
    let mut large = record("a", 1);
    large.context.insert("mountOptions".to_owned(), "x".repeat(5000));
    let error = write(&meta, &large).await.unwrap_err();
    assert!(matches!(error, Error::BadInput(_)), "{error}");
    assert_eq!(read::<VolumeRecord>(&meta, "a").await.unwrap(), None);
}
