//! Sessions of both clients at the same time, and each client cleaning up after the other.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use jfs::meta::record::LockKind::{Read, Write};
use jfs::meta::record::SessionInfo;
use jfs::meta::{Caller, Ino, LockOwner, Name, Options, Sid};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use serde_json::Value;

use crate::script::change_log;
use crate::script::on_client::OurClient;
use crate::script::runner::runtime;
use crate::script::step::Step;
use crate::support::command::poll;
use crate::support::normalise::assert_same;
use crate::support::timeout::{MOUNTED, within};
use crate::support::tree::Tree;
use crate::test_volume::{Client, Store, TestVolume};

/// Heartbeat of our client; its session expires after five of them.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long a client with a heartbeat of two seconds may take to notice that another one is gone.
const CLEANUP_LIMIT: Duration = Duration::from_mins(1);
const OWNER: LockOwner = LockOwner(0xFFFF_0000_0000_0007);

fn on_each_store(body: fn(Store)) {
    within(MOUNTED, move || {
        body(Store::Redis);
        body(Store::Sqlite);
        body(Store::Tikv);
    });
}

/// Leaves behind, with our client, what a client that dies would: a removed open file, and locks.
async fn hold(ours: &OurClient) -> Ino {
    let caller = Caller::root();
    let name = |text: &str| Name::new(text).unwrap();
    let (open, _) =
        ours.meta.create(&caller, Ino::ROOT, &name("open"), 0o644, 0o022, true).await.unwrap();
    ours.run(&Step::Write("/open".to_owned(), 0, 7)).await.unwrap();
    ours.meta.unlink(&caller, Ino::ROOT, &name("open")).await.unwrap();
    for file in ["flock", "shared", "range"] {
        ours.meta.file(&format!("/{file}")).await;
    }
    let meta = &ours.meta;
    meta.flock(meta.ino("/flock").await, OWNER, Some(Write), false).await.unwrap();
    meta.flock(meta.ino("/shared").await, OWNER, Some(Read), false).await.unwrap();
    let range = meta.ino("/range").await;
    meta.set_plock(range, OWNER, Some(Write), 10..=29, 7, false).await.unwrap();
    meta.set_plock(range, OWNER, Some(Read), 40..=44, 7, false).await.unwrap();
    open
}

/// As [`hold`], with the Go client.
fn hold_by_go(root: &Path) -> Vec<File> {
    let file = |name: &str| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).open(root.join(name)).unwrap()
    };
    let open = file("open");
    std::os::unix::fs::FileExt::write_all_at(&open, &crate::script::step::content(0, 7), 0)
        .unwrap();
    open.sync_all().unwrap();
    fs::remove_file(root.join("open")).unwrap();
    let (whole, shared, range) = (file("flock"), file("shared"), file("range"));
    whole.lock().unwrap();
    shared.lock_shared().unwrap();
    lock_range(&range, libc::F_WRLCK, 10, 20);
    lock_range(&range, libc::F_RDLCK, 40, 5);
    vec![open, whole, shared, range]
}

fn lock_range(file: &File, kind: libc::c_int, start: i64, len: i64) {
    let (l_type, l_whence) = (kind.try_into().unwrap(), libc::SEEK_SET.try_into().unwrap());
    let lock = libc::flock { l_type, l_whence, l_start: start, l_len: len, l_pid: 0 };
    fcntl(file, FcntlArg::F_SETLK(&lock)).unwrap();
}

#[test]
fn files_and_locks_of_a_session_are_the_same() {
    on_each_store(|store| {
        let options = ["--trash-days", "0"];
        let (theirs, ours) = (
            TestVolume::formatted(store, Client::Go, &options),
            TestVolume::formatted(store, Client::Ours, &options),
        );
        let mount = theirs.go.mount(&[]);
        let held = hold_by_go(mount.path());
        runtime().block_on(async {
            let client = ours.open(Options::default()).await;
            let open = hold(&client).await;
            client.meta.flush().await.unwrap();
            let pictures = || {
                let (mut left, mut right) = (theirs.stored(), ours.stored());
                forget_shared_flocks(&mut right);
                change_log::take(&mut left);
                change_log::take(&mut right);
                (left, right)
            };
            // The Go client flushes usage some seconds later.
            poll(Duration::from_secs(20), || pictures().0 == pictures().1);
            let (left, right) = pictures();
            assert_same(&left, &right);
            client.meta.close_file(open).await.unwrap();
            client.meta.idle().await;
            client.meta.close().await.unwrap();
        });
        ours.wait_for_deletions();
        drop(held);
        theirs.wait_for_deletions();
        mount.unmount();
        assert_same(&theirs.dumped(), &ours.dumped());
    });
}

/// In Redis the Go client does not record shared flocks with its session, so they outlive it if it dies.
/// Our client records them.
fn forget_shared_flocks(stored: &mut Value) {
    let shared = stored.pointer("/droot/shared/1").and_then(Value::as_str).map(str::to_owned);
    let (Some(shared), Some(keys)) = (shared, stored.as_object_mut()) else { return };
    for (key, held) in keys.iter_mut().filter(|(key, _)| key.starts_with("locked")) {
        let held = held.as_array_mut().unwrap_or_else(|| panic!("{key} is no set"));
        held.retain(|lock| lock.as_str() != Some(&format!("lockf{shared}")));
    }
}

#[test]
fn each_lists_the_session_of_the_other() {
    on_each_store(|store| {
        let volume = TestVolume::formatted(store, Client::Go, &["--trash-days", "0"]);
        let mount = volume.go.mount(&[]);
        let sessions = runtime().block_on(async {
            let options = Options { mount_point: "/mnt/ours".to_owned(), ..Options::default() };
            let ours = volume.open(options).await;
            let open = hold(&ours).await;
            let status = volume.go.status();
            let sessions = status["Sessions"].as_array().unwrap().clone();
            assert_eq!(sessions.len(), 2, "{status}");
            let own = sessions.iter().find(|one| one["MountPoint"] == "/mnt/ours").unwrap();
            let stored = ours.meta.engine().sessions().await.unwrap();
            assert_eq!(stored.len(), 2);
            let sid = own["Sid"].as_u64().unwrap();
            let said = stored.iter().find(|one| one.sid == Sid(sid)).unwrap();
            let said = SessionInfo::decode(&said.info).unwrap();
            assert_eq!(own["HostName"], said.host_name);
            assert_eq!(own["Version"], said.version);
            assert_eq!(own["ProcessID"], std::process::id());

            let theirs = stored.iter().find(|one| one.sid != Sid(sid)).unwrap();
            let theirs = SessionInfo::decode(&theirs.info).unwrap();
            assert_eq!(Path::new(&theirs.mount_point), mount.path());
            assert!(theirs.version.starts_with("1.4.1"), "{}", theirs.version);

            // The full output of one session, with its files and locks.
            let full = volume.go.run("status", &["--session", &sid.to_string()]).ok();
            let full: Value = serde_json::from_str(&full.stdout).unwrap();
            assert_eq!(full["Sustained"], serde_json::json!([open.0]), "{full}");
            let locks = |kind: &str| full[kind].as_array().map_or(0, Vec::len);
            assert_eq!((locks("Flocks"), locks("Plocks")), (2, 1), "{full}");
            ours.meta.close().await.unwrap();
            sessions
        });
        assert_eq!(sessions.len(), 2);
        mount.unmount();
    });
}

#[test]
fn go_cleans_up_after_us() {
    on_each_store(|store| {
        let volume = TestVolume::formatted(store, Client::Go, &["--trash-days", "0"]);
        // It first cleans up after one heartbeat, and needs background jobs for it.
        let dead = runtime();
        let open = dead.block_on(async {
            let options = Options { heartbeat: HEARTBEAT, ..Options::default() };
            let ours = volume.open(options).await;
            let open = hold(&ours).await;
            // Unflushed usage would be lost.
            ours.meta.flush().await.unwrap();
            open
        });
        // Stops all tasks without closing the session.
        dead.shutdown_background();
        assert_eq!(volume.go.status()["Sessions"].as_array().unwrap().len(), 1);

        let mount = volume.go.mount_with_jobs(&["--heartbeat", "2"]);
        let gone = || volume.go.status()["Sessions"].as_array().unwrap().len() == 1;
        assert!(poll(CLEANUP_LIMIT, gone), "{}", volume.go.status());
        let at = |name: &str| File::options().read(true).write(true).open(mount.path().join(name));
        at("flock").unwrap().try_lock().unwrap();
        at("shared").unwrap().try_lock().unwrap();
        lock_range(&at("range").unwrap(), libc::F_WRLCK, 0, 0);
        volume.wait_for_deletions();
        runtime().block_on(async {
            let meta = volume.connect().await;
            assert!(meta.getattr(open).await.is_err(), "the removed file is still there");
        });
        mount.unmount();
        volume.assert_consistent();
    });
}

#[test]
fn we_clean_up_after_go() {
    on_each_store(|store| {
        let volume = TestVolume::formatted(store, Client::Go, &["--trash-days", "0"]);
        let mount = volume.go.mount(&["--heartbeat", "1"]);
        let held = hold_by_go(mount.path());
        let open = Ino(held[0].metadata().unwrap().ino());
        let alive = Instant::now();
        mount.kill();
        drop(held);
        runtime().block_on(async {
            let ours = volume.open(Options::default()).await;
            let meta = &ours.meta;
            assert_eq!(meta.engine().sessions().await.unwrap().len(), 2);
            let mut cleaned = meta.clean_stale_sessions().await.unwrap();
            // Its heartbeat is one second and it expires after five, which may have passed on a busy machine.
            if alive.elapsed() < Duration::from_secs(4) {
                assert_eq!(cleaned, 0, "it has not expired");
                meta.getattr(open).await.unwrap();
            }
            for _ in 0..200 {
                cleaned += meta.clean_stale_sessions().await.unwrap();
                if cleaned > 0 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert_eq!(cleaned, 1);
            assert_eq!(meta.engine().sessions().await.unwrap().len(), 1);
            assert!(meta.getattr(open).await.is_err(), "the removed file is still there");
            let flock = meta.ino("/flock").await;
            meta.flock(flock, OWNER, Some(Write), false).await.unwrap();
            let range = meta.ino("/range").await;
            meta.set_plock(range, OWNER, Some(Write), 0..=100, 7, false).await.unwrap();
            meta.idle().await;
            meta.close().await.unwrap();
        });
        volume.wait_for_deletions();
        volume.assert_consistent();
    });
}
