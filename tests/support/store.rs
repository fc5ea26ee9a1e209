//! Empty metadata stores on every engine, for tests that format and open volumes themselves, with as
//! many clients as needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jfs::meta::client::Registration;
use jfs::meta::engine::{Engine, connect};
use jfs::meta::record::Setting;
use jfs::meta::{Meta, Options};
use tempfile::TempDir;
use uuid::Uuid;

use super::redis::RedisServer;
use super::tikv::TikvServer;

/// An empty store for one test. Every client opens it separately, as on another machine.
pub struct Store {
    url: String,
    _folder: Option<TempDir>,
}

impl Store {
    pub fn memory() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let url = format!("memkv://store-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Self { url, _folder: None }
    }

    pub fn sqlite() -> Self {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite3://{}/meta.db", folder.path().display());
        Self { url, _folder: Some(folder) }
    }

    pub fn redis() -> Self {
        Self { url: RedisServer::shared().fresh_url(), _folder: None }
    }

    pub fn tikv() -> Self {
        Self { url: TikvServer::shared().fresh_url(), _folder: None }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn engine(&self) -> Arc<dyn Engine> {
        connect(&self.url).await.unwrap()
    }

    /// Formats a volume with the default setting, modified by `change`.
    pub async fn format(&self, change: impl FnOnce(&mut Setting)) -> Setting {
        let mut setting = setting();
        change(&mut setting);
        let meta = Meta::attach(&self.url, Options::default()).await.unwrap();
        let setting = meta.init(setting, false).await.unwrap();
        meta.close().await.unwrap();
        setting
    }

    /// Returns a client without a session.
    pub async fn open(&self) -> Arc<Meta> {
        self.open_with(quiet()).await
    }

    pub async fn open_with(&self, options: Options) -> Arc<Meta> {
        Meta::connect(&self.url, options).await.unwrap()
    }

    /// Returns a client with a session.
    pub async fn start(&self) -> Arc<Meta> {
        self.start_with(quiet()).await
    }

    pub async fn start_with(&self, options: Options) -> Arc<Meta> {
        let meta = self.open_with(options).await;
        meta.start(Registration::New).await.unwrap();
        meta
    }
}

/// Returns the setting of a new volume.
pub fn setting() -> Setting {
    Setting { bucket: "/tmp/".to_owned(), ..Setting::new("vol", Uuid::new_v4()).unwrap() }
}

/// Returns options of a client without background activity.
pub fn quiet() -> Options {
    Options { no_background_jobs: true, ..Options::default() }
}

/// Generates tests that run each body, an `async fn(Store)`, on every engine, in modules named after
/// the engines: `on_every_store! { a_sentence, another_sentence }`.
#[macro_export]
macro_rules! on_every_store {
    ($($body:ident),* $(,)?) => {
        $crate::on_every_store!(@engine memory; $($body),*);
        $crate::on_every_store!(@engine sqlite; $($body),*);
        $crate::on_every_store!(@engine redis; $($body),*);
        $crate::on_every_store!(@engine tikv; $($body),*);
    };
    (@engine $engine:ident; $($body:ident),*) => {
        mod $engine {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $body() {
                    super::$body($crate::support::store::Store::$engine()).await;
                }
            )*
        }
    };
}
