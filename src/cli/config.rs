//! `config`: shows the setting of a volume, or changes the given options and nothing else.

use std::fmt::Display;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;

use crate::cli::confirm::confirm;
use crate::cli::meta_url::VolumeUrl;
use crate::meta::record::version::Version;
use crate::meta::record::{SessionInfo, Setting};
use crate::meta::{Meta, Options};
use crate::options::durations::parse_seconds;
use crate::options::sizes::{Bytes, Count, parse_capacity, parse_mbps};
use crate::options::storage::{Bucket, StorageOptions};
use crate::volume::storage::Overrides;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Show the setting:
    jfs-mount config redis://localhost/1
  Limit the volume to 10 TiB and 100 million files:
    jfs-mount config redis://localhost/1 --capacity 10T --inodes 100000000
  Change the keys of the object storage; mounts use them at once:
    jfs-mount config redis://localhost/1 --access-key ID --secret-key KEY")]
pub struct Config {
    #[command(flatten)]
    volume: VolumeUrl,
    /// Answer every question with yes
    #[arg(short, long)]
    yes: bool,
    /// Skip every check
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    storage: StorageOptions,
    /// Upload limit of a client in Mbps
    #[arg(long, value_parser = parse_mbps, help_heading = "Data storage")]
    upload_limit: Option<i64>,
    /// Download limit of a client in Mbps
    #[arg(long, value_parser = parse_mbps, help_heading = "Data storage")]
    download_limit: Option<i64>,
    /// Maximum space the volume may use, in GiB unless a unit is given; 0 for no limit
    #[arg(long, value_parser = parse_capacity, help_heading = "Management")]
    capacity: Option<u64>,
    /// Maximum inodes the volume may use; 0 for no limit
    #[arg(long, help_heading = "Management")]
    inodes: Option<u64>,
    /// Days that removed files stay in the trash
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..), help_heading = "Management")]
    trash_days: Option<i64>,
    /// Support POSIX ACLs; cannot be disabled again
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Management")]
    enable_acl: Option<bool>,
    /// URL of the Ranger admin service
    #[arg(long, help_heading = "Management")]
    ranger_rest_url: Option<String>,
    /// Name of the Ranger service
    #[arg(long, help_heading = "Management")]
    ranger_service: Option<String>,
    /// Path of a Kerberos configuration file
    #[arg(long, help_heading = "Management")]
    kerberos_config_file: Option<PathBuf>,
    /// Encrypt secrets that are stored in the clear
    #[arg(long, help_heading = "Management")]
    encrypt_secret: bool,
    /// Oldest client that may connect
    #[arg(long, help_heading = "Management")]
    min_client_version: Option<String>,
    /// Newest client that may connect
    #[arg(long, help_heading = "Management")]
    max_client_version: Option<String>,
    /// Record the usage of every directory
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Management")]
    dir_stats: Option<bool>,
    /// Record the usage of every user and group
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Management")]
    user_group_quota: Option<bool>,
    /// Log every change of metadata
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Management")]
    changelog: Option<bool>,
    /// How long changes stay logged, e.g. 2h; 0 for ever
    #[arg(long, value_parser = parse_seconds, allow_hyphen_values = true, help_heading = "Management")]
    changelog_max_age: Option<i64>,
    /// How many changes stay logged; 0 for all
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..), help_heading = "Management")]
    changelog_max_lines: Option<i64>,
    /// Tier that --storage-class and --tag apply to
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..4), help_heading = "Management")]
    tier: Option<u8>,
}

/// The changes to make, one line each.
#[derive(Default)]
struct Changes(Vec<String>);

impl Changes {
    fn note(&mut self, name: &str, old: &dyn Display, new: &dyn Display) {
        self.0.push(format!("{name:>10}: {old} -> {new}"));
    }

    fn updated(&mut self, name: &str) {
        self.0.push(format!("{name:>10}: updated"));
    }

    /// Sets a field if a different value was given.
    fn set<T: PartialEq + Display + Clone>(&mut self, name: &str, field: &mut T, new: Option<&T>) {
        if let Some(new) = new.filter(|new| **new != *field) {
            self.note(name, field, new);
            *field = new.clone();
        }
    }
}

impl Config {
    pub async fn run(self) -> anyhow::Result<()> {
        let meta = Meta::attach(self.volume.resolve()?.expose(), Options::default()).await?;
        let Some(old) = meta.stored_setting().await? else {
            bail!("there is no volume in {}", meta.engine().address());
        };
        let mut setting = old.clone();
        // New secrets must not mix with encrypted ones.
        setting.decrypt()?;
        let changes = self.change(&mut setting)?;
        if !self.asks_for_changes() {
            println!("{}", old.without_secrets().display()?);
            return Ok(());
        }
        if changes.0.is_empty() {
            println!("Nothing changed.");
            return Ok(());
        }
        if !self.force {
            self.test_storage(&old, &setting).await?;
            self.confirm(&meta, &old, &setting).await?;
        }
        meta.init(setting, self.force).await?;
        meta.close().await?;
        println!("{}", changes.0.join("\n"));
        Ok(())
    }

    fn asks_for_changes(&self) -> bool {
        let storage = &self.storage;
        [&storage.storage, &storage.bucket, &storage.access_key, &storage.secret_key]
            .iter()
            .any(|option| option.is_some())
            || [&storage.session_token, &storage.storage_class, &storage.tag]
                .iter()
                .any(|option| option.is_some())
            || [self.upload_limit, self.download_limit, self.trash_days].iter().any(Option::is_some)
            || [self.changelog_max_age, self.changelog_max_lines].iter().any(Option::is_some)
            || [self.capacity, self.inodes].iter().any(Option::is_some)
            || [self.enable_acl, self.dir_stats, self.user_group_quota, self.changelog]
                .iter()
                .any(Option::is_some)
            || [&self.ranger_rest_url, &self.ranger_service].iter().any(|o| o.is_some())
            || [&self.min_client_version, &self.max_client_version].iter().any(|o| o.is_some())
            || self.kerberos_config_file.is_some()
            || self.encrypt_secret
            || self.tier.is_some()
    }

    fn change(&self, setting: &mut Setting) -> anyhow::Result<Changes> {
        let mut changes = Changes::default();
        self.change_storage(setting, &mut changes)?;
        self.change_limits(setting, &mut changes);
        self.change_features(setting, &mut changes)?;
        self.change_versions(setting, &mut changes)?;
        Ok(changes)
    }

    fn change_storage(&self, setting: &mut Setting, changes: &mut Changes) -> anyhow::Result<()> {
        let storage = &self.storage;
        let before = setting.clone();
        storage.apply_location(setting)?;
        if before.storage != setting.storage {
            changes.note("storage", &before.storage, &setting.storage);
        }
        if before.bucket != setting.bucket {
            changes.note("bucket", &before.bucket, &setting.bucket);
        }
        if self.tier.is_some() && (storage.bucket.is_some() || storage.access_key.is_some()) {
            bail!("a tier has no bucket or keys of its own: give --tier without them");
        }
        storage.apply_credentials(setting);
        if before.access_key != setting.access_key {
            changes.note("access-key", &before.access_key, &setting.access_key);
        }
        if storage.secret_key.is_some() {
            changes.updated("secret-key");
        }
        if storage.session_token.is_some() {
            changes.updated("session-token");
        }
        if self.encrypt_secret && !setting.key_encrypted {
            changes.updated("encrypt-secret");
        }
        self.change_tier(setting, changes)
    }

    fn change_tier(&self, setting: &mut Setting, changes: &mut Changes) -> anyhow::Result<()> {
        let (class, tag) = (&self.storage.storage_class, &self.storage.tag);
        if class.is_none() && tag.is_none() {
            if self.tier.is_some() {
                bail!("--tier needs --storage-class or --tag");
            }
            return Ok(());
        }
        let id = self.tier.unwrap_or(0);
        let before = setting.tier(id).unwrap_or_default();
        let tier = setting.tiers_mut().entry(id).or_default();
        tier.id = id;
        changes.set("storage-class", &mut tier.storage_class, class.as_ref());
        changes.set("tag", &mut tier.tag, tag.as_ref());
        if self.tier.is_some() && *tier != before {
            setting.require_client("1.4.0-A");
        }
        Ok(())
    }

    fn change_limits(&self, setting: &mut Setting, changes: &mut Changes) {
        if let Some(capacity) = self.capacity.filter(|new| *new != setting.capacity) {
            changes.note("capacity", &Bytes(setting.capacity), &Bytes(capacity));
            setting.capacity = capacity;
        }
        if let Some(inodes) = self.inodes.filter(|new| *new != setting.inodes) {
            let count = |n: u64| Count(i64::try_from(n).unwrap_or(i64::MAX));
            changes.note("inodes", &count(setting.inodes), &count(inodes));
            setting.inodes = inodes;
        }
        changes.set("upload-limit", &mut setting.upload_limit, self.upload_limit.as_ref());
        changes.set("download-limit", &mut setting.download_limit, self.download_limit.as_ref());
        changes.set("trash-days", &mut setting.trash_days, self.trash_days.as_ref());
    }

    fn change_features(&self, setting: &mut Setting, changes: &mut Changes) -> anyhow::Result<()> {
        if self.enable_acl == Some(false) && setting.enable_acl {
            bail!("ACLs cannot be switched off again");
        }
        changes.set("enable-acl", &mut setting.enable_acl, self.enable_acl.as_ref());
        changes.set("dir-stats", &mut setting.dir_stats, self.dir_stats.as_ref());
        changes.set(
            "user-group-quota",
            &mut setting.user_group_quota,
            self.user_group_quota.as_ref(),
        );
        let logged = setting.change_log;
        changes.set("changelog", &mut setting.change_log, self.changelog.as_ref());
        let default_age = (setting.change_log && !logged && setting.change_log_max_age == 0)
            .then_some(DEFAULT_LOG_AGE);
        let age = self.changelog_max_age.or(default_age);
        changes.set("changelog-max-age", &mut setting.change_log_max_age, age.as_ref());
        let lines = self.changelog_max_lines.as_ref();
        changes.set("changelog-max-lines", &mut setting.change_log_max_lines, lines);
        changes.set("ranger-rest-url", &mut setting.ranger_rest_url, self.ranger_rest_url.as_ref());
        changes.set("ranger-service", &mut setting.ranger_service, self.ranger_service.as_ref());
        if let Some(path) = &self.kerberos_config_file {
            setting.kerb_conf = std::fs::read_to_string(path)
                .with_context(|| format!("kerberos configuration {}", path.display()))?;
            changes.updated("kerberos-config-file");
        }
        Ok(())
    }

    fn change_versions(&self, setting: &mut Setting, changes: &mut Changes) -> anyhow::Result<()> {
        for version in [&self.min_client_version, &self.max_client_version].into_iter().flatten() {
            version.parse::<Version>().with_context(|| format!("version {version:?}"))?;
        }
        changes.set(
            "min-client-version",
            &mut setting.min_client_version,
            self.min_client_version.as_ref(),
        );
        changes.set(
            "max-client-version",
            &mut setting.max_client_version,
            self.max_client_version.as_ref(),
        );
        let before = setting.min_client_version.clone();
        setting.require_clients_for_features();
        if before != setting.min_client_version {
            changes.note("min-client-version", &before, &setting.min_client_version);
        }
        Ok(())
    }

    /// Tests the storage if the change is about where or how objects are stored.
    async fn test_storage(&self, old: &Setting, new: &Setting) -> anyhow::Result<()> {
        let place = |setting: &Setting| {
            (setting.storage.clone(), setting.bucket.clone(), setting.access_key.clone())
        };
        let storage = &self.storage;
        let keys = storage.secret_key.is_some() || storage.session_token.is_some();
        let id = self.tier.unwrap_or(0);
        let tier = new.tier(id) != old.tier(id);
        if !keys && !tier && place(old) == place(new) {
            return Ok(());
        }
        // Objects of a new storage class may not be readable for hours.
        Bucket::open(new, &Overrides::from_environment()?)?.probe(id, !tier).await
    }

    /// Asks for confirmation of changes that may have unexpected effects.
    async fn confirm(&self, meta: &Meta, old: &Setting, new: &Setting) -> anyhow::Result<()> {
        let stat = meta.statfs(crate::meta::Ino::ROOT).await?;
        let used = stat.total - stat.available;
        let shrinks = (old.capacity, old.inodes) != (new.capacity, new.inodes);
        let too_small = (new.capacity > 0 && used >= new.capacity)
            || (new.inodes > 0 && stat.used_inodes >= new.inodes);
        if shrinks && too_small {
            let warning = format!(
                "The new limits are below what is used: {used} of {} bytes, {} of {} inodes.",
                new.capacity, stat.used_inodes, new.inodes
            );
            confirm(&warning, self.yes)?;
        }
        if old.trash_days > 0 && new.trash_days == 0 {
            confirm(
                "The trash will be emptied, and files removed from now on are gone at once.",
                self.yes,
            )?;
        }
        let versions = |setting: &Setting| {
            (setting.min_client_version.clone(), setting.max_client_version.clone())
        };
        if versions(old) != versions(new) {
            self.confirm_versions(meta, new).await?;
        }
        Ok(())
    }

    async fn confirm_versions(&self, meta: &Meta, new: &Setting) -> anyhow::Result<()> {
        let mut refused_clients = Vec::new();
        for session in meta.engine().sessions().await? {
            let info: SessionInfo = serde_json::from_slice(&session.info).unwrap_or_default();
            let refused = match info.version.parse::<Version>() {
                Ok(version) => new.check_version(&version).err().map(|error| error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            if let Some(why) = refused {
                refused_clients
                    .push(format!("{} process {}: {why}", info.host_name, info.process_id));
            }
        }
        if refused_clients.is_empty() {
            return Ok(());
        }
        confirm(
            &format!("These clients will be refused:\n{}", refused_clients.join("\n")),
            self.yes,
        )
    }
}

/// Default age limit of the change log, in seconds.
const DEFAULT_LOG_AGE: i64 = 7200;
