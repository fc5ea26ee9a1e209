//! What `.config` shows: how this client was started, in the Go client's words, for its tools.
//!
//! Durations are in nanoseconds, sizes in bytes, and secrets read `removed`.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::MountArgs;
use crate::meta::Meta;
use crate::meta::record::Setting;
use crate::meta::record::version::CLIENT_VERSION;
use crate::vfs::Squash;

/// A umask that nobody set.
const NO_UMASK: u16 = 0xFFFF;
/// How often the Go client tells the store about the sizes of directories.
const DIR_STATS: Duration = Duration::from_secs(1);
/// How long the Go client lets a request take.
const REQUEST: Duration = Duration::from_mins(15);

impl MountArgs {
    /// The text of `.config`, once the session has its id and metrics have their address.
    pub fn shown(
        &self,
        meta: &Meta,
        point: &str,
        metrics: Option<String>,
    ) -> anyhow::Result<Value> {
        let setting = meta.context().setting();
        let mut all = Map::new();
        let mut put = |name: &str, value: Value| drop(all.insert(name.to_owned(), value));
        put("Meta", self.shown_meta(meta, point));
        put("Format", self.shown_setting(&setting)?);
        put("Chunk", self.shown_data(&setting)?);
        let fuse = &self.fuse;
        put(
            "Security",
            json!({ "EnableCap": fuse.enable_cap, "EnableSELinux": fuse.enable_selinux }),
        );
        put("Port", metrics.map_or_else(|| json!({}), |at| json!({ "PrometheusAgent": at })));
        put("Version", CLIENT_VERSION.into());
        let cache = &self.meta_cache;
        put("AttrTimeout", nanos(cache.attr_cache));
        put("DirEntryTimeout", nanos(cache.dir_entry_cache));
        put("NegEntryTimeout", nanos(cache.negative_entry_cache));
        put("EntryTimeout", nanos(cache.entry_cache));
        put("ReaddirCache", cache.readdir_cache.into());
        // Never: the Go client's tools must not believe that there are backups.
        put("BackupMeta", 0.into());
        put("BackupSkipTrash", self.meta.backup_skip_trash.into());
        put("PrefixInternal", fuse.prefix_internal.into());
        put("HideInternal", fuse.hide_internal.into());
        for (name, squash) in [("RootSquash", &fuse.root_squash), ("AllSquash", &fuse.all_squash)] {
            if let Some(Squash { uid, gid }) = squash.as_ref().map(super::squash::Said::squash) {
                put(name, json!({ "Uid": uid, "Gid": gid }));
            }
        }
        if fuse.checks_permissions() {
            put("NonDefaultPermission", true.into());
        }
        put("UMask", fuse.umask.unwrap_or(NO_UMASK).into());
        put("Pid", std::process::id().into());
        put("PPid", nix::unistd::getppid().as_raw().into());
        put("FuseOpts", self.shown_fuse(&setting));
        put("Mountpoint", point.into());
        Ok(Value::Object(all))
    }

    fn shown_meta(&self, meta: &Meta, point: &str) -> Value {
        let options = &meta.context().options;
        let interfaces = &options.network_interfaces;
        json!({
            "Retries": self.storage.io_retries,
            "MaxDeletes": options.max_deletes,
            "SkipDirNlink": self.meta.skip_dir_nlink.unwrap_or(20),
            "CaseInsensi": false,
            "ReadOnly": options.read_only,
            "NoBGJob": options.no_background_jobs,
            "OpenCache": nanos(options.open_cache),
            "OpenCacheLimit": options.open_cache_limit,
            "Heartbeat": nanos(options.heartbeat),
            "MountPoint": point,
            "Subdir": options.subdir,
            "AtimeMode": self.meta.atime_mode.word,
            "DirStatFlushPeriod": nanos(DIR_STATS),
            "SkipDirMtime": nanos(options.skip_dir_mtime),
            "Sid": meta.context().sid().0,
            "SortDir": options.sort_dir,
            "FastStatfs": options.fast_statfs,
            "NetworkInterfaces": if interfaces.is_empty() { Value::Null } else { json!(interfaces) },
        })
    }

    /// The setting with what this client puts in its place.
    fn shown_setting(&self, setting: &Setting) -> anyhow::Result<Value> {
        let said = &self.storage;
        let mut setting = setting.without_secrets();
        if let Some(storage) = &said.storage {
            setting.storage.clone_from(storage);
        }
        if let Some(bucket) = &said.bucket {
            setting.bucket.clone_from(bucket);
        }
        setting.upload_limit = limit(said.upload_limit, setting.upload_limit);
        setting.download_limit = limit(said.download_limit, setting.download_limit);
        Ok(serde_json::from_str(&setting.display()?)?)
    }

    fn shown_data(&self, setting: &Setting) -> anyhow::Result<Value> {
        let (said, storage) = (&self.cache, &self.storage);
        let block = setting.block_bytes();
        let threshold = match said.writeback_threshold_size {
            0 if said.writeback => block + 1,
            size => size,
        };
        let bytes = |mbps: i64| mbps.saturating_mul(1_000_000 / 8);
        let late = said.writeback;
        let hours = said.upload_hours.as_ref().filter(|_| late).map_or("", |(_, word)| word);
        let cached = said.cache_size > 0;
        Ok(json!({
            "CacheDir": self.shown_dirs(setting)?,
            "CacheMode": said.cache_mode,
            "CacheSize": said.cache_size,
            "CacheItems": said.cache_items,
            "CacheChecksum": said.verify_cache_checksum.1,
            "CacheEviction": said.cache_eviction.1,
            "CacheScanInterval": nanos(said.cache_scan_interval),
            "CacheExpire": nanos(said.cache_expire),
            "OSCache": true,
            "FreeSpace": said.free_space_ratio,
            "AutoCreate": true,
            "Compress": setting.compression,
            "MaxUpload": storage.max_uploads,
            "MaxDownload": storage.max_downloads,
            "MaxStageWrite": storage.max_stage_write,
            "MaxRetries": storage.io_retries,
            "UploadLimit": bytes(limit(storage.upload_limit, setting.upload_limit)),
            "DownloadLimit": bytes(limit(storage.download_limit, setting.download_limit)),
            "Writeback": said.writeback,
            "WritebackThresholdSize": threshold,
            "UploadDelay": nanos(if late { said.upload_delay } else { Duration::ZERO }),
            "UploadHours": hours,
            "HashPrefix": setting.hash_prefix,
            "BlockSize": block,
            "GetTimeout": nanos(storage.get_timeout),
            "PutTimeout": nanos(storage.put_timeout),
            "CacheFullBlock": !said.cache_partial_only,
            "CacheLargeWrite": said.cache_large_write,
            "BufferSize": said.buffer(),
            "Readahead": said.max_readahead.unwrap_or(8 * block),
            "Prefetch": if cached { said.prefetch } else { 0 },
        }))
    }

    /// The directories of this volume in the cache.
    fn shown_dirs(&self, setting: &Setting) -> anyhow::Result<String> {
        if self.cache.is_in_memory() || self.cache.cache_size == 0 {
            return Ok("memory".to_owned());
        }
        let dirs = self.cache.dirs()?;
        let dirs: Vec<String> =
            dirs.split(':').map(|dir| format!("{dir}/{}", setting.uuid)).collect();
        Ok(dirs.join(":"))
    }

    fn shown_fuse(&self, setting: &Setting) -> Value {
        let read_only = self.is_read_only();
        let mount = self.fuse.mount(setting, read_only, self.general.force);
        let wishes = self.fuse.wishes(setting);
        let mut options = mount.more.clone();
        options.extend(read_only.then(|| "ro".to_owned()));
        options.extend(mount.default_permissions.then(|| "default_permissions".to_owned()));
        let mut shown = json!({
            "AllowOther": mount.allow_other,
            "Options": options,
            "MaxBackground": wishes.max_background,
            "MaxWrite": wishes.max_io,
            "MaxReadAhead": wishes.max_readahead,
            "IgnoreSecurityLabels": false,
            "RememberInodes": false,
            "FsName": mount.source,
            "Name": "juicefs",
            "SingleThreaded": false,
            "DisableXAttrs": !self.fuse.enable_xattr && !setting.enable_acl,
            "Debug": self.fuse.options.debug,
            "EnableLocks": true,
            "EnableSymlinkCaching": true,
            "ExplicitDataCacheControl": false,
            "DirectMount": true,
            "DirectMountFlags": 0,
            "EnableAcl": setting.enable_acl,
            "EnableReadDirPlusAuto": true,
            "EnableWriteback": wishes.writeback_cache,
            "EnableIoctl": self.fuse.enable_ioctl,
            "DontUmask": setting.enable_acl,
            "OtherCaps": 0,
            "NoAllocForRead": false,
            "Timeout": nanos(REQUEST),
        });
        // Left out when false, there.
        if !self.fuse.enable_ioctl
            && let Some(shown) = shown.as_object_mut()
        {
            shown.remove("EnableIoctl");
        }
        shown
    }
}

/// What this client was told, or what the volume says.
fn limit(said: Option<i64>, stored: i64) -> i64 {
    said.filter(|mbps| *mbps > 0).unwrap_or(stored)
}

fn nanos(duration: Duration) -> Value {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).into()
}
