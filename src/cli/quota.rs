//! `quota`: limits of directories, users and groups.

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tracing::info;

use super::table;
use crate::cli::meta_url::VolumeUrl;
use crate::error::Error;
use crate::meta::record::{Quota as Record, QuotaKey};
use crate::meta::{Caller, Ino, Limits, Meta, Name, Options, QuotaCheck};
use crate::options::sizes::{Bytes, Count, parse_capacity};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Limit a directory to 100 GiB:
    jfs-mount quota set redis://localhost/1 --path /dir --capacity 100
  Show all limits and how much of them is used:
    jfs-mount quota list redis://localhost/1
  Remove the limits of a user:
    jfs-mount quota delete redis://localhost/1 --uid 1000")]
pub struct Quota {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Set limits
    Set(Set),
    /// Show one quota
    Get(Get),
    /// Remove limits
    #[command(visible_alias = "del")]
    Delete(Get),
    /// Show every quota, or the one of --path, --uid or --gid
    #[command(visible_alias = "ls")]
    List(Get),
    /// Count the usage and compare it with the recorded usage
    Check(Check),
}

#[derive(Debug, Args)]
struct VolumeArgs {
    #[command(flatten)]
    url: VolumeUrl,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The directory, user or group that a quota is for.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct QuotaTarget {
    /// Path of a directory within the volume
    #[arg(long)]
    path: Option<String>,
    /// A user
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    uid: Option<u32>,
    /// A group
    #[arg(long)]
    gid: Option<u32>,
}

#[derive(Debug, Args)]
struct Set {
    #[command(flatten)]
    volume: VolumeArgs,
    #[command(flatten)]
    target: QuotaTarget,
    /// Maximum space, in GiB unless a unit is given; 0 for no limit
    #[arg(long, value_parser = parse_capacity)]
    capacity: Option<u64>,
    /// Maximum inodes; 0 for no limit
    #[arg(long)]
    inodes: Option<u64>,
    /// Create the directory if it is missing
    #[arg(long)]
    create: bool,
    /// Count the usage entry by entry; slow for large directories
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Args)]
struct Get {
    #[command(flatten)]
    volume: VolumeArgs,
    #[command(flatten)]
    target: QuotaTarget,
}

#[derive(Debug, Args)]
struct Check {
    #[command(flatten)]
    volume: VolumeArgs,
    #[command(flatten)]
    target: QuotaTarget,
    /// Correct wrong usage
    #[arg(long)]
    repair: bool,
    /// Count the usage entry by entry; slow for large directories
    #[arg(long)]
    strict: bool,
}

impl Quota {
    pub async fn run(self) -> anyhow::Result<()> {
        match self.action {
            Action::Set(set) => set.run().await,
            Action::Get(get) => get.show().await,
            Action::Delete(get) => get.delete().await,
            Action::List(get) => get.list().await,
            Action::Check(check) => check.run().await,
        }
    }
}

impl VolumeArgs {
    async fn open(&self) -> anyhow::Result<std::sync::Arc<Meta>> {
        Ok(Meta::connect(self.url.resolve()?.expose(), Options::default()).await?)
    }

    /// Prints a table, or JSON with `--json`.
    fn print(&self, heading: &str, mut quotas: Vec<(String, Record)>) -> anyhow::Result<()> {
        quotas.sort_by(|a, b| a.0.cmp(&b.0));
        if self.json {
            let all: Vec<Value> =
                quotas.iter().map(|(label, quota)| to_json(label, quota)).collect();
            println!("{}", serde_json::to_string_pretty(&all)?);
        } else {
            print!("{}", render_table(heading, quotas));
        }
        Ok(())
    }
}

impl QuotaTarget {
    /// Returns the key of the quota and a label for it.
    async fn find(&self, meta: &Meta, create: bool) -> anyhow::Result<(QuotaKey, String)> {
        if let Some(uid) = self.uid {
            return Ok((QuotaKey::User(uid), uid.to_string()));
        }
        if let Some(gid) = self.gid {
            return Ok((QuotaKey::Group(gid), gid.to_string()));
        }
        let Some(path) = &self.path else {
            bail!("give --path, --uid or --gid");
        };
        let ino = match meta.resolve(path).await {
            Ok((ino, attr)) if attr.is_dir() => ino,
            Ok(_) => bail!("{path} is not a directory"),
            Err(Error::NotFound) if create => make_dirs(meta, path).await?,
            Err(error) => return Err(error).with_context(|| format!("directory {path}")),
        };
        Ok((QuotaKey::Dir(ino), path.clone()))
    }

    fn heading(&self) -> &'static str {
        match (self.uid, self.gid) {
            (Some(_), _) => "User ID",
            (_, Some(_)) => "Group ID",
            _ => "Path",
        }
    }

    fn is_empty(&self) -> bool {
        self.path.is_none() && self.uid.is_none() && self.gid.is_none()
    }
}

impl Set {
    async fn run(self) -> anyhow::Result<()> {
        if self.capacity.is_none() && self.inodes.is_none() {
            bail!("nothing to set: give --capacity or --inodes");
        }
        let meta = self.volume.open().await?;
        let (key, label) = self.target.find(&meta, self.create).await?;
        let limits = Limits {
            space: self.capacity.map(i64::try_from).transpose().context("--capacity")?,
            inodes: self.inodes.map(i64::try_from).transpose().context("--inodes")?,
        };
        let quota = meta.quota_set(key, limits, self.strict).await?;
        self.volume.print(self.target.heading(), vec![(label, quota)])?;
        Ok(meta.close().await?)
    }
}

impl Get {
    async fn show(self) -> anyhow::Result<()> {
        let meta = self.volume.open().await?;
        let (key, label) = self.target.find(&meta, false).await?;
        let Some(quota) = meta.quota(key).await? else {
            bail!("{label} has no quota");
        };
        self.volume.print(self.target.heading(), vec![(label, quota)])?;
        Ok(meta.close().await?)
    }

    /// Prints all quotas, or the requested one; an empty list if there is none.
    async fn list(self) -> anyhow::Result<()> {
        let meta = self.volume.open().await?;
        let (only, heading) = if self.target.is_empty() {
            (None, "Path/ID")
        } else {
            (Some(self.target.find(&meta, false).await?.0), self.target.heading())
        };
        let mut rows = Vec::new();
        for (key, quota) in meta.quota_list().await? {
            if only.is_none_or(|only| only == key) {
                rows.push((label(&meta, key).await, quota));
            }
        }
        self.volume.print(heading, rows)?;
        Ok(meta.close().await?)
    }

    async fn delete(self) -> anyhow::Result<()> {
        let meta = self.volume.open().await?;
        let (key, label) = self.target.find(&meta, false).await?;
        if meta.quota(key).await?.is_none() {
            bail!("{label} has no quota");
        }
        meta.quota_delete(key).await?;
        Ok(meta.close().await?)
    }
}

impl Check {
    async fn run(self) -> anyhow::Result<()> {
        let meta = self.volume.open().await?;
        let target = &self.target;
        let wrong: Vec<QuotaCheck> = if target.path.is_some() {
            let (QuotaKey::Dir(dir), label) = target.find(&meta, false).await? else {
                bail!("--path must name a directory");
            };
            let check = meta.quota_check(dir, self.strict, self.repair).await?;
            if check.is_right() {
                self.volume.print("Path", vec![(label, check.quota)])?;
                Vec::new()
            } else {
                vec![check]
            }
        } else {
            let one = |key: QuotaKey| match (target.uid, target.gid) {
                (None, None) => true,
                (uid, gid) => {
                    uid.map(QuotaKey::User) == Some(key) || gid.map(QuotaKey::Group) == Some(key)
                }
            };
            let all = meta.quota_check_owners(self.repair).await?;
            all.into_iter().filter(|check| one(check.key)).collect()
        };
        self.report(&meta, &wrong).await?;
        meta.close().await?;
        if wrong.is_empty() {
            info!("quota usage is consistent");
        } else if !self.repair {
            bail!("quota usage is inconsistent");
        }
        Ok(())
    }

    async fn report(&self, meta: &Meta, wrong: &[QuotaCheck]) -> anyhow::Result<()> {
        let mut all = Vec::new();
        for check in wrong {
            let label = label(meta, check.key).await;
            if self.volume.json {
                let mut one = to_json(&label, &check.quota);
                one["CountedSpace"] = check.space.into();
                one["CountedInodes"] = check.inodes.into();
                one["Corrected"] = self.repair.into();
                all.push(one);
                continue;
            }
            let done = if self.repair { "corrected" } else { "run with --repair to correct it" };
            println!(
                "{label}: stored usage is {} bytes and {} inodes, counted {} and {}; {done}",
                check.quota.used_space, check.quota.used_inodes, check.space, check.inodes
            );
        }
        if !all.is_empty() {
            println!("{}", serde_json::to_string_pretty(&all)?);
        }
        Ok(())
    }
}

async fn make_dirs(meta: &Meta, path: &str) -> anyhow::Result<Ino> {
    let root = Caller::root();
    let mut at = Ino::ROOT;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let name = Name::new(part).with_context(|| format!("name {part:?}"))?;
        at = match meta.lookup(&root, at, &name).await {
            Ok((ino, _)) => ino,
            Err(Error::NotFound) => meta.mkdir(&root, at, &name, 0o777, 0o022).await?.0,
            Err(error) => return Err(error).with_context(|| format!("directory {path}")),
        };
    }
    Ok(at)
}

async fn label(meta: &Meta, key: QuotaKey) -> String {
    match key {
        QuotaKey::Dir(ino) => {
            match meta.paths(ino).await.ok().and_then(|paths| paths.into_iter().next()) {
                Some(path) => path,
                None => format!("inode:{ino}"),
            }
        }
        QuotaKey::User(uid) => format!("uid:{uid}"),
        QuotaKey::Group(gid) => format!("gid:{gid}"),
    }
}

fn to_json(label: &str, quota: &Record) -> Value {
    json!({
        "Name": label,
        "MaxSpace": quota.max_space,
        "MaxInodes": quota.max_inodes,
        "UsedSpace": quota.used_space,
        "UsedInodes": quota.used_inodes,
    })
}

fn render_table(heading: &str, quotas: Vec<(String, Record)>) -> String {
    let cells = |text: [&str; 7]| text.map(str::to_owned).to_vec();
    let mut rows = vec![cells([heading, "Size", "Used", "Use%", "Inodes", "IUsed", "IUse%"])];
    for (label, quota) in quotas {
        let limit = |max: i64, shown: String| if max > 0 { shown } else { "unlimited".to_owned() };
        let share = |used: i64, max: i64| {
            if max > 0 { format!("{}%", used.saturating_mul(100) / max) } else { String::new() }
        };
        let used_space = quota.used_space.max(0);
        let used_inodes = quota.used_inodes.max(0);
        rows.push(vec![
            label,
            limit(quota.max_space, Bytes(quota.max_space.max(0).cast_unsigned()).to_string()),
            Bytes(used_space.cast_unsigned()).to_string(),
            share(used_space, quota.max_space),
            limit(quota.max_inodes, Count(quota.max_inodes).to_string()),
            Count(used_inodes).to_string(),
            share(used_inodes, quota.max_inodes),
        ]);
    }
    table::render(&rows)
}
