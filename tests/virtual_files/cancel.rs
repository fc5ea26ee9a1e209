//! Cancelling requests.

use std::time::Duration;

use jfs::meta::{Caller, Ino};

use crate::fixture::{Fixture, reply, request};
use crate::support::data::name;

/// More than can be removed before the next line of a test runs.
const MANY: usize = 3000;

async fn many_dirs(fixture: &Fixture) -> Ino {
    let top = fixture.dir(Ino::ROOT, "top").await;
    for number in 0..MANY {
        fixture.dir(top, &number.to_string()).await;
    }
    top
}

fn removal() -> Vec<u8> {
    request(1002, b"\0\0\0\0\0\0\0\x01\x03top\0\x01")
}

async fn left(fixture: &Fixture, top: Ino) -> usize {
    fixture.meta.entries(top, false).await.unwrap().len()
}

#[tokio::test]
async fn a_flush_cancels_requests_which_end_with_eintr() {
    let fixture = Fixture::new().await;
    let top = many_dirs(&fixture).await;
    let handle = fixture.open(".control");
    handle.write(0, &removal()).unwrap();
    handle.flush();
    let answer = reply(&handle, removal().len() as u64).await;
    assert_eq!(answer.errno(), 4);
    let count = left(&fixture, top).await;
    assert!(count > 0);
    // The next request is not cancelled.
    let off = handle.read(0, 1 << 20).await.unwrap().len() as u64;
    handle.write(off, &removal()).unwrap();
    assert_eq!(reply(&handle, off + removal().len() as u64).await.errno(), 0);
    assert!(!fixture.has(Ino::ROOT, "top").await);
}

#[tokio::test]
async fn closing_a_handle_cancels_its_requests() {
    let fixture = Fixture::new().await;
    let top = many_dirs(&fixture).await;
    let handle = fixture.open(".control");
    handle.write(0, &removal()).unwrap();
    drop(handle);
    let mut before = left(&fixture, top).await;
    let rest = async {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = left(&fixture, top).await;
            if now == before {
                return now;
            }
            before = now;
        }
    };
    let rest = tokio::time::timeout(Duration::from_mins(1), rest).await.unwrap();
    assert!(rest > 0);
}

#[tokio::test]
async fn a_cancelled_clone_leaves_nothing() {
    let fixture = Fixture::new().await;
    let top = many_dirs(&fixture).await;
    let used = fixture.meta.statfs(Ino::ROOT).await.unwrap().used_inodes;
    let handle = fixture.open(".control");
    let mut body = Vec::new();
    for ino in [top, Ino::ROOT, Ino::ROOT] {
        body.extend(ino.0.to_be_bytes());
    }
    body.extend(b"\x04copy\0\0\0\x01");
    let asked = request(1006, &body);
    handle.write(0, &asked).unwrap();
    handle.flush();
    assert_eq!(reply(&handle, asked.len() as u64).await.errno(), 4);
    assert!(fixture.meta.lookup(&Caller::root(), Ino::ROOT, &name("copy")).await.is_err());
    assert_eq!(fixture.meta.statfs(Ino::ROOT).await.unwrap().used_inodes, used);
}

#[tokio::test]
async fn closing_the_mount_waits_for_requests() {
    let fixture = Fixture::new().await;
    let top = many_dirs(&fixture).await;
    let handle = fixture.open(".control");
    handle.write(0, &removal()).unwrap();
    fixture.virtual_files.close().await;
    // The request has ended, and replied.
    let answer = handle.read(removal().len() as u64, 1 << 20).await.unwrap();
    assert_eq!(answer.last(), Some(&4), "{answer:?}");
    assert!(left(&fixture, top).await > 0);
}
