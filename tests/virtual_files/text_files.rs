//! `.config`, `.stats` and `.accesslog`.

use std::time::Duration;

use jfs::meta::record::Setting;
use jfs::meta::{Caller, Ino};
use jfs::vfs::OpMetrics;
use serde_json::Value;

use crate::fixture::Fixture;

#[tokio::test]
async fn config_shows_the_current_setting() {
    let fixture = Fixture::new().await;
    let config: Value = serde_json::from_str(&fixture.text(".config").await).unwrap();
    assert_eq!(config["Meta"]["Sid"], 1);
    assert_eq!(
        (&config["Format"]["Name"], &config["Format"]["TrashDays"]),
        (&"vol".into(), &0.into())
    );
    let setting = Setting::clone(&fixture.meta.context().setting());
    fixture.meta.init(Setting { trash_days: 5, ..setting }, false).await.unwrap();
    let config: Value = serde_json::from_str(&fixture.text(".config").await).unwrap();
    assert_eq!(config["Format"]["TrashDays"], 5);
}

#[tokio::test]
async fn stats_are_those_at_the_time_of_opening() {
    let fixture = Fixture::new().await;
    let metrics = OpMetrics::register(&fixture.registry).unwrap();
    metrics.done("lookup", Duration::from_millis(500));
    let before = fixture.open(".stats");
    metrics.done("lookup", Duration::from_millis(500));
    let text = |bytes: bytes::Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let before = text(before.read(0, 1 << 20).await.unwrap());
    let after = fixture.text(".stats").await;
    let has = |text: &str, line: &str| text.lines().any(|found| found == line);
    assert!(has(&before, "juicefs_fuse_ops_total_lookup 1"), "{before}");
    assert!(has(&before, "juicefs_fuse_ops_durations_histogram_seconds_sum 0.5"), "{before}");
    assert!(has(&after, "juicefs_fuse_ops_total_lookup 2"), "{after}");
}

#[tokio::test]
async fn a_text_is_read_in_several_reads() {
    let fixture = Fixture::new().await;
    let (whole, handle) = (fixture.text(".config").await, fixture.open(".config"));
    let mut pieces = Vec::new();
    loop {
        let piece = handle.read(pieces.len() as u64, 7).await.unwrap();
        if piece.is_empty() {
            break;
        }
        pieces.extend_from_slice(&piece);
    }
    assert_eq!(pieces, whole.as_bytes());
}

#[tokio::test]
async fn the_log_shows_what_happens_while_it_is_open() {
    let fixture = Fixture::new().await;
    let op = |text: &'static str| move || text.to_owned();
    fixture.log.line(&Caller::root(), Duration::ZERO, op("before (1) - OK"));
    let handle = fixture.open(".accesslog");
    fixture.log.line(&Caller::root(), Duration::ZERO, op("during (1) - OK"));
    let line = handle.read(12345, 4096).await.unwrap();
    assert!(line.ends_with(b"] during (1) - OK <0.000000>\n"), "{line:?}");
    assert_eq!(line.split(|byte| *byte == b'\n').count(), 2);
    drop(handle);
    assert!(!fixture.log.is_read());
    assert_eq!(fixture.virtual_files.attr(Ino(0x7FFF_FFFF_0000_0001)).unwrap().length, 0);
}
