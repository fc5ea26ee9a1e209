//! Every option of `juicefs mount` is accepted, with its syntax and its default, and has its effect.

use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};
use serde_json::Value;
use uuid::Uuid;

use super::*;
use crate::chunk::{Checksum, Eviction, Verify, Writeback};
use crate::cli::{Cli, Command};
use crate::meta::record::Setting;
use crate::meta::{AtimeMode, Meta};
use crate::vfs::Squash;
use crate::volume::storage::Overrides;

const SECOND: Duration = Duration::from_secs(1);

/// Options of the Go client's `mount`, each with a value if it takes one.
const GO_OPTIONS: &[(&str, &str)] = &[
    ("background", ""),
    ("no-syslog", ""),
    ("log", "/tmp/log"),
    ("force", ""),
    ("hide-internal", ""),
    ("update-fstab", ""),
    ("disable-transparent-hugepage", ""),
    ("enable-xattr", ""),
    ("enable-cap", ""),
    ("enable-selinux", ""),
    ("enable-ioctl", ""),
    ("root-squash", "1000:1000"),
    ("all-squash", "1000"),
    ("prefix-internal", ""),
    ("non-default-permission", ""),
    ("max-fuse-io", "256K"),
    ("umask", "022"),
    ("subdir", "/a/b"),
    ("backup-meta", "0"),
    ("backup-skip-trash", ""),
    ("heartbeat", "1.5"),
    ("read-only", ""),
    ("no-bgjob", ""),
    ("atime-mode", "relatime"),
    ("skip-dir-nlink", "5"),
    ("skip-dir-mtime", "2s"),
    ("sort-dir", ""),
    ("fast-statfs", ""),
    ("network-interfaces", "eth0, en0"),
    ("attr-cache", "2"),
    ("entry-cache", "3.5"),
    ("dir-entry-cache", "1m"),
    ("negative-entry-cache", "100ms"),
    ("readdir-cache", ""),
    ("open-cache", "2d3h"),
    ("open-cache-limit", "7"),
    ("storage", "S3"),
    ("bucket", "http://host/bucket"),
    ("storage-class", "COLD"),
    ("tag", "a=b"),
    ("get-timeout", "5"),
    ("put-timeout", "6"),
    ("io-retries", "3"),
    ("max-uploads", "4"),
    ("max-downloads", "5"),
    ("max-stage-write", "6"),
    ("max-deletes", "7"),
    ("upload-limit", "100"),
    ("download-limit", "1G"),
    ("verify-reads", "all"),
    ("check-storage", ""),
    ("buffer-size", "1024"),
    ("max-readahead", "64M"),
    ("prefetch", "3"),
    ("writeback", ""),
    ("writeback-threshold-size", "128K"),
    ("upload-delay", "1h"),
    ("upload-hours", "22-6"),
    ("cache-dir", "/b:/a"),
    ("cache-mode", "0640"),
    ("cache-size", "2048"),
    ("cache-items", "9"),
    ("free-space-ratio", "0.25"),
    ("cache-partial-only", ""),
    ("cache-large-write", ""),
    ("verify-cache-checksum", "full"),
    ("cache-eviction", "lru"),
    ("cache-scan-interval", "2h"),
    ("cache-expire", "3d"),
    ("metrics", "127.0.0.1:0"),
    ("custom-labels", "a:b;c:d"),
    ("consul", "127.0.0.1:8500"),
    ("no-usage-report", ""),
    ("verbose", ""),
    ("debug", ""),
    ("quiet", ""),
    ("trace", ""),
    ("log-level", "warn"),
    ("log-id", "x"),
    ("no-agent", ""),
    ("pyroscope", "http://host"),
    ("no-color", ""),
];

fn try_parse(options: &[&str]) -> Result<Mount, String> {
    let words = [&["jfs-mount", "mount", "redis://host/1", "/mnt/jfs"], options].concat();
    let matches = Cli::command().try_get_matches_from(words).map_err(|error| error.to_string())?;
    match Cli::from_arg_matches(&matches).map_err(|error| error.to_string())?.command {
        Command::Mount(mount) => Ok(*mount),
        _ => Err("not a mount".to_owned()),
    }
}

#[track_caller]
fn parse(options: &[&str]) -> Mount {
    try_parse(options).unwrap_or_else(|error| panic!("{options:?}: {error}"))
}

/// Returns the error for the options, from clap or from `check`.
#[track_caller]
fn refused(options: &[&str]) -> String {
    match try_parse(options) {
        Err(error) => error,
        Ok(mount) => {
            let error = mount.check().err();
            format!("{:#}", error.unwrap_or_else(|| panic!("{options:?} should be refused")))
        }
    }
}

fn setting() -> Setting {
    Setting::new("vol", Uuid::nil()).unwrap()
}

#[test]
fn every_option_of_the_go_client_is_known() {
    for (name, value) in GO_OPTIONS {
        let mut options = vec![format!("--{name}")];
        options.extend((!value.is_empty()).then(|| (*value).to_owned()));
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        parse(&options);
        if !value.is_empty() {
            parse(&[&format!("--{name}={value}")]);
            assert!(try_parse(&[&format!("--{name}")]).is_err(), "{name} without a value");
        }
    }
    parse(&["-d", "-v", "-o", "allow_other"]);
    parse(&["-f", "-q"]);
}

#[test]
fn the_last_of_repeated_options_wins() {
    let mount = parse(&["--cache-size", "1G", "--cache-size", "2G", "--writeback", "--writeback"]);
    assert_eq!(mount.args.cache.cache_size, 2 << 30);
}

#[test]
fn defaults_are_those_of_the_go_client() {
    let mount = parse(&[]);
    assert!(mount.check().unwrap().is_empty());
    let meta =
        mount.args.meta.options(&mount.args.meta_cache, "/mnt/jfs", 10, mount.args.is_read_only());
    let expected = crate::meta::Options {
        mount_point: "/mnt/jfs".to_owned(),
        ..crate::meta::Options::default()
    };
    assert_eq!(format!("{meta:?}"), format!("{expected:?}"));

    let data = mount.args.cache.data(&mount.args.storage, false);
    assert_eq!(data, crate::chunk::Options::default());
    assert_eq!(mount.args.cache.buffer(), 300 << 20);
    let cache = mount.args.cache.cache(&mount.args.storage).unwrap().unwrap();
    let expected = crate::chunk::CacheOptions { dirs: cache.dirs.clone(), ..Default::default() };
    assert_eq!(format!("{cache:?}"), format!("{expected:?}"));
    assert_eq!(cache.dirs.len(), 1);

    let vfs = mount.args.fuse.vfs(&mount.args.meta_cache, None);
    assert_eq!(format!("{vfs:?}"), format!("{:?}", crate::vfs::VfsOptions::default()));
    let init = mount.args.fuse.init_options(&setting());
    // Unlike the Go client: large requests are faster.
    assert_eq!((init.max_io, init.max_background), (1 << 20, 50));
    let kernel = mount.args.fuse.mount(&setting(), false, false);
    assert_eq!((kernel.source.as_str(), kernel.max_read), ("JuiceFS:vol", 1 << 20));
    assert!(kernel.default_permissions && !kernel.read_only && kernel.more.is_empty());

    let overrides = mount.args.storage.overrides(&setting(), Overrides::default()).unwrap();
    assert_eq!((overrides.retries, overrides.get_timeout), (Some(10), Some(60 * SECOND)));
    assert!(overrides.upload_limit.is_none() && overrides.bucket.is_none());
}

#[test]
fn metadata_options_reach_the_client() {
    let mount = parse(&[
        "--subdir=/a/b",
        "--heartbeat=30",
        "--no-bgjob",
        "--atime-mode=strictatime",
        "--skip-dir-mtime=2s",
        "--sort-dir",
        "--fast-statfs",
        "--network-interfaces=eth0, en0,",
        "--open-cache=2d3h",
        "--open-cache-limit=0",
    ]);
    let meta = mount.args.meta.options(&mount.args.meta_cache, "/mnt", 7, true);
    assert_eq!((meta.subdir.as_str(), meta.mount_point.as_str()), ("/a/b", "/mnt"));
    assert_eq!((meta.heartbeat, meta.skip_dir_mtime), (30 * SECOND, 2 * SECOND));
    assert_eq!((meta.open_cache, meta.open_cache_limit), (51 * 3600 * SECOND, 0));
    assert_eq!((meta.atime, meta.max_deletes), (AtimeMode::Strict, 7));
    assert!(meta.read_only && meta.no_background_jobs && meta.sort_dir && meta.fast_statfs);
    assert_eq!(meta.network_interfaces, ["eth0", "en0"]);
}

#[test]
fn a_mount_is_read_only_by_either_option() {
    for options in [&["--read-only"][..], &["-o", "ro"]] {
        let mount = parse(options);
        assert!(mount.args.is_read_only());
        assert!(mount.args.fuse.mount(&setting(), mount.args.is_read_only(), false).read_only);
    }
}

#[test]
fn cache_options_reach_the_chunk_store() {
    let mount = parse(&[
        "--buffer-size=1024",
        "--max-readahead=64",
        "--prefetch=3",
        "--writeback",
        "--writeback-threshold-size=128K",
        "--upload-delay=1h",
        "--upload-hours=22-6",
        "--cache-dir=/b:/a",
        "--cache-mode=0640",
        "--cache-size=2048",
        "--cache-items=9",
        "--free-space-ratio=0.25",
        "--cache-partial-only",
        "--cache-large-write",
        "--verify-cache-checksum=full",
        "--cache-eviction=lru",
        "--cache-scan-interval=2h",
        "--cache-expire=3d",
        "--max-uploads=4",
        "--max-downloads=5",
        "--max-stage-write=6",
        "--verify-reads=all",
    ]);
    mount.check().unwrap();
    let data = mount.args.cache.data(&mount.args.storage, true);
    let expected = crate::chunk::Options {
        max_uploads: 4,
        max_downloads: 5,
        prefetch: 3,
        cache_partial_only: true,
        cache_large_write: true,
        writeback: Some(Writeback {
            threshold: Some(128 << 10),
            delay: 3600 * SECOND,
            hours: Some("22-6".parse().unwrap()),
        }),
        verify: Verify::All,
        read_only: true,
    };
    assert_eq!(data, expected);
    let cache = mount.args.cache.cache(&mount.args.storage).unwrap().unwrap();
    assert_eq!(cache.dirs, [PathBuf::from("/a"), PathBuf::from("/b")]);
    assert_eq!((cache.size, cache.items, cache.mode), (2 << 30, 9, 0o640));
    assert_eq!((cache.eviction, cache.checksum), (Eviction::Lru, Checksum::Full));
    assert_eq!((cache.scan_interval, cache.expire), (7200 * SECOND, 3 * 86400 * SECOND));
    assert_eq!(cache.max_stage_write, 6);
    assert!((cache.free_ratio - 0.25).abs() < 1e-6);
    assert_eq!(mount.args.cache.buffer(), 1 << 30);
    let vfs = mount.args.fuse.vfs(&mount.args.meta_cache, mount.args.cache.max_readahead);
    assert_eq!(vfs.content.max_readahead, Some(64 << 20));
}

#[test]
fn a_cache_size_of_zero_disables_the_cache() {
    let mount = parse(&["--cache-size=0"]);
    assert!(mount.args.cache.cache(&mount.args.storage).unwrap().is_none());
    assert_eq!(mount.args.cache.data(&mount.args.storage, false).prefetch, 0);
}

#[test]
fn storage_options_override_the_setting() {
    let mount = parse(&[
        "--storage=S3",
        "--bucket=http://host/bucket",
        "--storage-class=COLD",
        "--tag=a=b",
        "--get-timeout=5",
        "--put-timeout=6s",
        "--io-retries=3",
        "--upload-limit=100",
        "--download-limit=1G",
    ]);
    let overrides = mount.args.storage.overrides(&setting(), Overrides::default()).unwrap();
    assert_eq!(overrides.storage.as_deref(), Some("s3"));
    assert_eq!(overrides.bucket.as_deref(), Some("http://host/bucket"));
    assert_eq!(
        (overrides.storage_class.as_deref(), overrides.tag.as_deref()),
        (Some("COLD"), Some("a=b"))
    );
    assert_eq!(
        (overrides.get_timeout, overrides.put_timeout),
        (Some(5 * SECOND), Some(6 * SECOND))
    );
    assert_eq!(
        (overrides.retries, overrides.upload_limit, overrides.download_limit),
        (Some(3), Some(100), Some(1000))
    );

    let relative = parse(&["--storage=file", "--bucket=data", "--upload-limit=0"]);
    let overrides = relative.args.storage.overrides(&setting(), Overrides::default()).unwrap();
    assert!(overrides.bucket.is_some_and(|dir| dir.starts_with('/') && dir.ends_with("/data/")));
    assert_eq!(overrides.upload_limit, None);
}

#[test]
fn fuse_options_reach_the_kernel_and_the_vfs() {
    let mount = parse(&[
        "--enable-xattr",
        "--enable-cap",
        "--enable-selinux",
        "--enable-ioctl",
        "--prefix-internal",
        "--hide-internal",
        "--max-fuse-io=256K",
        "--umask=022",
        "--root-squash=1000:2000",
        "--attr-cache=2",
        "--entry-cache=3.5",
        "--dir-entry-cache=1m",
        "--negative-entry-cache=100ms",
        "--readdir-cache",
        "-o=writeback_cache,async_dio,noatime,fsname=x,max_read=65536",
    ]);
    mount.check().unwrap();
    let vfs = mount.args.fuse.vfs(&mount.args.meta_cache, None);
    assert!(vfs.xattr && vfs.capabilities && vfs.selinux && vfs.ioctl && vfs.readdir_cache);
    assert!(vfs.prefix_internal && vfs.hide_internal && vfs.writeback_cache);
    assert_eq!((vfs.umask, vfs.check_permissions), (Some(0o22), false));
    assert_eq!(vfs.root_squash, Some(Squash { uid: 1000, gid: 2000 }));
    assert_eq!((vfs.attr_lifetime, vfs.entry_lifetime), (2 * SECOND, Duration::from_millis(3500)));
    assert_eq!(vfs.dir_entry_lifetime, 60 * SECOND);
    assert_eq!(vfs.negative_lifetime, Duration::from_millis(100));
    let init = mount.args.fuse.init_options(&Setting { enable_acl: true, ..setting() });
    assert_eq!(init.max_io, 256 << 10);
    assert!(init.writeback_cache && init.async_dio && init.posix_acl);
    let kernel = mount.args.fuse.mount(&setting(), false, true);
    assert_eq!((kernel.source.as_str(), kernel.max_read), ("x", 65536));
    assert_eq!(kernel.more, ["noatime"]);
    assert!(kernel.on_top);
}

#[test]
fn permissions_of_squashed_users_are_checked_by_the_client() {
    for options in [&["--all-squash=5:6"][..], &["--non-default-permission"]] {
        let mount = parse(options);
        assert!(mount.args.fuse.vfs(&mount.args.meta_cache, None).check_permissions);
        assert!(!mount.args.fuse.mount(&setting(), false, false).default_permissions);
    }
}

#[test]
fn values_out_of_bounds_are_clamped_with_a_warning() {
    let mount = parse(&["--heartbeat=0.1", "--buffer-size=1", "--max-fuse-io=8M"]);
    let warnings = mount.check().unwrap();
    for word in ["--heartbeat", "--buffer-size", "--max-fuse-io"] {
        assert!(warnings.has(word), "{word}");
    }
    assert_eq!(mount.args.meta.heartbeat(), SECOND);
    assert_eq!(mount.args.cache.buffer(), 32 << 20);
    assert_eq!(mount.args.fuse.init_options(&setting()).max_io, 1 << 20);
    assert_eq!(parse(&["--heartbeat=1h"]).args.meta.heartbeat(), 600 * SECOND);
    assert!(parse(&["--heartbeat=0"]).args.meta.heartbeat().is_zero());
}

#[test]
fn an_option_without_effect_has_a_warning() {
    for options in [
        &["--consul=127.0.0.1:8500"][..],
        &["--skip-dir-nlink=5"],
        &["--upload-delay=1h"],
        &["--upload-hours=1-2"],
    ] {
        let name = options[0].split('=').next().unwrap();
        let warnings = parse(options).check().unwrap();
        assert!(warnings.has(name) && warnings.has("no effect"), "{name}: {warnings:?}");
    }
    assert!(parse(&["--backup-meta=0", "--no-usage-report"]).check().unwrap().is_empty());
}

#[test]
fn backups_are_made_every_hour_unless_options_say_otherwise() {
    let backups = |options: &[&str]| {
        let mount = parse(options);
        mount.args.meta.backups(mount.args.is_read_only(), 1)
    };
    let (hourly, daily) = (backups(&[]).unwrap(), backups(&["--backup-meta=24h"]).unwrap());
    assert_eq!((hourly.interval, hourly.skip_trash), (3600 * SECOND, false));
    assert_eq!(daily.interval, 86_400 * SECOND);
    assert!(backups(&["--backup-skip-trash"]).unwrap().skip_trash);
    for options in ["--backup-meta=0", "--read-only", "-oro", "--no-bgjob"] {
        assert_eq!(backups(&[options]), None, "{options}");
    }
}

#[test]
fn wrong_options_are_refused_by_name() {
    for (options, words) in [
        (&["--colour"][..], &["--colour"][..]),
        (&["--cache-size=much"], &["--cache-size", "much"]),
        (&["--buffer-size=1X"], &["--buffer-size", "1X"]),
        (&["--attr-cache=soon"], &["--attr-cache", "soon"]),
        (&["--atime-mode=never"], &["--atime-mode", "never"]),
        (&["--cache-eviction=fifo"], &["--cache-eviction", "fifo"]),
        (&["--verify-cache-checksum=some"], &["--verify-cache-checksum"]),
        (&["--verify-reads=some"], &["--verify-reads"]),
        (&["--cache-mode=0999"], &["--cache-mode"]),
        (&["--cache-mode=0400"], &["--cache-mode"]),
        (&["--free-space-ratio=2"], &["--free-space-ratio"]),
        (&["--umask=9"], &["--umask"]),
        (&["--umask=7777"], &["--umask"]),
        (&["--upload-hours=5"], &["--upload-hours"]),
        (&["--root-squash=me"], &["--root-squash", "me"]),
        (&["--tag=x"], &["--tag"]),
        (&["--custom-labels=x"], &["--custom-labels", "x"]),
        (&["--metrics=nowhere"], &["--metrics", "nowhere"]),
        (&["--max-uploads=0"], &["--max-uploads"]),
        (&["--max-uploads=-1"], &["--max-uploads"]),
        (&["--get-timeout=0"], &["--get-timeout"]),
        (&["--backup-meta=1m"], &["--backup-meta"]),
        (&["-o", "colour"], &["-o", "colour"]),
        (&["--log-level=loud"], &["--log-level", "loud"]),
        (&["--writeback=maybe"], &["--writeback", "maybe"]),
        (&["-d", "-f"], &["--background", "--foreground"]),
        (&["-q", "-v"], &["--quiet", "--verbose"]),
        (&["--writeback", "--cache-size=0"], &["--writeback", "--cache-size"]),
        (&["--writeback", "--cache-dir=memory"], &["--writeback", "--cache-dir"]),
        (&["--cache-eviction=lru", "--cache-dir=memory"], &["--cache-eviction", "--cache-dir"]),
        (&["--root-squash=1", "--all-squash=1"], &["--root-squash", "--all-squash"]),
        (
            &["--all-squash=1", "-o", "default_permissions"],
            &["--all-squash", "default_permissions"],
        ),
        (&["--data-dir=/tmp/x"], &["--data-dir", "META-URL"]),
        (&["more"], &["META-URL"]),
    ] {
        let error = refused(options);
        for word in words {
            assert!(error.contains(word), "{options:?}: no {word} in {error}");
        }
    }
}

#[test]
fn custom_labels_are_added_to_metrics() {
    let mount = parse(&["--custom-labels=zone:a;rack:7"]);
    let registry = mount.args.metrics.registry("/mnt/jfs", "vol").unwrap();
    super::process_metrics::register(&registry).unwrap();
    let found = registry.gather();
    let labels: Vec<String> = found[0].get_metric()[0]
        .get_label()
        .iter()
        .map(|label| format!("{}={}", label.name(), label.value()))
        .collect();
    for label in ["mp=/mnt/jfs", "vol_name=vol", "zone=a", "rack=7"] {
        assert!(labels.iter().any(|found| found == label), "{label}: {labels:?}");
    }
    assert!(labels.iter().any(|label| label.starts_with("instance=")));
    assert!(labels.iter().any(|label| label.starts_with("juicefs_version=1.4")));
}

#[tokio::test]
async fn the_config_file_has_the_fields_of_the_go_client() {
    let url = format!("memkv://cli-{}", std::process::id());
    let mut setting = setting();
    setting.storage = "mem".to_owned();
    setting.bucket = "nowhere".to_owned();
    setting.secret_key = crate::secret::Secret::new("sesame");
    let mount = parse(&["--writeback", "--cache-dir=/b:/a", "--root-squash=5:6", "--attr-cache=2"]);
    let meta = Meta::attach(&url, crate::meta::Options::default()).await.unwrap();
    meta.init(setting, false).await.unwrap();
    meta.load().await.unwrap();
    let config =
        mount.args.config_file(&meta, "/mnt/jfs", Some("127.0.0.1:9567".to_owned())).unwrap();
    let names = |value: &Value| -> Vec<String> {
        value.as_object().unwrap().keys().map(ToString::to_string).collect()
    };
    let all = [
        "Meta",
        "Format",
        "Chunk",
        "Security",
        "Port",
        "Version",
        "AttrTimeout",
        "DirEntryTimeout",
        "NegEntryTimeout",
        "EntryTimeout",
        "ReaddirCache",
        "BackupMeta",
        "BackupSkipTrash",
        "PrefixInternal",
        "HideInternal",
        "RootSquash",
        "UMask",
        "Pid",
        "PPid",
        "FuseOpts",
        "Mountpoint",
    ];
    assert_eq!(names(&config), all);
    assert_eq!(config["AttrTimeout"], 2_000_000_000_u64);
    assert_eq!(config["Chunk"]["CacheDir"], format!("/b/{0}:/a/{0}", Uuid::nil()));
    assert_eq!(
        (&config["Chunk"]["Writeback"], &config["Chunk"]["BlockSize"]),
        (&true.into(), &(4 << 20).into())
    );
    assert_eq!(config["Chunk"]["WritebackThresholdSize"], (4 << 20) + 1);
    assert_eq!(
        (&config["Format"]["Name"], &config["Format"]["SecretKey"]),
        (&"vol".into(), &"removed".into())
    );
    assert_eq!(config["Port"]["PrometheusAgent"], "127.0.0.1:9567");
    assert_eq!((&config["UMask"], &config["RootSquash"]["Uid"]), (&65535.into(), &5.into()));
    assert!(!config.to_string().contains("sesame"));
    meta.close().await.unwrap();
}
