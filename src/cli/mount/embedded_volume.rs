//! The embedded volume, mounted without META-URL: metadata in SQLite and data in files, in one folder.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::fcntl::{Flock, FlockArg};
use tracing::info;
use uuid::Uuid;

use crate::cli::meta_url::MetaUrl;
use crate::meta::record::Setting;
use crate::meta::{Meta, Options};
use crate::options::storage::{Bucket, StorageOptions};
use crate::volume::storage::Overrides;

const NAME: &str = "local";

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
