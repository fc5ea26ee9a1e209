//! Volumes to test on: one per test, on each engine, with as many clients as the test wants.

#![allow(dead_code, unused_macros, unused_imports, reason = "each test program uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use jfs::meta::client::Registration;
use jfs::meta::engine::{Change, Engine, Key, Record};
use jfs::meta::record::{Attr, FileKind, Setting};
use jfs::meta::{Ino, Meta, Options, Timestamp};
use tempfile::TempDir;

/// A fresh volume.
pub struct Volume {
    url: String,
    _dir: Option<TempDir>,
}

impl Volume {
    pub async fn on_memkv(setting: Setting) -> Self {
        let url = format!("memkv://{}", uuid::Uuid::new_v4());
        Self::format(url, setting, None).await
    }

    pub async fn on_sqlite(setting: Setting) -> Self {
        let dir = TempDir::new().unwrap();
        let url = format!("sqlite3://{}", dir.path().join("meta.db").display());
        Self::format(url, setting, Some(dir)).await
    }

    async fn format(url: String, setting: Setting, dir: Option<TempDir>) -> Self {
        let meta = Meta::attach(&url, Options::default()).await.unwrap();
        meta.init(setting, false).await.unwrap();
        Self { url, _dir: dir }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client with a session of its own.
    pub async fn client(&self) -> Arc<Meta> {
        self.client_with(Options::default()).await
    }

    pub async fn client_with(&self, options: Options) -> Arc<Meta> {
        let meta = self.connect(options).await;
        meta.start(Registration::New).await.unwrap();
        meta
    }

    /// A client that was not started.
    pub async fn connect(&self, options: Options) -> Arc<Meta> {
        let options = Options { no_background_jobs: true, ..options };
        Meta::connect(&self.url, options).await.unwrap()
    }
}

pub fn setting() -> Setting {
    Setting {
        name: "test".to_owned(),
        uuid: uuid::Uuid::new_v4().to_string(),
        storage: "file".to_owned(),
        bucket: "/nowhere/".to_owned(),
        block_size: 4096,
        compression: "none".to_owned(),
        trash_days: 0,
        meta_version: 1,
        enable_acl: true,
        ..Setting::default()
    }
}

/// Writes a node past all operations.
pub async fn put_node(meta: &Meta, ino: Ino, attr: &Attr) {
    let changes = [Change::PutAttr(ino, attr.clone())];
    meta.engine().begin().commit(&changes).await.unwrap();
}

/// A file of user 1000 and group 1000.
pub fn file(mode: u16) -> Attr {
    Attr::new(FileKind::File, mode, 1000, 1000, Ino::ROOT, Timestamp::from_secs(1_000_000))
}

pub fn dir(mode: u16) -> Attr {
    Attr::new(FileKind::Dir, mode, 1000, 1000, Ino::ROOT, Timestamp::from_secs(1_000_000))
}

pub async fn stored(engine: &Arc<dyn Engine>, key: Key) -> Record {
    engine.read(&[key]).await.unwrap().pop().unwrap()
}

pub async fn stored_attr(meta: &Meta, ino: Ino) -> Attr {
    match stored(meta.engine(), Key::Attr(ino)).await {
        Record::Attr(Some(attr)) => attr,
        other => panic!("{ino}: {other:?}"),
    }
}

/// Lets a task run until it waits for something.
pub async fn settle() {
    tokio::time::sleep(Duration::from_millis(30)).await;
}

/// Runs each test body on every engine: `on_every_engine! { setting(); this_holds, that_holds }`.
macro_rules! on_every_engine {
    ($setting:expr; $($test:ident),* $(,)?) => {
        $crate::volume::on_engine! { memkv, on_memkv, $setting; $($test),* }
        $crate::volume::on_engine! { sqlite, on_sqlite, $setting; $($test),* }
    };
}

macro_rules! on_engine {
    ($engine:ident, $make:ident, $setting:expr; $($test:ident),*) => {
        mod $engine {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test($crate::volume::Volume::$make($setting).await).await;
                }
            )*
        }
    };
}

pub(crate) use {on_engine, on_every_engine};
