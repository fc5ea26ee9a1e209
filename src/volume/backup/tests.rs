use std::io::Read;

use chrono::TimeDelta;
use flate2::read::GzDecoder;
use serde_json::Value;
use uuid::Uuid;

use super::*;
use crate::meta::record::Setting;
use crate::object::GetRequest;
use crate::object::mem::MemStore;
use crate::secret::Secret;

const HOUR: Duration = Duration::from_hours(1);

/// A volume in memory with the keys of an object store.
async fn formatted() -> (String, Arc<MemStore>) {
    let name = Uuid::new_v4().to_string();
    let url = format!("memkv://{name}");
    let setting = Setting {
        storage: "mem".to_owned(),
        bucket: format!("mem://{name}"),
        access_key: "key".to_owned(),
        secret_key: Secret::new("sesame"),
        ..Setting::new("vol", Uuid::new_v4()).unwrap()
    };
    let meta = Meta::attach(&url, crate::meta::Options::default()).await.unwrap();
    meta.init(setting, false).await.unwrap();
    meta.close().await.unwrap();
    (url, MemStore::named(&name))
}

async fn client(url: &str) -> Backup {
    let options = crate::meta::Options { no_background_jobs: true, ..Default::default() };
    let meta = Meta::connect(url, options).await.unwrap();
    let options = BackupOptions { interval: HOUR, skip_trash: false, max_size: 1 << 20 };
    Backup::new(meta, Overrides::default(), options, &Registry::new()).unwrap()
}

fn now() -> DateTime<Utc> {
    DateTime::parse_from_rfc3339("2026-01-02T03:04:05Z").unwrap().to_utc()
}

async fn keys(bucket: &MemStore) -> Vec<String> {
    let found = bucket.list("vol/meta/", "", 1000).await.unwrap();
    found.into_iter().map(|object| object.key).collect()
}

#[tokio::test]
async fn of_several_clients_one_makes_the_backup() {
    let (url, bucket) = formatted().await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(client(&url).await);
    }
    // All of them see that it is due.
    let checks = clients.iter().map(|client| client.back_up_if_due(now()));
    let outcomes = futures::future::join_all(checks).await;
    let made = outcomes.iter().filter(|found| matches!(found, Ok(Outcome::Made(_)))).count();
    assert_eq!(made, 1, "{outcomes:?}");
    assert_eq!(keys(&bucket).await, ["vol/meta/dump-2026-01-02-030405.json.gz"]);
}

#[tokio::test]
async fn a_backup_is_due_an_interval_after_the_last_one() {
    let (url, bucket) = formatted().await;
    let client = client(&url).await;
    assert!(matches!(client.back_up_if_due(now()).await, Ok(Outcome::Made(_))));
    let last = client.meta.xattr(Ino::ROOT, LAST_BACKUP).await.unwrap();
    assert_eq!(last, "2026-01-02T03:04:05Z");
    for minutes in [0, 59, -60] {
        let then = now() + TimeDelta::minutes(minutes);
        assert_eq!(client.back_up_if_due(then).await.unwrap(), Outcome::NotDue);
    }
    let then = now() + TimeDelta::hours(1);
    assert!(matches!(client.back_up_if_due(then).await, Ok(Outcome::Made(_))));
    assert_eq!(keys(&bucket).await.len(), 2);
}

#[tokio::test]
async fn a_time_in_another_zone_is_understood_and_another_text_is_an_error() {
    let last = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    let check = |text| is_due(last(text).as_ref(), now(), HOUR);
    assert!(!check("2026-01-02T11:04:04+08:00").unwrap());
    assert!(check("2026-01-02T10:04:05+08:00").unwrap());
    assert!(check("").unwrap());
    assert!(check("yesterday").unwrap_err().to_string().contains("yesterday"));
}

#[tokio::test]
async fn a_backup_holds_no_secret_key() {
    let (url, bucket) = formatted().await;
    client(&url).await.back_up_if_due(now()).await.unwrap();
    let key = keys(&bucket).await.remove(0);
    let body = bucket.get(&key, GetRequest::whole()).await.unwrap();
    let mut text = String::new();
    GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
    assert!(!text.contains("sesame"), "{text}");
    let dump: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(dump["Setting"]["SecretKey"], "removed");
    assert_eq!(dump["Setting"]["Name"], "vol");
}

#[tokio::test]
async fn old_backups_are_removed_and_other_objects_stay() {
    let (url, bucket) = formatted().await;
    let names = [
        "dump-2019-01-01-000000.json.gz",
        "dump-2025-12-25-120000.json.gz",
        "dump-2025-12-25-130000.json.gz",
        "a-dump-of-mine",
    ];
    for name in names {
        bucket.put(&format!("vol/meta/{name}"), Bytes::from_static(b"x"), 0).await.unwrap();
    }
    client(&url).await.back_up_if_due(now()).await.unwrap();
    let expected =
        ["a-dump-of-mine", "dump-2025-12-25-120000.json.gz", "dump-2026-01-02-030405.json.gz"];
    assert_eq!(keys(&bucket).await, expected.map(|name| format!("vol/meta/{name}")));
}

#[tokio::test]
async fn a_backup_over_the_limit_leaves_nothing_in_the_bucket() {
    let (url, bucket) = formatted().await;
    let mut client = client(&url).await;
    client.options.max_size = 10;
    client.back_up_if_due(now()).await.unwrap_err();
    assert!(keys(&bucket).await.is_empty());
}
