//! A volume formatted by one client is opened, filled and checked by the other.

use std::fs;
use std::os::unix::fs::FileExt;

use jfs::meta::{Ino, Options};
use serde_json::json;

use crate::script::runner::runtime;
use crate::script::step::{Step, content};
use crate::support::normalise::{assert_same, tables};
use crate::support::timeout::{MOUNTED, within};
use crate::support::tree::Tree;
use crate::test_volume::{Client, Store, TestVolume};

fn on_each_store(body: fn(Store)) {
    within(MOUNTED, move || {
        body(Store::Redis);
        body(Store::Sqlite);
        body(Store::Tikv);
    });
}

/// Except for what differs between any two volumes, a new volume must be equal.
#[test]
fn a_new_volume_is_the_same_with_both_clients() {
    for options in [
        &["--trash-days", "1"][..],
        &["--trash-days", "0", "--enable-acl", "--capacity", "10", "--inodes", "1000"],
        &["--block-size", "1M", "--compress", "lz4", "--hash-prefix"],
        &["--access-key", "key", "--secret-key", "secret"],
    ] {
        for store in [Store::Redis, Store::Sqlite, Store::Tikv] {
            let theirs = TestVolume::formatted(store, Client::Go, options);
            let ours = TestVolume::formatted(store, Client::Ours, options);
            assert_same(&theirs.stored(), &ours.stored());
            assert_same(&theirs.dumped(), &ours.dumped());
            if let (Some(theirs), Some(ours)) = (theirs.file(), ours.file()) {
                assert_same(&tables::schema(&theirs), &tables::schema(&ours));
            }
        }
    }
}

#[test]
fn we_read_and_change_a_volume_of_go() {
    on_each_store(|store| {
        let volume =
            TestVolume::formatted(store, Client::Go, &["--trash-days", "1", "--enable-acl"]);
        let mount = volume.go.mount(&["--enable-xattr"]);
        fs::create_dir(mount.path().join("dir")).unwrap();
        fs::write(mount.path().join("dir/file"), content(0, 100_000)).unwrap();
        std::os::unix::fs::symlink("dir/file", mount.path().join("link")).unwrap();
        mount.unmount();

        runtime().block_on(async {
            let ours = volume.open(Options::default()).await;
            let meta = &ours.meta;
            let file = meta.attr("/dir/file").await;
            assert_eq!((file.length, file.nlink, file.uid), (100_000, 1, 0));
            assert_eq!(meta.names("/").await, ["dir", "link"]);
            assert_eq!(meta.readlink(meta.ino("/link").await).await.unwrap(), "dir/file");
            let view = meta.read(meta.ino("/dir/file").await, 0).await.unwrap();
            assert_eq!(view.iter().map(|slice| slice.len).sum::<u32>(), 100_000);
            for step in [
                Step::Write("/dir/file".to_owned(), 50_000, 10),
                Step::Rename(
                    "/link".to_owned(),
                    "/dir/link".to_owned(),
                    crate::script::step::RenameFlag::Replace,
                ),
                Step::Unlink("/dir/link".to_owned()),
            ] {
                ours.run(&step).await.unwrap();
            }
            meta.close().await.unwrap();
        });
        volume.assert_consistent();

        let mount = volume.go.mount(&[]);
        let mut wanted = content(0, 100_000);
        wanted[50_000..50_010].copy_from_slice(&content(50_000, 10));
        assert!(fs::read(mount.path().join("dir/file")).unwrap() == wanted, "other bytes");
        assert!(!mount.path().join("link").is_symlink());
        mount.unmount();
    });
}

#[test]
fn go_reads_and_changes_a_volume_of_ours() {
    on_each_store(|store| {
        let volume =
            TestVolume::formatted(store, Client::Ours, &["--trash-days", "1", "--enable-acl"]);
        let (path, big) = ("/dir/file".to_owned(), "/big".to_owned());
        runtime().block_on(async {
            let ours = volume.open(Options::default()).await;
            for step in [
                Step::Mkdir("/dir".to_owned(), 0o755),
                Step::File(path.clone(), 0o644),
                Step::Write(path.clone(), 0, 100_000),
                Step::Write(path.clone(), 99_000, 5000),
                Step::File(big.clone(), 0o600),
                // More than one block.
                Step::Write(big.clone(), 0, (4 << 20) + 5),
                Step::Write(big.clone(), (64 << 20) + 7, 9),
            ] {
                ours.run(&step).await.unwrap();
            }
            ours.meta.close().await.unwrap();
        });
        volume.assert_consistent();

        let mount = volume.go.mount(&[]);
        let mut wanted = content(0, 100_000);
        wanted.truncate(99_000);
        wanted.extend(content(99_000, 5000));
        let file = mount.path().join("dir/file");
        assert!(fs::read(&file).unwrap() == wanted, "other bytes");
        let large = fs::File::open(mount.path().join("big")).unwrap();
        assert_eq!(large.metadata().unwrap().len(), (64 << 20) + 16);
        let mut bytes = vec![1; (4 << 20) + 10];
        large.read_exact_at(&mut bytes, 0).unwrap();
        let (data, hole) = bytes.split_at((4 << 20) + 5);
        assert!(data == content(0, (4 << 20) + 5) && hole == [0; 5], "other bytes");
        fs::write(mount.path().join("dir/theirs"), content(0, 5)).unwrap();
        fs::remove_file(&file).unwrap();
        drop(large);
        mount.unmount();
        volume.assert_consistent();

        let status = volume.go.status();
        assert_eq!(status["Setting"]["Name"], json!("volume"));
        assert_eq!(status["Stat"]["UsedInodes"], json!(5));
        runtime().block_on(async {
            let meta = volume.connect().await;
            assert_eq!(meta.names("/dir").await, ["theirs"]);
            assert!(meta.getattr(Ino::ROOT).await.unwrap().is_dir());
        });
    });
}

/// Each client sees what the other has just done.
#[test]
fn both_have_a_volume_open_at_the_same_time() {
    on_each_store(|store| {
        let volume = TestVolume::formatted(store, Client::Ours, &["--trash-days", "0"]);
        // The kernel caches of the Go client would hide changes of others for a second.
        let mount =
            volume.go.mount(&["--attr-cache", "0", "--entry-cache", "0", "--dir-entry-cache", "0"]);
        runtime().block_on(async {
            let ours = volume.open(Options::default()).await;
            for round in 0..20 {
                let (theirs, own) = (format!("theirs{round}"), format!("/own{round}"));
                fs::write(mount.path().join(&theirs), content(0, round + 1)).unwrap();
                let found = ours.meta.attr(&format!("/{theirs}")).await;
                assert_eq!(found.length, u64::from(round + 1));
                ours.run(&Step::File(own.clone(), 0o644)).await.unwrap();
                ours.run(&Step::Write(own.clone(), 0, round + 1)).await.unwrap();
                let found = fs::read(mount.path().join(&own[1..])).unwrap();
                assert_eq!(found, content(0, round + 1));
                // Each removes what the other created.
                if round % 2 == 0 {
                    ours.run(&Step::Unlink(format!("/{theirs}"))).await.unwrap();
                    fs::remove_file(mount.path().join(&own[1..])).unwrap();
                    assert!(!mount.path().join(&theirs).exists());
                    assert!(ours.meta.at(&own).await.is_err());
                }
            }
            ours.meta.idle().await;
            ours.meta.close().await.unwrap();
        });
        volume.wait_for_deletions();
        mount.unmount();
        volume.assert_consistent();
    });
}
