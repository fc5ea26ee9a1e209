//! The metrics of a volume, as its registry shows them.

use jfs::meta::record::QuotaKey;
use jfs::meta::{Caller, Ino, Limits};
use prometheus::TextEncoder;

use crate::fixture::{BLOCK, Fixture};
use crate::support::data::name;

fn shown(fixture: &Fixture) -> String {
    TextEncoder::new().encode_to_string(&fixture.registry.gather()).unwrap()
}

fn value(shown: &str, metric: &str) -> f64 {
    let found = shown.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {metric} in\n{shown}")).parse().unwrap()
}

#[tokio::test]
async fn usage_and_operations_of_metadata_are_shown() {
    let fixture = Fixture::new().await;
    let dir = fixture.dir(Ino::ROOT, "d").await;
    fixture.file(dir, "f", &[7; 5000]).await;
    for _ in 0..3 {
        fixture.meta.lookup(&Caller::root(), dir, &name("f")).await.unwrap();
    }
    let shown = shown(&fixture);
    let is = |metric: &str, expected: f64| {
        let found = value(&shown, metric);
        assert!((found - expected).abs() < 0.5, "{metric} is {found} instead of {expected}");
    };
    is("juicefs_used_space", 3.0 * 4096.0);
    is("juicefs_used_inodes", 2.0);
    is("juicefs_total_space", (1u64 << 50) as f64);
    is(r#"juicefs_subdir_info{subdir=""}"#, 1.0);
    is(r#"juicefs_meta_ops_total{method="Lookup"}"#, 3.0);
    is(r#"juicefs_meta_ops_total{method="Mknod"}"#, 2.0);
    is(r#"juicefs_meta_ops_total{method="Write"}"#, 1.0);
    assert!(value(&shown, r#"juicefs_meta_ops_duration_seconds{method="Lookup"}"#) > 0.0);
    assert!(value(&shown, "juicefs_meta_ops_durations_histogram_seconds_count") >= 6.0);
    assert!(value(&shown, "juicefs_transaction_durations_histogram_seconds_count") >= 3.0);
}

#[tokio::test]
async fn quotas_are_shown_with_their_usage() {
    let fixture = Fixture::new().await;
    let dir = fixture.dir(Ino::ROOT, "d").await;
    let limits = Limits { space: Some(1 << 30), inodes: Some(100) };
    fixture.meta.quota_set(QuotaKey::Dir(dir), limits, false).await.unwrap();
    fixture.meta.quota_set(QuotaKey::User(7), limits, false).await.unwrap();
    fixture.file(dir, "f", &[7; 5000]).await;
    let shown = shown(&fixture);
    for (metric, expected) in [
        (format!(r#"juicefs_dir_quota_max_space_bytes{{inode="{dir}"}}"#), f64::from(1 << 30)),
        (format!(r#"juicefs_dir_quota_max_inodes{{inode="{dir}"}}"#), 100.0),
        (format!(r#"juicefs_dir_quota_used_space_bytes{{inode="{dir}"}}"#), 8192.0),
        (format!(r#"juicefs_dir_quota_used_inodes{{inode="{dir}"}}"#), 1.0),
        (r#"juicefs_user_quota_max_inodes{uid="7"}"#.to_owned(), 100.0),
        (r#"juicefs_group_quota_used_inodes{gid="0"}"#.to_owned(), 2.0),
    ] {
        assert!((value(&shown, &metric) - expected).abs() < 0.5, "{metric}\n{shown}");
    }
}

#[tokio::test]
async fn the_cache_and_the_objects_are_shown() {
    let fixture = Fixture::new().await;
    fixture.file(Ino::ROOT, "f", &vec![7; BLOCK]).await;
    fixture.ask(1004, b"\0\0\0\x02/f\0\x01\0\0").await;
    let shown = shown(&fixture);
    for metric in [
        "juicefs_blockcache_blocks",
        "juicefs_blockcache_bytes",
        r#"juicefs_object_request_data_bytes{method="PUT",storage_class=""}"#,
    ] {
        assert!(value(&shown, metric) > 0.0, "{metric}\n{shown}");
    }
    for metric in [
        "juicefs_blockcache_read_hist_seconds_count",
        "juicefs_blockcache_write_hist_seconds_count",
        "juicefs_blockcache_hits",
        "juicefs_staging_blocks",
        "juicefs_used_buffer_size_bytes",
        "juicefs_used_read_buffer_size_bytes",
        "juicefs_compact_size_histogram_bytes_count",
    ] {
        assert!(value(&shown, metric) >= 0.0, "{metric}\n{shown}");
    }
}
