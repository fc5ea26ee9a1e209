//! Formatting, opening, sessions, heartbeats, jobs.

use std::sync::Arc;
use std::time::Duration;

use crate::on_every_store;
use crate::support::store::{Store, quiet, setting};
use jfs::error::Error;
use jfs::meta::client::{Job, Limits, Registration};
use jfs::meta::engine::{Key, Record};
use jfs::meta::record::secret::Secret;
use jfs::meta::record::version::{CLIENT_VERSION, Version};
use jfs::meta::record::{Counter, FileKind, LockKind, QuotaKey, SessionInfo, Setting};
use jfs::meta::{Caller, Ino, LockOwner, Meta, Name, Options, Sid, Timestamp};

on_every_store! {
    a_fresh_volume_has_a_root_and_a_trash,
    a_volume_without_trash_has_no_trash_node,
    an_empty_store_is_refused,
    an_invalid_setting_changes_nothing,
    a_frozen_field_is_refused_by_its_name,
    force_changes_frozen_fields,
    the_uuid_is_kept_and_secrets_are_encrypted_with_it,
    secrets_stay_encrypted_when_the_setting_is_rewritten,
    plain_secrets_stay_plain_unless_encryption_is_requested,
    unknown_keys_survive_a_rewrite,
    features_cannot_be_disabled,
    dir_stats_stay_while_a_directory_has_a_quota,
    a_trash_node_is_created_when_the_trash_is_enabled,
    a_volume_for_newer_clients_is_refused,
    a_session_record_identifies_its_client,
    sessions_are_numbered,
    tools_and_read_only_clients_leave_no_record,
    a_read_only_client_changes_nothing,
    a_resumed_session_keeps_its_id,
    a_client_starts_once,
    closing_removes_the_session_and_is_idempotent,
    closing_releases_removed_files_and_locks,
    an_open_file_without_a_name_can_get_one_from_its_own_client,
    handing_over_keeps_the_session,
    handing_over_keeps_removed_files_and_locks,
    a_heartbeat_extends_the_session,
    a_session_that_was_cleaned_up_is_registered_again,
    a_session_without_heartbeats_lasts_long,
    a_changed_setting_is_published,
    a_different_volume_in_the_store_is_fatal,
    a_volume_that_vanished_is_fatal,
    newer_metadata_is_fatal,
    the_heartbeat_runs_by_itself,
    stale_sessions_are_cleaned_up,
    a_stale_session_releases_what_it_held,
    a_late_session_is_left_alone,
    sessions_and_quotas_are_in_the_change_log,
    the_change_log_is_trimmed,
    jobs_are_run_by_one_client,
    closing_ends_every_task,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

async fn stored(store: &Store) -> Setting {
    let raw = store.engine().await.load_setting().await.unwrap().unwrap();
    Setting::decode(&raw).unwrap()
}

/// Writes a setting without any client noticing.
async fn overwrite(store: &Store, setting: &Setting) {
    let engine = store.engine().await;
    let Record::Attr(Some(root)) = engine.read(&[Key::Attr(Ino::ROOT)]).await.unwrap().remove(0)
    else {
        panic!("no root");
    };
    engine.store_setting(&setting.encode().unwrap(), &root, None).await.unwrap();
}

async fn attr(store: &Store, ino: Ino) -> Option<jfs::meta::record::Attr> {
    match store.engine().await.read(&[Key::Attr(ino)]).await.unwrap().remove(0) {
        Record::Attr(attr) => attr,
        other => panic!("{other:?}"),
    }
}

// Formatting.

async fn a_fresh_volume_has_a_root_and_a_trash(store: Store) {
    let setting = store.format(|_| {}).await;
    assert_eq!(stored(&store).await, setting);
    let root = attr(&store, Ino::ROOT).await.unwrap();
    assert_eq!((root.kind, root.mode, root.nlink), (FileKind::Dir, 0o777, 2));
    assert_eq!((root.length, root.parent, root.mtime.nsec), (4096, Ino::ROOT, 0));
    let trash = attr(&store, Ino::TRASH).await.unwrap();
    assert_eq!((trash.mode, trash.nlink, trash.parent), (0o555, 2, Ino::ROOT));
    let engine = store.engine().await;
    assert_eq!(engine.counter(Counter::UsedSpace).await.unwrap(), 0);
    assert_eq!(engine.counter(Counter::TotalInodes).await.unwrap(), 0);
}

async fn a_volume_without_trash_has_no_trash_node(store: Store) {
    store.format(|setting| setting.trash_days = 0).await;
    assert_eq!(attr(&store, Ino::TRASH).await, None);
}

async fn an_empty_store_is_refused(store: Store) {
    let error = Meta::connect(store.url(), Options::default()).await.err().unwrap();
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    assert!(error.to_string().contains("holds no volume"), "{error}");
}

async fn an_invalid_setting_changes_nothing(store: Store) {
    let meta = Meta::attach(store.url(), Options::default()).await.unwrap();
    for (bad, what) in [
        (Setting { name: "A".into(), ..setting() }, "volume name"),
        (Setting { block_size: 100, ..setting() }, "block size"),
        (Setting { min_client_version: "one".into(), ..setting() }, "minimum client version"),
        (Setting { max_client_version: "one".into(), ..setting() }, "maximum client version"),
    ] {
        let error = meta.init(bad, false).await.unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    assert!(meta.stored_setting().await.unwrap().is_none());
}

async fn a_frozen_field_is_refused_by_its_name(store: Store) {
    let old = store.format(|_| {}).await;
    let meta = store.open().await;
    for (new, field) in [
        (Setting { name: "other".into(), ..old.clone() }, "name"),
        (Setting { block_size: 1024, ..old.clone() }, "block size"),
        (Setting { compression: "lz4".into(), ..old.clone() }, "compression"),
        (Setting { shards: 2, ..old.clone() }, "shards"),
        (Setting { hash_prefix: true, ..old.clone() }, "hash prefix"),
        (Setting { meta_version: 0, ..old.clone() }, "metadata version"),
    ] {
        let error = meta.init(new, false).await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
        assert!(error.to_string().contains(&format!("the {field} of volume vol")), "{error}");
    }
    assert_eq!(stored(&store).await, old);
}

async fn force_changes_frozen_fields(store: Store) {
    store.format(|_| {}).await;
    let meta = store.open().await;
    let new = Setting { name: "other".into(), block_size: 1024, ..setting() };
    meta.init(new.clone(), true).await.unwrap();
    assert_eq!(stored(&store).await, new);
}

async fn the_uuid_is_kept_and_secrets_are_encrypted_with_it(store: Store) {
    let old = store.format(|_| {}).await;
    let meta = store.open().await;
    let mut new = Setting { secret_key: Secret::new("sesame"), capacity: 1 << 30, ..setting() };
    new.encrypt().unwrap();
    let written = meta.init(new, false).await.unwrap();
    assert_eq!(written.uuid, old.uuid);
    assert_eq!(written.capacity, 1 << 30);
    let mut read = stored(&store).await;
    assert!(read.key_encrypted && read.secret_key.expose() != "sesame");
    read.decrypt().unwrap();
    assert_eq!(read.secret_key.expose(), "sesame");
}

async fn secrets_stay_encrypted_when_the_setting_is_rewritten(store: Store) {
    let mut setting = store.format(|setting| setting.secret_key = Secret::new("sesame")).await;
    assert!(setting.key_encrypted);
    setting.decrypt().unwrap();
    setting.secret_key = Secret::new("other");
    let meta = store.open().await;
    meta.init(setting, false).await.unwrap();
    let mut read = stored(&store).await;
    assert!(read.key_encrypted && read.secret_key.expose() != "other");
    read.decrypt().unwrap();
    assert_eq!(read.secret_key.expose(), "other");
}

async fn plain_secrets_stay_plain_unless_encryption_is_requested(store: Store) {
    let mut setting = store.format(|_| {}).await;
    setting.secret_key = Secret::new("plain");
    overwrite(&store, &setting).await;
    let meta = store.open().await;
    meta.init(Setting { capacity: 1, ..setting.clone() }, false).await.unwrap();
    assert_eq!(stored(&store).await.secret_key.expose(), "plain");
    setting.encrypt().unwrap();
    meta.init(setting, false).await.unwrap();
    assert!(stored(&store).await.key_encrypted);
}

async fn unknown_keys_survive_a_rewrite(store: Store) {
    let mut setting = store.format(|_| {}).await;
    setting.unknown.insert("FromTheFuture".into(), serde_json::json!({"a": 1}));
    overwrite(&store, &setting).await;
    let meta = store.open().await;
    let plain = Setting { unknown: serde_json::Map::new(), trash_days: 7, ..setting };
    meta.init(plain, false).await.unwrap();
    let read = stored(&store).await;
    assert_eq!(read.trash_days, 7);
    assert_eq!(read.unknown["FromTheFuture"], serde_json::json!({"a": 1}));
}

async fn features_cannot_be_disabled(store: Store) {
    let old = store.format(|setting| setting.enable_acl = true).await;
    assert_eq!(old.min_client_version, "1.2.0-A");
    let meta = store.open().await;
    let error = meta.init(Setting { enable_acl: false, ..old.clone() }, false).await.unwrap_err();
    assert!(error.to_string().contains("ACL"), "{error}");
    let lower = Setting { min_client_version: "1.1.0".into(), ..old.clone() };
    let error = meta.init(lower, false).await.unwrap_err();
    assert!(error.to_string().contains("minimum client version"), "{error}");
    let ranger = Setting { ranger_service: "svc".into(), ..old };
    let written = meta.init(ranger, false).await.unwrap();
    assert_eq!(written.min_client_version, "1.3.0-A");
}

async fn dir_stats_stay_while_a_directory_has_a_quota(store: Store) {
    let old = store.format(|_| {}).await;
    let meta = store.start().await;
    let (dir, _) = meta.mkdir(&Caller::root(), Ino::ROOT, &name("d"), 0o755, 0).await.unwrap();
    let limits = Limits { space: Some(1 << 20), inodes: None };
    meta.quota_set(QuotaKey::Dir(dir), limits, false).await.unwrap();
    let off = Setting { dir_stats: false, ..old };
    let error = meta.init(off.clone(), false).await.unwrap_err();
    assert!(error.to_string().contains("dir stats"), "{error}");
    meta.quota_delete(QuotaKey::Dir(dir)).await.unwrap();
    meta.init(off, false).await.unwrap();
    assert!(!stored(&store).await.dir_stats);
}

async fn a_trash_node_is_created_when_the_trash_is_enabled(store: Store) {
    let setting = store.format(|setting| setting.trash_days = 0).await;
    let meta = store.open().await;
    meta.init(Setting { trash_days: 1, ..setting }, false).await.unwrap();
    assert_eq!(attr(&store, Ino::TRASH).await.unwrap().mode, 0o555);
}

// Opening.

async fn a_volume_for_newer_clients_is_refused(store: Store) {
    let setting = store.format(|_| {}).await;
    for (new, what) in [
        (Setting { min_client_version: "9.0".into(), ..setting.clone() }, "needs client version"),
        (Setting { max_client_version: "1.0".into(), ..setting.clone() }, "allows client version"),
        (Setting { meta_version: 2, ..setting.clone() }, "metadata version 2"),
    ] {
        overwrite(&store, &new).await;
        let error = Meta::connect(store.url(), Options::default()).await.err().unwrap();
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
        assert!(error.to_string().contains(what), "{error}");
    }
}

// Sessions.

async fn a_session_record_identifies_its_client(store: Store) {
    store.format(|_| {}).await;
    let options = Options { mount_point: "/mnt/jfs".into(), ..quiet() };
    let meta = store.start_with(options).await;
    let session = meta.engine().session(meta.context().sid()).await.unwrap().unwrap();
    let info = SessionInfo::decode(&session.info).unwrap();
    assert_eq!(info.version, CLIENT_VERSION);
    info.version.parse::<Version>().unwrap();
    assert_eq!(info.mount_point, "/mnt/jfs");
    assert_eq!(info.process_id, std::process::id());
    assert!(!info.host_name.is_empty());
    assert!(chrono::DateTime::parse_from_rfc3339(&info.mount_time).is_ok(), "{}", info.mount_time);
    let left = session.expire - Timestamp::now().sec;
    assert!((58..=60).contains(&left), "{left}");
    meta.close().await.unwrap();
}

async fn sessions_are_numbered(store: Store) {
    store.format(|_| {}).await;
    let (one, two) = (store.start().await, store.start().await);
    assert_eq!((one.context().sid(), two.context().sid()), (Sid(1), Sid(2)));
    assert_eq!(one.engine().sessions().await.unwrap().len(), 2);
    one.close().await.unwrap();
    two.close().await.unwrap();
}

async fn tools_and_read_only_clients_leave_no_record(store: Store) {
    store.format(|_| {}).await;
    let tool = store.open().await;
    assert_eq!(tool.start(Registration::None).await.unwrap(), Sid(0));
    let reader = store.open_with(Options { read_only: true, ..quiet() }).await;
    assert_eq!(reader.start(Registration::New).await.unwrap(), Sid(0));
    assert!(tool.engine().sessions().await.unwrap().is_empty());
    tool.close().await.unwrap();
    reader.close().await.unwrap();
}

async fn a_read_only_client_changes_nothing(store: Store) {
    let setting = store.format(|_| {}).await;
    let reader = store.open_with(Options { read_only: true, ..quiet() }).await;
    reader.start(Registration::New).await.unwrap();
    let made = reader.mkdir(&Caller::root(), Ino::ROOT, &name("d"), 0o755, 0).await;
    assert!(matches!(made, Err(Error::ReadOnly)), "{made:?}");
    let limits = Limits { space: Some(1), inodes: None };
    let set = reader.quota_set(QuotaKey::Dir(Ino::ROOT), limits, false).await;
    assert!(matches!(set, Err(Error::ReadOnly)), "{set:?}");
    let init = reader.init(Setting { capacity: 1, ..setting.clone() }, false).await;
    assert!(matches!(init, Err(Error::ReadOnly)), "{init:?}");
    reader.close().await.unwrap();
    assert_eq!(stored(&store).await, setting);
}

async fn a_resumed_session_keeps_its_id(store: Store) {
    store.format(|_| {}).await;
    let first = store.start().await;
    let sid = first.context().sid();
    first.hand_over().await.unwrap();
    let second = store.open().await;
    assert_eq!(second.start(Registration::Resume(sid)).await.unwrap(), sid);
    assert_eq!(second.engine().sessions().await.unwrap().len(), 1);
    second.close().await.unwrap();
    assert!(store.engine().await.sessions().await.unwrap().is_empty());
}

async fn a_client_starts_once(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    assert!(meta.start(Registration::New).await.is_err());
    assert_eq!(meta.engine().sessions().await.unwrap().len(), 1);
    meta.close().await.unwrap();
    assert!(meta.start(Registration::New).await.is_err());
}

async fn closing_removes_the_session_and_is_idempotent(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let (one, two) = tokio::join!(meta.close(), meta.close());
    one.unwrap();
    two.unwrap();
    meta.close().await.unwrap();
    assert!(store.engine().await.sessions().await.unwrap().is_empty());
    assert_eq!(meta.context().sid(), Sid(0));
}

async fn handing_over_keeps_the_session(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    meta.mkdir(&Caller::root(), Ino::ROOT, &name("d"), 0o755, 0).await.unwrap();
    meta.hand_over().await.unwrap();
    let engine = store.engine().await;
    assert_eq!(engine.sessions().await.unwrap().len(), 1);
    assert_eq!(engine.counter(Counter::TotalInodes).await.unwrap(), 1);
}

/// A file that `meta` has open, locked and removed, and another one that it has locked.
async fn hold_files_and_locks(meta: &Arc<Meta>) -> (Ino, Ino) {
    let root = Caller::root();
    let made = meta.create(&root, Ino::ROOT, &name("removed"), 0o644, 0, true).await;
    let removed = made.unwrap().0;
    meta.unlink_with(&root, Ino::ROOT, &name("removed"), true).await.unwrap();
    let made = meta.create(&root, Ino::ROOT, &name("locked"), 0o644, 0, true).await;
    let locked = made.unwrap().0;
    meta.flock(locked, LockOwner(7), Some(LockKind::Write), false).await.unwrap();
    (removed, locked)
}

async fn assert_released(store: &Store, sid: Sid, removed: Ino) {
    let engine = store.engine().await;
    assert_eq!(attr(store, removed).await, None);
    assert!(engine.sustained(sid).await.unwrap().is_empty());
    assert!(engine.locks_of(sid).await.unwrap().is_empty());
    assert!(engine.session(sid).await.unwrap().is_none());
}

async fn closing_releases_removed_files_and_locks(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let sid = meta.context().sid();
    let (removed, _) = hold_files_and_locks(&meta).await;
    assert_eq!(attr(&store, removed).await.unwrap().nlink, 0);
    meta.close().await.unwrap();
    assert_released(&store, sid, removed).await;
    let engine = store.engine().await;
    assert_eq!(engine.counter(Counter::TotalInodes).await.unwrap(), 1);
    assert_eq!(engine.counter(Counter::UsedSpace).await.unwrap(), 4096);
}

async fn an_open_file_without_a_name_can_get_one_from_its_own_client(store: Store) {
    store.format(|_| {}).await;
    let (meta, other) = (store.start().await, store.start().await);
    let (root, sid) = (Caller::root(), meta.context().sid());
    let (nameless, _) = hold_files_and_locks(&meta).await;
    meta.mkdir(&root, Ino::ROOT, &name("d"), 0o755, 0).await.unwrap();
    let (dir, _) = meta.lookup(&root, Ino::ROOT, &name("d")).await.unwrap();
    let refused = other.link(&root, nameless, dir, &name("f")).await;
    assert!(matches!(refused, Err(Error::NotFound)), "{refused:?}");

    let attr = meta.link(&root, nameless, dir, &name("f")).await.unwrap();
    assert_eq!((attr.nlink, attr.parent), (1, dir));
    assert!(meta.engine().sustained(sid).await.unwrap().is_empty());
    assert_eq!(meta.dir_stat(dir).await.unwrap().inodes, 1);
    meta.close_file(nameless).await.unwrap();
    meta.close().await.unwrap();
    let (found, attr) = other.lookup(&root, dir, &name("f")).await.unwrap();
    assert_eq!((found, attr.nlink, attr.parent), (nameless, 1, dir));

    // From here on it is an ordinary file.
    other.link(&root, nameless, Ino::ROOT, &name("g")).await.unwrap();
    other.unlink_with(&root, dir, &name("f"), true).await.unwrap();
    other.unlink_with(&root, Ino::ROOT, &name("g"), true).await.unwrap();
    other.close().await.unwrap();
    let engine = store.engine().await;
    assert_eq!(engine.counter(Counter::TotalInodes).await.unwrap(), 2);
    assert_eq!(engine.counter(Counter::UsedSpace).await.unwrap(), 2 * 4096);
}

async fn handing_over_keeps_removed_files_and_locks(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let sid = meta.context().sid();
    let (removed, locked) = hold_files_and_locks(&meta).await;
    meta.hand_over().await.unwrap();
    let next = store.open().await;
    next.start(Registration::Resume(sid)).await.unwrap();
    assert_eq!(attr(&store, removed).await.unwrap().nlink, 0);
    assert_eq!(next.engine().sustained(sid).await.unwrap(), [removed]);
    let held = next.engine().locks_of(sid).await.unwrap();
    assert_eq!(held.iter().map(|lock| lock.ino).collect::<Vec<_>>(), [locked]);
    next.close().await.unwrap();
    assert_released(&store, sid, removed).await;
}

async fn a_heartbeat_extends_the_session(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let sid = meta.context().sid();
    meta.engine().extend_session(sid, 1).await.unwrap();
    meta.heartbeat().await.unwrap();
    let expire = meta.engine().session(sid).await.unwrap().unwrap().expire;
    assert!(expire > Timestamp::now().sec + 50, "{expire}");
    meta.close().await.unwrap();
}

async fn a_session_that_was_cleaned_up_is_registered_again(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let sid = meta.context().sid();
    meta.engine().remove_session(sid).await.unwrap();
    meta.heartbeat().await.unwrap();
    let session = meta.engine().session(sid).await.unwrap().unwrap();
    assert_eq!(SessionInfo::decode(&session.info).unwrap().version, CLIENT_VERSION);
    meta.close().await.unwrap();
}

async fn a_session_without_heartbeats_lasts_long(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start_with(Options { heartbeat: Duration::ZERO, ..quiet() }).await;
    let sid = meta.context().sid();
    let expire = meta.engine().session(sid).await.unwrap().unwrap().expire;
    assert!(expire > Timestamp::now().sec + 364 * 86_400, "{expire}");
    meta.engine().remove_session(sid).await.unwrap();
    meta.heartbeat().await.unwrap();
    assert!(meta.engine().session(sid).await.unwrap().is_none());
    meta.close().await.unwrap();
}

async fn a_changed_setting_is_published(store: Store) {
    let setting = store.format(|_| {}).await;
    let meta = store.start().await;
    let mut changes = meta.setting_changes();
    meta.heartbeat().await.unwrap();
    assert!(!changes.has_changed().unwrap());
    overwrite(&store, &Setting { capacity: 1 << 30, ..setting }).await;
    meta.heartbeat().await.unwrap();
    assert!(changes.has_changed().unwrap());
    assert_eq!(changes.borrow_and_update().capacity, 1 << 30);
    assert_eq!(meta.context().setting().capacity, 1 << 30);
    meta.close().await.unwrap();
}

/// Nothing may be written to a volume that was lost.
async fn assert_lost(store: &Store, meta: &Meta, why: &str) {
    let error = tokio::time::timeout(Duration::from_secs(5), meta.lost()).await.unwrap();
    assert!(error.to_string().contains(why), "{error}");
    let made = meta.mkdir(&Caller::root(), Ino::ROOT, &name("late"), 0o755, 0).await;
    assert!(matches!(made, Err(Error::Refused(_))), "{made:?}");
    assert!(meta.flush().await.is_err());
    let before = store.engine().await.sessions().await.ok();
    meta.close().await.unwrap();
    assert_eq!(store.engine().await.sessions().await.ok(), before);
}

async fn a_different_volume_in_the_store_is_fatal(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    meta.mkdir(&Caller::root(), Ino::ROOT, &name("d"), 0o755, 0).await.unwrap();
    overwrite(&store, &setting()).await;
    assert!(meta.heartbeat().await.is_err());
    assert_lost(&store, &meta, "now holds").await;
}

async fn a_volume_that_vanished_is_fatal(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    store.engine().await.wipe().await.unwrap();
    assert!(meta.heartbeat().await.is_err());
    assert_lost(&store, &meta, "holds no volume").await;
}

async fn newer_metadata_is_fatal(store: Store) {
    let setting = store.format(|_| {}).await;
    let meta = store.start().await;
    overwrite(&store, &Setting { meta_version: 2, ..setting }).await;
    assert!(meta.heartbeat().await.is_err());
    assert_lost(&store, &meta, "metadata version 2").await;
}

async fn the_heartbeat_runs_by_itself(store: Store) {
    let setting = store.format(|_| {}).await;
    let meta = store.start_with(Options { heartbeat: Duration::from_millis(20), ..quiet() }).await;
    let mut changes = meta.setting_changes();
    overwrite(&store, &Setting { capacity: 7, ..setting }).await;
    let changed = changes.wait_for(|setting| setting.capacity == 7);
    tokio::time::timeout(Duration::from_secs(10), changed).await.unwrap().unwrap();
    meta.close().await.unwrap();
}

// Jobs.

async fn stale_sessions_are_cleaned_up(store: Store) {
    store.format(|_| {}).await;
    let cleaner = store.start().await;
    let engine = cleaner.engine();
    for sid in 100..103 {
        engine.put_session(Sid(sid), Timestamp::now().sec - 10, b"{}").await.unwrap();
    }
    assert_eq!(cleaner.run_job(Job::StaleSessions).await.unwrap(), 3);
    let left = engine.sessions().await.unwrap();
    assert_eq!(left.iter().map(|it| it.sid).collect::<Vec<_>>(), [cleaner.context().sid()]);
    cleaner.close().await.unwrap();
}

async fn a_stale_session_releases_what_it_held(store: Store) {
    store.format(|_| {}).await;
    let (gone, cleaner) = (store.start().await, store.start().await);
    let sid = gone.context().sid();
    let (removed, locked) = hold_files_and_locks(&gone).await;
    gone.flush().await.unwrap();
    gone.engine().extend_session(sid, Timestamp::now().sec - 10).await.unwrap();
    let lock = cleaner.flock(locked, LockOwner(8), Some(LockKind::Write), false).await;
    assert!(matches!(lock, Err(Error::WouldBlock)), "{lock:?}");
    assert_eq!(cleaner.run_job(Job::StaleSessions).await.unwrap(), 1);
    assert_released(&store, sid, removed).await;
    cleaner.flock(locked, LockOwner(8), Some(LockKind::Write), false).await.unwrap();
    cleaner.close().await.unwrap();
    assert_eq!(store.engine().await.counter(Counter::TotalInodes).await.unwrap(), 1);
}

async fn a_late_session_is_left_alone(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let sid = meta.context().sid();
    meta.engine().extend_session(sid, Timestamp::now().sec - 10).await.unwrap();
    assert_eq!(meta.run_job(Job::StaleSessions).await.unwrap(), 0);
    assert!(meta.engine().session(sid).await.unwrap().is_some());
    meta.close().await.unwrap();
}

async fn sessions_and_quotas_are_in_the_change_log(store: Store) {
    store.format(|setting| setting.change_log = true).await;
    let meta = store.start().await;
    let limits = Limits { space: None, inodes: Some(5) };
    meta.quota_set(QuotaKey::Dir(Ino::ROOT), limits, false).await.unwrap();
    meta.quota_delete(QuotaKey::Dir(Ino::ROOT)).await.unwrap();
    meta.close().await.unwrap();
    let lines = store.engine().await.change_log(0, 100).await.unwrap();
    for op in ["NEWSESSION(1,", "SETQUOTA(0,1,-1,5)", "DELQUOTA(0,1)", "CLEANSESSION(1)"] {
        assert!(lines.iter().any(|(_, line)| line.contains(op)), "{op}: {lines:?}");
    }
}

async fn the_change_log_is_trimmed(store: Store) {
    store.format(|setting| (setting.change_log, setting.change_log_max_lines) = (true, 2)).await;
    let meta = store.start().await;
    for i in 0..5 {
        let dir = name(&format!("d{i}"));
        meta.mkdir(&Caller::root(), Ino::ROOT, &dir, 0o755, 0).await.unwrap();
    }
    assert!(meta.engine().change_log(0, 100).await.unwrap().len() > 4);
    meta.run_job(Job::ChangeLog).await.unwrap();
    let lines = meta.engine().change_log(0, 100).await.unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].1.contains("d4"), "{lines:?}");
    meta.close().await.unwrap();
}

async fn jobs_are_run_by_one_client(store: Store) {
    store.format(|_| {}).await;
    let (one, two) = (store.start().await, store.start().await);
    for job in Job::ALL {
        assert!(one.run_job_if_due(job).await.unwrap().is_some(), "{job:?}");
        assert!(two.run_job_if_due(job).await.unwrap().is_none(), "{job:?}");
        assert!(one.run_job_if_due(job).await.unwrap().is_none(), "{job:?}");
    }
    assert_eq!(one.counts().jobs(), Job::ALL.len() as u64);
    one.close().await.unwrap();
    two.close().await.unwrap();
}

async fn closing_ends_every_task(store: Store) {
    store.format(|_| {}).await;
    let options = Options { heartbeat: Duration::from_millis(20), ..Options::default() };
    let meta = store.start_with(options).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let weak = Arc::downgrade(&meta);
    tokio::time::timeout(Duration::from_secs(5), meta.close()).await.unwrap().unwrap();
    drop(meta);
    assert!(weak.upgrade().is_none());
}
