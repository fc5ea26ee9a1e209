//! Formatted volumes for tests: one store per test, on every engine, with as many clients as needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jfs::meta::engine::kv::{KvEngine, MemoryStore};
use jfs::meta::record::Setting;
use jfs::meta::{Meta, Options, Registration};
use tempfile::TempDir;
use uuid::Uuid;

use super::redis::RedisServer;
use super::slow::SlowStore;
use super::tikv::TikvServer;

/// URL prefix of a slow store in memory.
const SLOW: &str = "slow+memkv://";

/// A formatted volume and one client with a session.
pub struct Volume {
    pub url: String,
    pub meta: Arc<Meta>,
    _dir: Option<TempDir>,
}

impl Volume {
    pub async fn memory() -> Self {
        Self::memory_with(setting()).await
    }

    pub async fn sqlite() -> Self {
        Self::sqlite_with(setting()).await
    }

    pub async fn redis() -> Self {
        Self::redis_with(setting()).await
    }

    pub async fn memory_with(setting: Setting) -> Self {
        Self::format(memory_url(), setting, None).await
    }

    pub async fn sqlite_with(setting: Setting) -> Self {
        let dir = TempDir::new().expect("temporary directory");
        let url = format!("sqlite3://{}/meta.db", dir.path().display());
        Self::format(url, setting, Some(dir)).await
    }

    pub async fn redis_with(setting: Setting) -> Self {
        Self::format(RedisServer::shared().fresh_url(), setting, None).await
    }

    /// In several TiKV regions, so that most commits take two phases and several servers.
    pub async fn tikv_with(setting: Setting) -> Self {
        Self::format(TikvServer::shared().fresh_split_url(), setting, None).await
    }

    /// In one TiKV region, so that commits take one phase.
    pub async fn tikv_in_one_region_with(setting: Setting) -> Self {
        Self::format(TikvServer::shared().fresh_url(), setting, None).await
    }

    /// In memory, with the latency of a network.
    pub async fn slow_with(setting: Setting) -> Self {
        Self::format(memory_url().replace("memkv://", SLOW), setting, None).await
    }

    async fn format(url: String, setting: Setting, dir: Option<TempDir>) -> Self {
        let meta = attach(&url, Options::default()).await;
        meta.init(setting, false).await.expect("format");
        let volume = Self { url, meta, _dir: dir };
        start(&volume.meta).await;
        volume
    }

    /// Returns another client of the same volume, with its own session.
    pub async fn client(&self) -> Arc<Meta> {
        self.client_with(Options::default()).await
    }

    pub async fn client_with(&self, options: Options) -> Arc<Meta> {
        let meta = attach(&self.url, options).await;
        start(&meta).await;
        meta
    }

    /// Returns another client, without a session.
    pub async fn visitor(&self) -> Arc<Meta> {
        let meta = attach(&self.url, Options::default()).await;
        meta.load().await.expect("load");
        meta
    }
}

async fn attach(url: &str, options: Options) -> Arc<Meta> {
    let options = Options { no_background_jobs: true, ..options };
    match url.strip_prefix(SLOW) {
        Some(name) => {
            let store = Arc::new(SlowStore(MemoryStore::named(name)));
            Meta::new(Arc::new(KvEngine::new(store)), options)
        }
        None => Meta::attach(url, options).await.expect("connect"),
    }
}

async fn start(meta: &Arc<Meta>) {
    meta.load().await.expect("load");
    meta.start(Registration::New).await.expect("session");
}

/// Returns the default setting of tests: without trash, so that removals take effect at once, and with
/// directory statistics.
pub fn setting() -> Setting {
    let mut setting = Setting::new("test-volume", Uuid::new_v4()).expect("a valid setting");
    setting.trash_days = 0;
    setting
}

/// As [`setting`], with ACLs and a change log.
pub fn setting_with_acls_and_log() -> Setting {
    Setting { enable_acl: true, change_log: true, ..setting() }
}

/// As [`setting`], keeping removed files for a day.
pub fn setting_with_trash() -> Setting {
    Setting { trash_days: 1, ..setting() }
}

fn memory_url() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("memkv://test-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Generates tests that run each body, an `async fn(Volume)`, on every engine, in modules named after
/// the engines: `on_every_engine! { setting_expression; a_sentence, another_sentence }`.
#[macro_export]
macro_rules! on_every_engine {
    ($setting:expr; $($body:ident),* $(,)?) => {
        $crate::on_every_engine!(@engine memory, memory_with, $setting; $($body),*);
        $crate::on_every_engine!(@engine sqlite, sqlite_with, $setting; $($body),*);
        $crate::on_every_engine!(@engine redis, redis_with, $setting; $($body),*);
        $crate::on_every_engine!(@engine tikv, tikv_with, $setting; $($body),*);
        $crate::on_every_engine!(
            @engine tikv_in_one_region, tikv_in_one_region_with, $setting; $($body),*
        );
    };
    (@engine $engine:ident, $open:ident, $setting:expr; $($body:ident),*) => {
        mod $engine {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $body() {
                    super::$body(super::Volume::$open($setting).await).await;
                }
            )*
        }
    };
}
