//! Options about the mount itself: what the kernel and its users see.

use anyhow::{Context, bail};
use clap::Args;

use super::Warnings;
use super::kernel_options::KernelOptions;
use super::meta::MetaCacheArgs;
use super::squash::{self, SquashIds};
use crate::fuse::{InitOptions, MountOptions};
use crate::meta::record::Setting;
use crate::options::sizes::parse_plain_bytes;
use crate::vfs::{ContentOptions, VfsOptions};

/// The smallest request size that the kernel accepts.
const MIN_IO: u64 = 4 << 10;
/// The largest request size that the kernel accepts.
const MAX_IO: u64 = 1 << 20;
/// If set, the kernel is taken for one that cannot send requests again, as before Linux 6.9.
const NO_RESEND_VARIABLE: &str = "JFS_NO_RESEND";

#[derive(Debug, Args)]
#[command(next_help_heading = "FUSE")]
pub struct FuseArgs {
    /// Serve extended attributes; a volume with ACLs always does
    #[arg(long)]
    pub enable_xattr: bool,
    /// Serve the extended attribute security.capability
    #[arg(long)]
    pub enable_cap: bool,
    /// Serve the extended attribute security.selinux
    #[arg(long)]
    pub enable_selinux: bool,
    /// Serve file flags (chattr, lsattr)
    #[arg(long)]
    pub enable_ioctl: bool,
    /// Map root to this user, UID or UID:GID; nobody if it is empty
    #[arg(long, value_name = "UID[:GID]", value_parser = squash::parse)]
    pub root_squash: Option<SquashIds>,
    /// Map all users to this one, UID or UID:GID; permissions are then checked here, not in the kernel
    #[arg(long, value_name = "UID[:GID]", value_parser = squash::parse)]
    pub all_squash: Option<SquashIds>,
    /// Prefix the names of the virtual files with `.jfs`
    #[arg(long)]
    pub prefix_internal: bool,
    /// Leave the virtual files (.accesslog, .stats, ...) out of listings
    #[arg(long)]
    pub hide_internal: bool,
    /// Check permissions here, not in the kernel
    #[arg(long, hide = true)]
    pub non_default_permission: bool,
    /// Maximum data in one request of the kernel, in bytes unless a unit is given
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = parse_plain_bytes)]
    pub max_fuse_io: u64,
    /// Umask of new files in octal, instead of the caller's
    #[arg(long, value_name = "MASK", value_parser = parse_umask)]
    pub umask: Option<u16>,
    /// Options of the mount, separated by commas, as in mount(8)
    #[arg(
        short,
        value_name = "OPTIONS",
        default_value = "",
        hide_default_value = true,
        value_parser = KernelOptions::parse,
        help = "Options of the mount, separated by commas: allow_other, ro, debug, writeback_cache, async_dio, noatime, ..."
    )]
    pub options: KernelOptions,
}

impl FuseArgs {
    pub fn check(&self, warnings: &mut Warnings) -> anyhow::Result<()> {
        // Without `..`, so that a new option is not forgotten here.
        let Self {
            enable_xattr: _,
            enable_cap: _,
            enable_selinux: _,
            enable_ioctl: _,
            root_squash,
            all_squash,
            prefix_internal: _,
            hide_internal: _,
            non_default_permission,
            max_fuse_io,
            umask: _,
            options,
        } = self;
        if root_squash.is_some() && all_squash.is_some() {
            bail!("--root-squash and --all-squash exclude each other");
        }
        if options.default_permissions {
            for (option, is_given) in [
                ("--non-default-permission", *non_default_permission),
                ("--all-squash", all_squash.is_some()),
            ] {
                if is_given {
                    bail!("-o default_permissions and {option} exclude each other");
                }
            }
        }
        if *max_fuse_io != self.io() {
            let io = self.io() >> 10;
            warnings.add(format!("--max-fuse-io becomes {io}K: the kernel accepts 4K to 1024K"));
        }
        for squash in [root_squash, all_squash].into_iter().flatten() {
            squash.check(warnings);
        }
        options.check(warnings);
        Ok(())
    }

    /// Returns what to request from the kernel.
    pub fn init_options(&self, setting: &Setting) -> InitOptions {
        InitOptions {
            max_io: u32::try_from(self.io()).unwrap_or(u32::MAX),
            writeback_cache: self.options.writeback_cache,
            async_dio: self.options.async_dio,
            posix_acl: setting.enable_acl,
            resend: std::env::var_os(NO_RESEND_VARIABLE).is_none_or(|value| value.is_empty()),
            ..InitOptions::default()
        }
    }

    /// Returns the options for the mount call.
    pub fn mount(&self, setting: &Setting, read_only: bool, on_top: bool) -> MountOptions {
        let defaults = MountOptions::new(&setting.name);
        let io = u32::try_from(self.io()).unwrap_or(u32::MAX);
        MountOptions {
            source: self.options.source.clone().unwrap_or(defaults.source),
            read_only,
            default_permissions: !self.checks_permissions(),
            allow_other: defaults.allow_other || self.options.allow_other,
            max_read: self.options.max_read.map_or(io, |given| given.min(io)),
            more: self.options.more.clone(),
            method: None,
            on_top,
        }
    }

    /// Returns the options of the VFS.
    pub fn vfs(&self, cache: &MetaCacheArgs, max_readahead: Option<u64>) -> VfsOptions {
        VfsOptions {
            attr_lifetime: cache.attr_cache,
            entry_lifetime: cache.entry_cache,
            dir_entry_lifetime: cache.dir_entry_cache,
            negative_lifetime: cache.negative_entry_cache,
            readdir_cache: cache.readdir_cache,
            hide_internal: self.hide_internal,
            prefix_internal: self.prefix_internal,
            root_squash: self.root_squash.as_ref().map(SquashIds::squash),
            all_squash: self.all_squash.as_ref().map(SquashIds::squash),
            umask: self.umask,
            check_permissions: self.checks_permissions(),
            xattr: self.enable_xattr,
            capabilities: self.enable_cap,
            selinux: self.enable_selinux,
            ioctl: self.enable_ioctl,
            writeback_cache: self.options.writeback_cache,
            content: ContentOptions { max_readahead, floor: 0 },
        }
    }

    /// Returns whether permissions are checked here, not in the kernel.
    pub fn checks_permissions(&self) -> bool {
        self.non_default_permission || self.all_squash.is_some()
    }

    fn io(&self) -> u64 {
        self.max_fuse_io.clamp(MIN_IO, MAX_IO)
    }
}

fn parse_umask(text: &str) -> anyhow::Result<u16> {
    let mask = u16::from_str_radix(text, 8).context("not an octal number")?;
    if mask > 0o777 {
        bail!("not a umask: more than 0777");
    }
    Ok(mask)
}
