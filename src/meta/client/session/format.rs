//! Formatting: writes the setting of a new volume, or changes that of an existing one.

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::version::Version;
use crate::meta::record::{Attr, Counter, FileKind, QuotaKey, Setting};
use crate::meta::{Ino, Timestamp};

impl Meta {
    /// Writes the setting, and the root directory of a new volume; returns it as stored, with
    /// encrypted secrets if the volume encrypts them.
    ///
    /// Changes that would orphan stored data or mislead other clients fail with the name of the
    /// field; `force` writes them nevertheless. An existing volume keeps its UUID unless forced.
    /// Enabling user and group quotas counts every node of the volume. The new setting is published
    /// to [`Meta::setting_changes`].
    pub async fn init(&self, setting: Setting, force: bool) -> Result<Setting> {
        if self.context.options.read_only {
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
        if self.engine.counter(Counter::UnfinishedLoad).await? != 0 {
            return Err(Error::Refused(format!(
                "{} holds what a load that did not finish left: load again, which removes it first",
                self.engine.address()
            )));
        }
        self.store(&setting).await?;
        Ok(setting)
    }

    async fn rewrite(&self, old: &Setting, mut setting: Setting, force: bool) -> Result<Setting> {
        if !force {
            // A field that was invalid before is not checked.
            if old.check().is_ok() {
                setting.check()?;
            }
            check_frozen_fields(old, &setting)?;
            check_not_backward(old, &setting)?;
            self.check_quotas_kept(old, &setting).await?;
            keep_uuid(old, &mut setting)?;
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
            self.log_separately(LogOp::EnableDirStats).await;
        }
        let counts_owners = setting.user_group_quota && !old.user_group_quota;
        if counts_owners {
            self.engine.clear_owner_quotas().await?;
            self.log_separately(LogOp::EnableUserGroupQuota).await;
        }
        self.store(&setting).await?;
        if setting != *old {
            self.lifecycle.publish_setting(self.context.setting());
        }
        if counts_owners {
            self.count_owners().await?;
        }
        Ok(setting)
    }

    async fn store(&self, setting: &Setting) -> Result<()> {
        // Other clients write whole seconds here.
        let now = Timestamp::from_secs(Timestamp::now().sec);
        let dir = |mode| Attr::new(FileKind::Dir, mode, 0, 0, Ino::ROOT, now);
        let trash = setting.has_trash().then(|| dir(0o555));
        self.engine.store_setting(&setting.encode()?, &dir(0o777), trash.as_ref()).await?;
        self.context.put_setting(setting.clone());
        Ok(())
    }

    /// Fails if directory quotas exist: they depend on dir stats.
    async fn check_quotas_kept(&self, old: &Setting, new: &Setting) -> Result<()> {
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
            "dir stats of volume {} cannot be disabled: {limited} directories have a quota",
            old.name
        )))
    }
}

/// Fails if a field changes that stored data depends on.
fn check_frozen_fields(old: &Setting, new: &Setting) -> Result<()> {
    let fields = [
        ("name", old.name.clone(), new.name.clone()),
        ("block size", old.block_size.to_string(), new.block_size.to_string()),
        ("compression", old.compression.clone(), new.compression.clone()),
        ("shards", old.shards.to_string(), new.shards.to_string()),
        ("hash prefix", old.hash_prefix.to_string(), new.hash_prefix.to_string()),
        ("metadata version", old.meta_version.to_string(), new.meta_version.to_string()),
    ];
    match fields.into_iter().find(|(_, old, new)| old != new) {
        None => Ok(()),
        Some((field, from, to)) => Err(Error::Refused(format!(
            "the {field} of volume {} cannot be changed from {from:?} to {to:?}",
            old.name
        ))),
    }
}

/// Fails for changes that other clients would not follow.
fn check_not_backward(old: &Setting, new: &Setting) -> Result<()> {
    if old.enable_acl && !new.enable_acl {
        return Err(Error::Refused(format!("ACLs of volume {} cannot be disabled", old.name)));
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

/// Keeps the UUID: objects and caches are named by it, and the secrets are encrypted with it.
fn keep_uuid(old: &Setting, new: &mut Setting) -> Result<()> {
    if new.uuid != old.uuid {
        new.decrypt()?;
        new.uuid.clone_from(&old.uuid);
        new.encrypt()?;
    }
    Ok(())
}

/// Checks the client version limits: one that does not parse would exclude every client.
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
