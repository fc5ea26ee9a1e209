//! `destroy`: deletes a volume, its objects first and its metadata last.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};
use clap::Args;
use futures::{StreamExt, stream};
use tracing::{info, warn};

use crate::cli::confirm::confirm;
use crate::cli::exit::Exit;
use crate::cli::meta_url::VolumeUrl;
use crate::cli::progress::Activity;
use crate::cli::table;
use crate::meta::record::SessionInfo;
use crate::meta::{Ino, Meta, Options};
use crate::object::{self, ObjectStore};
use crate::volume::storage::{Overrides, spec};

/// Objects of one page of a listing.
const PAGE: usize = 1000;
/// Objects deleted at once.
const AT_ONCE: usize = 32;

#[derive(Args)]
#[command(
    override_usage = "jfs-mount destroy [OPTIONS] <META-URL | --data-dir DIR> UUID",
    after_help = "\
Examples:
  Delete a volume for good:
    jfs-mount destroy redis://localhost/1 e94d66a8-2339-4abd-b8d8-6812df737892
  Delete the embedded volume of this host:
    jfs-mount destroy --data-dir /var/lib/jfs e94d66a8-2339-4abd-b8d8-6812df737892"
)]
pub struct Destroy {
    /// Address of the metadata, unless --data-dir names the embedded volume, and the UUID of the
    /// volume, as `status` shows it
    #[arg(value_name = "META-URL] [UUID", required = true, num_args = 1..=2)]
    words: Vec<String>,
    /// Folder of the embedded volume, instead of META-URL
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Do not check for sessions and do not ask
    #[arg(long)]
    force: bool,
}

/// Shows no arguments: there may be a password in META-URL.
impl std::fmt::Debug for Destroy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Destroy").finish_non_exhaustive()
    }
}

impl Destroy {
    /// Returns the volume and its UUID. Unlike other commands, this one never takes the embedded
    /// volume unless it is named.
    fn volume_and_uuid(&self) -> anyhow::Result<(VolumeUrl, &str)> {
        match (self.words.as_slice(), &self.data_dir) {
            ([uuid], Some(dir)) => Ok((VolumeUrl::new(None, Some(dir.clone())), uuid)),
            ([url, uuid], None) => Ok((VolumeUrl::new(Some(url.clone()), None), uuid)),
            ([_], None) => bail!(
                "name the volume to destroy by META-URL, or the embedded one by --data-dir, and its UUID"
            ),
            _ => bail!("name the volume either by META-URL or by --data-dir"),
        }
    }

    pub async fn run(self) -> anyhow::Result<()> {
        let (url, uuid) = self.volume_and_uuid().map_err(|error| Exit::Usage.with(error))?;
        let meta = Meta::attach(url.resolve()?.expose(), Options::default()).await?;
        let place = meta.engine().address().to_owned();
        let Some(mut setting) = meta.stored_setting().await? else {
            bail!("there is no volume in {place}");
        };
        if setting.uuid != uuid {
            bail!("the volume in {place} has the UUID {}, not {}", setting.uuid, uuid);
        }
        setting.decrypt()?;
        let store = object::open(&spec(&setting, &Overrides::from_environment()?)?)?;
        if !self.force {
            self.check_sessions(&meta).await?;
            let stat = meta.statfs(Ino::ROOT).await?;
            eprintln!(" volume name: {}", setting.name);
            eprintln!(" volume UUID: {}", setting.uuid);
            eprintln!("data storage: {}", store.place());
            eprintln!("  used bytes: {}", stat.total - stat.available);
            eprintln!(" used inodes: {}", stat.used_inodes);
            let warning = format!(
                "All objects in {} and all metadata in {place} will be deleted for good.",
                store.place()
            );
            confirm(&warning, self.yes)?;
        }
        let deleted = delete_objects(store.as_ref()).await?;
        // Last: without metadata, an object that is left could not be attributed to a volume.
        meta.engine().wipe().await?;
        meta.close().await?;
        info!(objects = deleted, "volume {} is destroyed", setting.name);
        println!("deleted {deleted} objects and the metadata of volume {}", setting.name);
        Ok(())
    }

    async fn check_sessions(&self, meta: &Meta) -> anyhow::Result<()> {
        meta.clean_stale_sessions().await?;
        let sessions = meta.engine().sessions().await?;
        if sessions.is_empty() {
            return Ok(());
        }
        let mut rows = vec![["SID", "HostName", "MountPoint"].map(str::to_owned).to_vec()];
        for session in &sessions {
            let info: SessionInfo = serde_json::from_slice(&session.info).unwrap_or_default();
            rows.push(vec![session.sid.0.to_string(), info.host_name, info.mount_point]);
        }
        let mut text = format!("{} sessions are active; close them first:\n", sessions.len());
        // Writing to a string does not fail.
        let _ = write!(text, "{}", table::render(&rows));
        bail!(text)
    }
}

/// Deletes every object, and fails if one is left.
async fn delete_objects(store: &dyn ObjectStore) -> anyhow::Result<u64> {
    let (deleted, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut activity = Activity::new();
    let mut after = String::new();
    loop {
        let page = store
            .list("", &after, PAGE)
            .await
            .with_context(|| format!("cannot list {}", store.place()))?;
        let Some(last) = page.last() else { break };
        after.clone_from(&last.key);
        let is_last = page.len() < PAGE;
        let deletions = stream::iter(page).map(|object| async {
            let object = object;
            match store.delete(&object.key).await {
                Ok(()) => deleted.fetch_add(1, Ordering::Relaxed),
                Err(error) => {
                    warn!(key = object.key, %error, "cannot delete an object");
                    failed.fetch_add(1, Ordering::Relaxed)
                }
            }
        });
        deletions.buffer_unordered(AT_ONCE).for_each(|_| std::future::ready(())).await;
        let count = deleted.load(Ordering::Relaxed);
        activity.show(|| format!("{count} objects deleted"));
        if is_last {
            break;
        }
    }
    activity.finish();
    match failed.into_inner() {
        0 => Ok(deleted.into_inner()),
        left => bail!(
            "{left} objects of {} were not deleted, so the metadata stays; run this again",
            store.place()
        ),
    }
}
