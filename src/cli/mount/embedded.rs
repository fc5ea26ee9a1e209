//! The volume for who has none: metadata in SQLite and data in a directory, all in one folder.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use tracing::info;
use uuid::Uuid;

use super::places::Address;
use crate::meta::record::Setting;
use crate::meta::{Meta, Options};
use crate::options::home::or_home;
use crate::options::storage::{Bucket, StorageOptions};
use crate::volume::storage::Overrides;

const NAME: &str = "local";

/// The folder that was asked for, or the usual one.
pub fn folder(said: Option<&Path>) -> anyhow::Result<PathBuf> {
    let from_env = || std::env::var_os("JFS_DATA_DIR").filter(|dir| !dir.is_empty());
    let dir = match said {
        Some(dir) => dir.to_owned(),
        None => from_env().map_or_else(usual, PathBuf::from),
    };
    std::path::absolute(&dir).with_context(|| format!("--data-dir {}", dir.display()))
}

fn usual() -> PathBuf {
    if let Some(data) = std::env::var_os("XDG_DATA_HOME").filter(|dir| !dir.is_empty())
        && !nix::unistd::geteuid().is_root()
    {
        return PathBuf::from(data).join("jfs");
    }
    or_home("/var/lib/jfs", ".local/share/jfs")
}

/// The address of the volume in this folder.
pub fn address(dir: &Path) -> anyhow::Result<Address> {
    let db = dir.join("meta.db");
    let db = db.to_str().with_context(|| format!("{}: not UTF-8", dir.display()))?;
    if db.contains('?') {
        bail!("{}: a question mark cannot be part of the path", dir.display());
    }
    Ok(Address::new(format!("sqlite3://{db}")))
}

/// Makes the volume unless it is there, and answers whether it did. Processes that start together
/// make one, not two.
pub async fn ensure(dir: &Path, address: &Address) -> anyhow::Result<bool> {
    let shown = dir.display();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("{shown}: the folder of the embedded volume"))?;
    let lock = lock(dir.join(".lock")).await.with_context(|| format!("{shown}/.lock"))?;
    let meta = Meta::attach(address.expose(), Options::default()).await?;
    let made = match meta.stored_setting().await? {
        Some(_) => Ok(false),
        None => create(&meta, dir).await.map(|()| true),
    };
    meta.close().await?;
    drop(lock);
    made
}

/// Waits for others to be done; held until it is dropped.
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
    let storage =
        StorageOptions { storage: Some("file".to_owned()), bucket: data, ..StorageOptions::none() };
    storage.place(&mut setting)?;
    setting.check()?;
    let bucket = Bucket::open(&setting, &Overrides::from_environment()?)?;
    bucket.test().await?;
    // What a process left that was killed right here.
    bucket.release().await;
    bucket.claim(&setting.uuid).await?;
    let place = setting.bucket.clone();
    if let Err(error) = meta.init(setting, false).await {
        bucket.release().await;
        return Err(error.into());
    }
    info!("made a new volume: metadata in {}, data in {place}", dir.join("meta.db").display());
    Ok(())
}
