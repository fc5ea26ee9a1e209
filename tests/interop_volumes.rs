//! Volumes, sessions, usage and quotas written by one client and used by the other.
#![cfg(test)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use jfs::meta::record::secret::Secret;
use jfs::meta::record::version::CLIENT_VERSION;
use jfs::meta::record::{FileKind, QuotaKey, Setting};
use jfs::meta::{
    AttrSet, Caller, EntryRef, Ino, Limits, Meta, Name, NodeKind, Options, RenameMode,
};
use support::juicefs::Volume as GoVolume;
use support::store::{Store, quiet};
use support::timeout::{MOUNTED, within};
use tokio::task::block_in_place;

macro_rules! on_every_engine {
    ($($body:ident),* $(,)?) => {
        on_every_engine!(@engine sqlite; $($body),*);
        on_every_engine!(@engine redis; $($body),*);
    };
    (@engine $engine:ident; $($body:ident),*) => {
        mod $engine {
            $(
                #[test]
                fn $body() {
                    super::run(|| super::$body(super::Store::$engine()));
                }
            )*
        }
    };
}

on_every_engine! {
    a_volume_formatted_by_us_works_with_go,
    a_volume_formatted_by_go_works_with_us,
    go_status_shows_our_session,
    go_cleans_up_after_us,
    we_clean_up_after_go,
    we_see_a_setting_changed_by_go,
    go_sees_a_setting_changed_by_us,
    go_fsck_accepts_our_usage,
    go_enforces_a_quota_set_by_us,
    we_enforce_a_quota_set_by_go,
    go_quota_check_accepts_our_usage_of_owners,
}

/// Runs a test that mounts on its own thread, with a time limit.
fn run<F: Future<Output = ()>>(body: impl FnOnce() -> F + Send + 'static) {
    within(MOUNTED, || tokio::runtime::Runtime::new().unwrap().block_on(body()));
}

const ROOT: Ino = Ino::ROOT;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

async fn mkdir(meta: &Meta, dir: Ino, text: &str) -> Ino {
    meta.mkdir(&Caller::root(), dir, &name(text), 0o755, 0).await.unwrap().0
}

async fn create(meta: &Meta, caller: &Caller, dir: Ino, text: &str) -> Ino {
    let node = NodeKind { kind: FileKind::File, rdev: 0 };
    meta.mknod(caller, dir, &name(text), node, 0o644, 0).await.unwrap().0
}

/// Formats a volume with our client, and returns it for the Go client.
async fn format(store: &Store, change: impl FnOnce(&mut Setting)) -> GoVolume {
    let go_volume = GoVolume::existing(store.url());
    let bucket = format!("{}/bucket/", go_volume.folder().display());
    store
        .format(|setting| {
            setting.bucket = bucket;
            change(setting);
        })
        .await;
    go_volume
}

async fn a_volume_formatted_by_us_works_with_go(store: Store) {
    let go_volume = format(&store, |setting| {
        setting.secret_key = Secret::new("sesame");
        setting.access_key = "open".to_owned();
        setting.capacity = 1 << 30;
    })
    .await;
    let status = block_in_place(|| go_volume.status());
    assert_eq!(status["Setting"]["Name"], "vol");
    assert_eq!(status["Setting"]["Capacity"], 1 << 30);
    assert_eq!(status["Setting"]["KeyEncrypted"], true);
    assert_eq!(status["Setting"]["SecretKey"], "removed");
    // The Go client decrypts our secrets, and writes them back with its own encryption.
    block_in_place(|| go_volume.run("config", &["--session-token", "token", "--force", "--yes"]))
        .ok();
    let mut setting = store.open().await.stored_setting().await.unwrap().unwrap();
    setting.decrypt().unwrap();
    assert_eq!(setting.secret_key.expose(), "sesame");
    assert_eq!(setting.session_token.expose(), "token");
    let meta = store.start().await;
    mkdir(&meta, ROOT, "d").await;
    meta.close().await.unwrap();
    block_in_place(|| go_volume.fsck());
}

async fn a_volume_formatted_by_go_works_with_us(store: Store) {
    let go_volume = block_in_place(|| GoVolume::format(store.url(), &["--trash-days", "3"]));
    let meta = store.start().await;
    assert_eq!(meta.context().setting().trash_days, 3);
    mkdir(&meta, ROOT, "d").await;
    // We encode the setting to the same bytes as the Go client.
    let raw = meta.engine().load_setting().await.unwrap().unwrap();
    assert_eq!(Setting::decode(&raw).unwrap().encode().unwrap(), raw);
    meta.close().await.unwrap();
    block_in_place(|| go_volume.fsck());
}

async fn go_status_shows_our_session(store: Store) {
    let go_volume = format(&store, |_| {}).await;
    let meta = store.start_with(Options { mount_point: "/mnt/x".into(), ..quiet() }).await;
    let status = block_in_place(|| go_volume.status());
    let sessions = status["Sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 1, "{status}");
    assert_eq!(sessions[0]["Sid"], 1);
    assert_eq!(sessions[0]["Version"], CLIENT_VERSION);
    assert_eq!(sessions[0]["MountPoint"], "/mnt/x");
    assert_eq!(sessions[0]["ProcessID"], std::process::id());
    // With a version that it cannot parse, it would ask for confirmation and fail.
    block_in_place(|| go_volume.run("config", &["--min-client-version", "1.2.0"])).ok();
    meta.close().await.unwrap();
    assert!(block_in_place(|| go_volume.status())["Sessions"].as_array().unwrap().is_empty());
}

/// Leaves a removed open file behind in an expired session.
async fn leave_behind(meta: &Arc<Meta>) -> Ino {
    let root = Caller::root();
    let made = meta.create(&root, ROOT, &name("open"), 0o644, 0, true).await;
    let ino = made.unwrap().0;
    meta.unlink_with(&root, ROOT, &name("open"), true).await.unwrap();
    meta.flush().await.unwrap();
    meta.engine().extend_session(meta.context().sid(), 1).await.unwrap();
    ino
}

async fn go_cleans_up_after_us(store: Store) {
    let go_volume = format(&store, |_| {}).await;
    let meta = store.start().await;
    let ino = leave_behind(&meta).await;
    block_in_place(|| {
        let mount = go_volume.mount_with_jobs(&["--heartbeat", "1s"]);
        let cleaned = support::command::poll(Duration::from_secs(20), || {
            go_volume.status()["Sessions"].as_array().unwrap().iter().all(|it| it["Sid"] != 1)
        });
        assert!(cleaned, "{}", mount.log());
        mount.unmount();
    });
    let engine = store.engine().await;
    assert!(engine.sustained(jfs::meta::Sid(1)).await.unwrap().is_empty());
    let key = jfs::meta::engine::Key::Attr(ino);
    let gone = engine.read(&[key]).await.unwrap();
    assert_eq!(gone, [jfs::meta::engine::Record::Attr(None)]);
}

async fn we_clean_up_after_go(store: Store) {
    let go_volume = format(&store, |setting| setting.trash_days = 0).await;
    let meta = store.start().await;
    // The fsck of the Go client fails on a root without recorded usage.
    mkdir(&meta, ROOT, "d").await;
    let ino = block_in_place(|| {
        use std::os::unix::fs::MetadataExt;
        let mount = go_volume.mount(&["--heartbeat", "1s"]);
        let file = std::fs::File::create(mount.path().join("open")).unwrap();
        std::fs::remove_file(mount.path().join("open")).unwrap();
        let ino = file.metadata().unwrap().ino();
        mount.kill();
        Ino(ino)
    });
    let engine = meta.engine();
    let sid = engine.sessions().await.unwrap().iter().map(|it| it.sid).max().unwrap();
    assert_eq!(engine.sustained(sid).await.unwrap(), [ino]);
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(meta.run_job(jfs::meta::client::Job::StaleSessions).await.unwrap(), 1);
    assert!(engine.session(sid).await.unwrap().is_none());
    assert!(engine.sustained(sid).await.unwrap().is_empty());
    meta.close().await.unwrap();
    block_in_place(|| go_volume.fsck());
}

async fn we_see_a_setting_changed_by_go(store: Store) {
    let go_volume = format(&store, |_| {}).await;
    let meta = store.start().await;
    let changes = meta.setting_changes();
    block_in_place(|| go_volume.run("config", &["--inodes", "1000", "--yes"])).ok();
    meta.heartbeat().await.unwrap();
    assert!(changes.has_changed().unwrap());
    assert_eq!(meta.context().setting().inodes, 1000);
    meta.close().await.unwrap();
}

async fn go_sees_a_setting_changed_by_us(store: Store) {
    let go_volume = block_in_place(|| GoVolume::format(store.url(), &["--trash-days", "0"]));
    let meta = store.open().await;
    let mut setting = meta.stored_setting().await.unwrap().unwrap();
    setting.trash_days = 2;
    setting.upload_limit = 100;
    meta.init(setting, false).await.unwrap();
    meta.close().await.unwrap();
    let status = block_in_place(|| go_volume.status());
    assert_eq!(status["Setting"]["TrashDays"], 2);
    assert_eq!(status["Setting"]["UploadLimit"], 100);
    block_in_place(|| {
        let mount = go_volume.mount(&[]);
        std::fs::write(mount.path().join("f"), "x").unwrap();
        std::fs::remove_file(mount.path().join("f")).unwrap();
        mount.unmount();
        go_volume.fsck();
    });
}

/// Runs operations of every kind that change usage.
async fn change_usage(meta: &Arc<Meta>, dir: Ino) {
    let root = Caller::root();
    let (a, b) = (mkdir(meta, dir, "a").await, mkdir(meta, dir, "b").await);
    for i in 0..5 {
        create(meta, &root, a, &format!("f{i}")).await;
    }
    let tree = mkdir(meta, a, "tree").await;
    let file = create(meta, &root, tree, "leaf").await;
    meta.link(&root, file, b, &name("link")).await.unwrap();
    let rename = async |from: (Ino, &str), to: (Ino, &str), mode| {
        let (old, new) = (name(from.1), name(to.1));
        meta.rename(&root, EntryRef::new(from.0, &old), EntryRef::new(to.0, &new), mode)
            .await
            .unwrap();
    };
    rename((a, "tree"), (b, "tree"), RenameMode::NoReplace).await;
    rename((a, "f0"), (b, "f0"), RenameMode::Replace).await;
    rename((a, "f1"), (b, "f0"), RenameMode::Replace).await;
    rename((a, "f2"), (b, "tree"), RenameMode::Exchange).await;
    meta.unlink(&root, a, &name("f3")).await.unwrap();
    meta.unlink_with(&root, a, &name("f4"), true).await.unwrap();
    mkdir(meta, a, "gone").await;
    meta.rmdir(&root, a, &name("gone")).await.unwrap();
}

async fn go_fsck_accepts_our_usage(store: Store) {
    let go_volume = format(&store, |_| {}).await;
    let meta = store.start().await;
    change_usage(&meta, ROOT).await;
    meta.close().await.unwrap();
    let status = block_in_place(|| {
        go_volume.fsck();
        go_volume.status()
    });
    let (space, inodes) = (status["Statistic"]["UsedSpace"].as_u64(), &status["Statistic"]);
    // The repair recounts the volume, and must not find anything to change.
    block_in_place(|| {
        let options = ["--path", "/", "--recursive", "--repair", "--sync-dir-stat"];
        go_volume.run("fsck", &options).ok();
        let after = go_volume.status();
        assert_eq!(after["Statistic"]["UsedSpace"].as_u64(), space);
        assert_eq!(&after["Statistic"], inodes);
    });
}

async fn go_enforces_a_quota_set_by_us(store: Store) {
    let go_volume = format(&store, |_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    create(&meta, &Caller::root(), dir, "f").await;
    let limits = Limits { space: Some(1 << 30), inodes: Some(20) };
    meta.quota_set(QuotaKey::Dir(dir), limits, false).await.unwrap();
    change_usage(&meta, dir).await;
    meta.close().await.unwrap();
    block_in_place(|| {
        let shown = go_volume.quota("get", &["--path", "/d"]).ok().stdout;
        assert!(shown.contains("1.0 GiB") && shown.contains("20"), "{shown}");
        go_volume.quota_check("/d");
        let mount = go_volume.mount(&[]);
        let made = (0..30)
            .try_for_each(|i| std::fs::File::create(mount.path().join(format!("d/{i}"))).map(drop));
        assert_eq!(made.unwrap_err().raw_os_error(), Some(nix::libc::EDQUOT));
        mount.unmount();
        go_volume.quota_check("/d");
    });
}

async fn we_enforce_a_quota_set_by_go(store: Store) {
    let go_volume = format(&store, |_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    create(&meta, &Caller::root(), dir, "f").await;
    meta.flush().await.unwrap();
    block_in_place(|| go_volume.quota("set", &["--path", "/d", "--inodes", "3"])).ok();
    meta.heartbeat().await.unwrap();
    create(&meta, &Caller::root(), dir, "g").await;
    create(&meta, &Caller::root(), dir, "h").await;
    let node = NodeKind { kind: FileKind::File, rdev: 0 };
    let full = meta.mknod(&Caller::root(), dir, &name("i"), node, 0o644, 0).await;
    assert!(matches!(full, Err(jfs::Error::QuotaExceeded)), "{full:?}");
    meta.close().await.unwrap();
    block_in_place(|| go_volume.quota_check("/d"));
}

async fn go_quota_check_accepts_our_usage_of_owners(store: Store) {
    let go_volume = format(&store, |_| {}).await;
    let meta = store.start().await;
    let ann = Caller::user(1000, 100);
    create(&meta, &ann, ROOT, "before").await;
    let limits = Limits { space: None, inodes: Some(50) };
    meta.quota_set(QuotaKey::User(1000), limits, false).await.unwrap();
    let file = create(&meta, &ann, ROOT, "after").await;
    create(&meta, &ann, ROOT, "gone").await;
    meta.unlink_with(&ann, ROOT, &name("gone"), true).await.unwrap();
    let set = AttrSet { uid: Some(1001), gid: Some(101), ..AttrSet::default() };
    meta.setattr(&Caller::root(), file, set).await.unwrap();
    meta.close().await.unwrap();
    block_in_place(|| go_volume.quota("check", &[])).ok();
}
