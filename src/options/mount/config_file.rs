//! The text of the virtual file `.config`: how this client was started, in the Go client's words, for
//! its tools.
//!
//! Durations are in nanoseconds, sizes in bytes, and secrets read `removed`. Every group of options is
//! taken apart field by field, so that a new option does not compile before it is added here: as a
//! field of the file, or as `_` if the Go client shows none for it.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::meta::BACKUP_INTERVAL;
use super::{
    CacheArgs, FuseArgs, KernelOptions, MetaArgs, MetaCacheArgs, MetricsArgs, MountArgs,
    ProcessArgs, StorageArgs,
};
use crate::meta::Meta;
use crate::meta::record::Setting;
use crate::meta::record::version::CLIENT_VERSION;
use crate::vfs::{ContentOptions, Squash};

/// The umask field if `--umask` is not given.
const NO_UMASK: u16 = 0xFFFF;
/// How often the Go client flushes the usage of directories.
const DIR_STAT_FLUSH_PERIOD: Duration = Duration::from_secs(1);
/// How long the Go client lets a FUSE request take.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(15);

impl MountArgs {
    /// Returns the content of `.config`. The session must have its id; `metrics` is the address that
    /// metrics are served at.
    pub fn config_file(
        &self,
        meta: &Meta,
        point: &str,
        metrics: Option<String>,
    ) -> anyhow::Result<Value> {
        let setting = meta.context().setting();
        let Self {
            process,
            fuse,
            meta: meta_args,
            meta_cache,
            storage: _,
            cache: _,
            metrics: metrics_args,
        } = self;
        // Options of the process and of metrics are not shown, except for the address in use.
        let ProcessArgs {
            background: _,
            foreground: _,
            no_syslog: _,
            log: _,
            force: _,
            update_fstab: _,
            disable_transparent_hugepage: _,
            data_dir: _,
        } = process;
        let MetricsArgs { metrics: _, custom_labels: _, consul: _, no_usage_report: _ } =
            metrics_args;
        let mut all = Map::new();
        let mut put = |name: &str, value: Value| drop(all.insert(name.to_owned(), value));
        put("Meta", self.meta_section(meta, point));
        put("Format", self.format_section(&setting)?);
        put("Chunk", self.chunk_section(&setting)?);
        put(
            "Security",
            json!({ "EnableCap": fuse.enable_cap, "EnableSELinux": fuse.enable_selinux }),
        );
        put("Port", metrics.map_or_else(|| json!({}), |at| json!({ "PrometheusAgent": at })));
        put("Version", CLIENT_VERSION.into());
        // The open cache is in the section of the metadata client.
        let MetaCacheArgs {
            attr_cache,
            entry_cache,
            dir_entry_cache,
            negative_entry_cache,
            readdir_cache,
            open_cache: _,
            open_cache_limit: _,
        } = meta_cache;
        put("AttrTimeout", nanos(*attr_cache));
        put("DirEntryTimeout", nanos(*dir_entry_cache));
        put("NegEntryTimeout", nanos(*negative_entry_cache));
        put("EntryTimeout", nanos(*entry_cache));
        put("ReaddirCache", (*readdir_cache).into());
        put("BackupMeta", nanos(meta_args.backup_meta.unwrap_or(BACKUP_INTERVAL)));
        put("BackupSkipTrash", meta_args.backup_skip_trash.into());
        put("PrefixInternal", fuse.prefix_internal.into());
        put("HideInternal", fuse.hide_internal.into());
        for (name, squash) in [("RootSquash", &fuse.root_squash), ("AllSquash", &fuse.all_squash)] {
            if let Some(Squash { uid, gid }) = squash.as_ref().map(super::squash::SquashIds::squash)
            {
                put(name, json!({ "Uid": uid, "Gid": gid }));
            }
        }
        if fuse.checks_permissions() {
            put("NonDefaultPermission", true.into());
        }
        put("UMask", fuse.umask.unwrap_or(NO_UMASK).into());
        put("Pid", std::process::id().into());
        put("PPid", nix::unistd::getppid().as_raw().into());
        put("FuseOpts", self.fuse_section(&setting));
        put("Mountpoint", point.into());
        Ok(Value::Object(all))
    }

    fn meta_section(&self, meta: &Meta, point: &str) -> Value {
        // Most are shown as the session has them, within their bounds.
        let MetaArgs {
            subdir: _,
            backup_meta: _,
            backup_skip_trash: _,
            heartbeat: _,
            read_only: _,
            no_bgjob: _,
            atime_mode,
            skip_dir_nlink,
            skip_dir_mtime: _,
            sort_dir: _,
            fast_statfs: _,
            network_interfaces: _,
        } = &self.meta;
        let options = &meta.context().options;
        let interfaces = &options.network_interfaces;
        json!({
            "Retries": self.storage.io_retries,
            "MaxDeletes": options.max_deletes,
            "SkipDirNlink": skip_dir_nlink.unwrap_or(20),
            "CaseInsensi": false,
            "ReadOnly": options.read_only,
            "NoBGJob": options.no_background_jobs,
            "OpenCache": nanos(options.open_cache),
            "OpenCacheLimit": options.open_cache_limit,
            "Heartbeat": nanos(options.heartbeat),
            "MountPoint": point,
            "Subdir": options.subdir,
            "AtimeMode": atime_mode.word,
            "DirStatFlushPeriod": nanos(DIR_STAT_FLUSH_PERIOD),
            "SkipDirMtime": nanos(options.skip_dir_mtime),
            "Sid": meta.context().sid().0,
            "SortDir": options.sort_dir,
            "FastStatfs": options.fast_statfs,
            "NetworkInterfaces": if interfaces.is_empty() { Value::Null } else { json!(interfaces) },
        })
    }

    /// Returns the setting with what this client overrides.
    fn format_section(&self, setting: &Setting) -> anyhow::Result<Value> {
        let storage = &self.storage;
        let mut setting = setting.without_secrets();
        if let Some(kind) = &storage.storage {
            setting.storage.clone_from(kind);
        }
        if let Some(bucket) = &storage.bucket {
            setting.bucket.clone_from(bucket);
        }
        setting.upload_limit = limit(storage.upload_limit, setting.upload_limit);
        setting.download_limit = limit(storage.download_limit, setting.download_limit);
        Ok(serde_json::from_str(&setting.display()?)?)
    }

    fn chunk_section(&self, setting: &Setting) -> anyhow::Result<Value> {
        let CacheArgs {
            buffer_size: _,
            max_readahead,
            prefetch,
            writeback,
            writeback_threshold_size,
            upload_delay,
            upload_hours,
            cache_dir: _,
            cache_mode,
            cache_size,
            cache_items,
            free_space_ratio,
            cache_partial_only,
            cache_large_write,
            verify_cache_checksum,
            cache_eviction,
            cache_scan_interval,
            cache_expire,
            total_cache_size: _,
        } = &self.cache;
        let StorageArgs {
            storage: _,
            bucket: _,
            storage_class: _,
            tag: _,
            get_timeout,
            put_timeout,
            io_retries,
            max_uploads,
            max_downloads,
            max_stage_write,
            max_deletes: _,
            upload_limit,
            download_limit,
            verify_reads: _,
            check_storage: _,
        } = &self.storage;
        let block = setting.block_bytes();
        let threshold = match *writeback_threshold_size {
            0 if *writeback => block + 1,
            size => size,
        };
        let bytes = |mbps: i64| mbps.saturating_mul(1_000_000 / 8);
        let upload_delay = if *writeback { *upload_delay } else { Duration::ZERO };
        let upload_hours = upload_hours.as_ref().filter(|_| *writeback);
        Ok(json!({
            "CacheDir": self.cache_dirs(setting)?,
            "CacheMode": cache_mode,
            "CacheSize": cache_size,
            "CacheItems": cache_items,
            "CacheChecksum": verify_cache_checksum.text,
            "CacheEviction": cache_eviction.text,
            "CacheScanInterval": nanos(*cache_scan_interval),
            "CacheExpire": nanos(*cache_expire),
            "OSCache": true,
            "FreeSpace": free_space_ratio,
            "AutoCreate": true,
            "Compress": setting.compression,
            "MaxUpload": max_uploads,
            "MaxDownload": max_downloads,
            "MaxStageWrite": max_stage_write,
            "MaxRetries": io_retries,
            "UploadLimit": bytes(limit(*upload_limit, setting.upload_limit)),
            "DownloadLimit": bytes(limit(*download_limit, setting.download_limit)),
            "Writeback": writeback,
            "WritebackThresholdSize": threshold,
            "UploadDelay": nanos(upload_delay),
            "UploadHours": upload_hours.map_or("", |hours| &hours.text),
            "HashPrefix": setting.hash_prefix,
            "BlockSize": block,
            "GetTimeout": nanos(*get_timeout),
            "PutTimeout": nanos(*put_timeout),
            "CacheFullBlock": !cache_partial_only,
            "CacheLargeWrite": cache_large_write,
            "BufferSize": self.cache.buffer(),
            "Readahead": max_readahead.unwrap_or(ContentOptions::MAX_READAHEAD),
            "Prefetch": if *cache_size > 0 { *prefetch } else { 0 },
        }))
    }

    /// Returns the directories of this volume in the cache.
    fn cache_dirs(&self, setting: &Setting) -> anyhow::Result<String> {
        if self.cache.is_in_memory() || self.cache.cache_size == 0 {
            return Ok("memory".to_owned());
        }
        let dirs = self.cache.dirs()?;
        let dirs: Vec<String> =
            dirs.split(':').map(|dir| format!("{dir}/{}", setting.uuid)).collect();
        Ok(dirs.join(":"))
    }

    fn fuse_section(&self, setting: &Setting) -> Value {
        // Squashing, permissions, the umask and virtual files are not in this section, and most `-o`
        // options are shown as they are passed to the kernel.
        let FuseArgs {
            enable_xattr,
            enable_cap: _,
            enable_selinux: _,
            enable_ioctl,
            root_squash: _,
            all_squash: _,
            prefix_internal: _,
            hide_internal: _,
            non_default_permission: _,
            max_fuse_io: _,
            umask: _,
            options,
        } = &self.fuse;
        let KernelOptions {
            allow_other: _,
            allow_root: _,
            read_only: _,
            debug,
            writeback_cache: _,
            async_dio: _,
            default_permissions: _,
            max_read: _,
            source: _,
            more: _,
        } = options;
        let read_only = self.is_read_only();
        let mount = self.fuse.mount(setting, read_only, self.process.force);
        let init = self.fuse.init_options(setting);
        let mut mount_options = mount.more.clone();
        mount_options.extend(read_only.then(|| "ro".to_owned()));
        mount_options.extend(mount.default_permissions.then(|| "default_permissions".to_owned()));
        let mut shown = json!({
            "AllowOther": mount.allow_other,
            "Options": mount_options,
            "MaxBackground": init.max_background,
            "MaxWrite": init.max_io,
            "MaxReadAhead": init.max_readahead,
            "IgnoreSecurityLabels": false,
            "RememberInodes": false,
            "FsName": mount.source,
            "Name": "juicefs",
            "SingleThreaded": false,
            "DisableXAttrs": !enable_xattr && !setting.enable_acl,
            "Debug": debug,
            "EnableLocks": true,
            "EnableSymlinkCaching": true,
            "ExplicitDataCacheControl": false,
            "DirectMount": true,
            "DirectMountFlags": 0,
            "EnableAcl": setting.enable_acl,
            "EnableReadDirPlusAuto": true,
            "EnableWriteback": init.writeback_cache,
            "EnableIoctl": enable_ioctl,
            "DontUmask": setting.enable_acl,
            "OtherCaps": 0,
            "NoAllocForRead": false,
            "Timeout": nanos(REQUEST_TIMEOUT),
        });
        // The Go client leaves it out if it is false.
        if !enable_ioctl && let Some(shown) = shown.as_object_mut() {
            shown.remove("EnableIoctl");
        }
        shown
    }
}

/// Returns the limit of this client, or else that of the volume.
fn limit(given: Option<i64>, stored: i64) -> i64 {
    given.filter(|mbps| *mbps > 0).unwrap_or(stored)
}

fn nanos(duration: Duration) -> Value {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).into()
}
