//! Formatting: writing the setting of a new volume, or changing that of an existing one.

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::record::changelog::LogOp;
use crate::meta::record::version::Version;
use crate::meta::record::{Attr, FileKind, QuotaKey, Setting};
use crate::meta::{Ino, Timestamp};

impl Meta {
    /// Writes the setting, and with a new volume its root; answers it as stored, with its secrets
    /// encrypted if they are to be.
    ///
    /// What would orphan stored data or lie to other clients is refused, naming the field; `force`
    /// overwrites all the same. The UUID of an existing volume stays unless forced. Switching on
    /// user and group quotas counts every node of the volume. Whoever follows the setting of this
    /// client is told.
    pub async fn init(&self, setting: Setting, force: bool) -> Result<Setting> {
        if self.facts.options.read_only {
            return Err(Error::ReadOnly);
        }
        let setting = match self.stored_setting().await? {
            None => self.write_new(setting).await?,
            Some(old) => self.rewrite(&old, setting, force).await?,
        };
        Ok(setting)
    }

    async fn write_new(&self, mut setting: Setting) -> Result<Setting> {
        setting.check()?;
        check_versions(&setting)?;
        setting.require_clients_for_features();
        setting.encrypt()?;
        self.engine.prepare().await?;
        self.store(&setting).await?;
        Ok(setting)
    }

    async fn rewrite(&self, old: &Setting, mut setting: Setting, force: bool) -> Result<Setting> {
        if !force {
            // What was odd before is not this change's to repair.
            if old.check().is_ok() {
                setting.check()?;
            }
            refuse_frozen(old, &setting)?;
            refuse_backward(old, &setting)?;
            self.refuse_losing_quotas(old, &setting).await?;
            keep_identity(old, &mut setting)?;
        }
        check_versions(&setting)?;
        setting.require_clients_for_features();
        for (key, value) in &old.unknown {
            setting.unknown.entry(key.clone()).or_insert_with(|| value.clone());
        }
        if old.key_encrypted {
            setting.encrypt()?;
        }
        self.engine.prepare().await?;
        if setting.dir_stats && !old.dir_stats {
            self.engine.clear_dir_stats().await?;
            self.log_apart(LogOp::EnableDirStats).await;
        }
        let counts_owners = setting.user_group_quota && !old.user_group_quota;
        if counts_owners {
            self.engine.clear_owner_quotas().await?;
            self.log_apart(LogOp::EnableUserGroupQuota).await;
        }
        self.store(&setting).await?;
        if setting != *old {
            self.life.announce(self.facts.setting());
        }
        if counts_owners {
            self.count_owners().await?;
        }
        Ok(setting)
    }

    async fn store(&self, setting: &Setting) -> Result<()> {
        // Peers write whole seconds here.
        let now = Timestamp::from_secs(Timestamp::now().sec);
        let dir = |mode| Attr::new(FileKind::Dir, mode, 0, 0, Ino::ROOT, now);
        let trash = setting.has_trash().then(|| dir(0o555));
        self.engine.store_setting(&setting.encode()?, &dir(0o777), trash.as_ref()).await?;
        self.facts.put_setting(setting.clone());
        Ok(())
    }

    /// Quotas of directories rest on dir stats.
    async fn refuse_losing_quotas(&self, old: &Setting, new: &Setting) -> Result<()> {
        if new.dir_stats || !old.dir_stats {
            return Ok(());
        }
        let quotas = self.engine.quotas().await?;
        let limited = quotas
            .iter()
            .filter(|(key, quota)| matches!(key, QuotaKey::Dir(_)) && !quota.is_unset())
            .count();
        if limited == 0 {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "dir stats of volume {} cannot be switched off: {limited} directories have a quota",
            old.name
        )))
    }
}

/// Data is stored under these; changing them would lose it.
fn refuse_frozen(old: &Setting, new: &Setting) -> Result<()> {
    let frozen = [
        ("name", old.name.clone(), new.name.clone()),
        ("block size", old.block_size.to_string(), new.block_size.to_string()),
        ("compression", old.compression.clone(), new.compression.clone()),
        ("shards", old.shards.to_string(), new.shards.to_string()),
        ("hash prefix", old.hash_prefix.to_string(), new.hash_prefix.to_string()),
        ("metadata version", old.meta_version.to_string(), new.meta_version.to_string()),
    ];
    match frozen.into_iter().find(|(_, old, new)| old != new) {
        None => Ok(()),
        Some((field, from, to)) => Err(Error::Refused(format!(
            "the {field} of volume {} cannot be changed from {from:?} to {to:?}",
            old.name
        ))),
    }
}

/// Steps that other clients would not follow.
fn refuse_backward(old: &Setting, new: &Setting) -> Result<()> {
    if old.enable_acl && !new.enable_acl {
        return Err(Error::Refused(format!("ACLs of volume {} cannot be switched off", old.name)));
    }
    let version = |text: &str| text.parse::<Version>().ok();
    if version(&new.min_client_version) < version(&old.min_client_version) {
        return Err(Error::Refused(format!(
            "the minimum client version of volume {} cannot be lowered from {} to {:?}",
            old.name, old.min_client_version, new.min_client_version
        )));
    }
    Ok(())
}

/// Keeps the UUID: objects and caches carry it, and the secrets are encrypted with it.
fn keep_identity(old: &Setting, new: &mut Setting) -> Result<()> {
    if new.uuid != old.uuid {
        new.decrypt()?;
        new.uuid.clone_from(&old.uuid);
        new.encrypt()?;
    }
    Ok(())
}

/// A bound that does not parse would shut everyone out.
fn check_versions(setting: &Setting) -> Result<()> {
    for (field, text) in [
        ("minimum client version", &setting.min_client_version),
        ("maximum client version", &setting.max_client_version),
    ] {
        if !text.is_empty() && text.parse::<Version>().is_err() {
            return Err(Error::bad_input(format!("{field} {text:?} is not a version")));
        }
    }
    Ok(())
}
