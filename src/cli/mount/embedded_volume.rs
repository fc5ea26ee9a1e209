//! The embedded volume, mounted without META-URL: metadata in SQLite and data in files, in one folder.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use tracing::info;
use uuid::Uuid;

use super::positional::MetaUrl;
use crate::meta::record::Setting;
use crate::meta::{Meta, Options};
use crate::options::default_paths::user_path;
use crate::options::storage::{Bucket, StorageOptions};
use crate::volume::storage::Overrides;

const NAME: &str = "local";

/// Returns the folder given by option or environment, or the default one.
pub fn folder(option: Option<&Path>) -> anyhow::Result<PathBuf> {
    let from_env = || std::env::var_os("JFS_DATA_DIR").filter(|dir| !dir.is_empty());
    let dir = match option {
        Some(dir) => dir.to_owned(),
        None => from_env().map_or_else(default_folder, PathBuf::from),
    };
    std::path::absolute(&dir).with_context(|| format!("--data-dir {}", dir.display()))
}

fn default_folder() -> PathBuf {
    if let Some(data) = std::env::var_os("XDG_DATA_HOME").filter(|dir| !dir.is_empty())
        && !nix::unistd::geteuid().is_root()
    {
        return PathBuf::from(data).join("jfs");
    }
    user_path("/var/lib/jfs", ".local/share/jfs")
}

/// Returns the metadata URL of the volume in this folder.
pub fn meta_url(dir: &Path) -> anyhow::Result<MetaUrl> {
    let db = dir.join("meta.db");
    let db = db.to_str().with_context(|| format!("{}: not UTF-8", dir.display()))?;
    if db.contains('?') {
        bail!("{}: the path must not contain a question mark", dir.display());
    }
    Ok(MetaUrl::new(format!("sqlite3://{db}")))
}

/// Creates the volume unless it exists, and returns whether it did. A lock keeps processes that start
/// together from creating two.
pub async fn ensure(dir: &Path, url: &MetaUrl) -> anyhow::Result<bool> {
    let shown = dir.display();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("{shown}: the folder of the embedded volume"))?;
    let lock = lock(dir.join(".lock")).await.with_context(|| format!("{shown}/.lock"))?;
    let meta = Meta::attach(url.expose(), Options::default()).await?;
    let created = match meta.stored_setting().await? {
        Some(_) => Ok(false),
        None => create(&meta, dir).await.map(|()| true),
    };
    meta.close().await?;
    drop(lock);
    created
}

/// Takes the lock, waiting for other processes.
async fn lock(path: PathBuf) -> anyhow::Result<Flock<File>> {
    let waiting = tokio::task::spawn_blocking(move || {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| anyhow::Error::from(errno))
    });
    waiting.await?
}

async fn create(meta: &Meta, dir: &Path) -> anyhow::Result<()> {
    let mut setting = Setting::new(NAME, Uuid::new_v4())?;
    let data = dir.join("data").to_str().map(str::to_owned);
    let storage = StorageOptions {
        storage: Some("file".to_owned()),
        bucket: data,
        ..StorageOptions::default()
    };
    storage.apply_location(&mut setting)?;
    setting.check()?;
    let bucket = Bucket::open(&setting, &Overrides::from_environment()?)?;
    bucket.test().await?;
    // A process that was killed right here may have left its claim.
    bucket.release().await;
    bucket.claim(&setting.uuid).await?;
    let place = setting.bucket.clone();
    if let Err(error) = meta.init(setting, false).await {
        bucket.release().await;
        return Err(error.into());
    }
    info!(
        "created the embedded volume: metadata in {}, data in {place}",
        dir.join("meta.db").display()
    );
    Ok(())
}
