//! Mounting by mount(2), as root.

use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::mount::MsFlags;
use nix::unistd::{getegid, geteuid};

use super::{MountOptions, SUBTYPE, errors, joined, kernel_options};
use crate::error::{Error, Result};

const DEVICE: &str = "/dev/fuse";

pub fn mount(point: &Path, options: &MountOptions) -> Result<OwnedFd> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_CLOEXEC.bits())
        .open(DEVICE)
        .map_err(|error| errors::device(&error))?;
    let (mut flags, more) = split(&options.more)?;
    flags.set(MsFlags::MS_RDONLY, options.read_only);
    let mut list = vec![
        format!("fd={}", device.as_raw_fd()).into(),
        "rootmode=40000".into(),
        format!("user_id={}", geteuid()).into(),
        format!("group_id={}", getegid()).into(),
    ];
    list.extend(kernel_options(options));
    list.extend(more.into_iter().map(Into::into));
    let kind = format!("fuse.{SUBTYPE}");
    let list = joined(&list);
    nix::mount::mount(
        Some(options.source.as_str()),
        point,
        Some(kind.as_str()),
        flags,
        Some(list.as_os_str()),
    )
    .map_err(|errno| errors::mount(point, errno, &list))?;
    Ok(device.into())
}

/// Splits mount(8) options into flags of mount(2) and options that the kernel reads as text.
fn split(options: &[String]) -> Result<(MsFlags, Vec<&str>)> {
    let mut flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let mut text = Vec::new();
    for option in options {
        match option.as_str() {
            "rw" | "defaults" | "async" | "relatime" => {}
            "ro" => flags.insert(MsFlags::MS_RDONLY),
            "suid" => flags.remove(MsFlags::MS_NOSUID),
            "nosuid" => flags.insert(MsFlags::MS_NOSUID),
            "dev" => flags.remove(MsFlags::MS_NODEV),
            "nodev" => flags.insert(MsFlags::MS_NODEV),
            "exec" => flags.remove(MsFlags::MS_NOEXEC),
            "noexec" => flags.insert(MsFlags::MS_NOEXEC),
            "sync" => flags.insert(MsFlags::MS_SYNCHRONOUS),
            "dirsync" => flags.insert(MsFlags::MS_DIRSYNC),
            "noatime" => flags.insert(MsFlags::MS_NOATIME),
            "nodiratime" => flags.insert(MsFlags::MS_NODIRATIME),
            "strictatime" => flags.insert(MsFlags::MS_STRICTATIME),
            other if is_text(other) => text.push(other),
            other => return Err(Error::bad_input(format!("unknown mount option {other}"))),
        }
    }
    Ok((flags, text))
}

/// Whether an option is a security label; a FUSE mount accepts no other text from the user.
fn is_text(option: &str) -> bool {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    matches!(name, "context" | "fscontext" | "defcontext" | "rootcontext") && option.contains('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(options: &[&str]) -> Vec<String> {
        options.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn setuid_and_devices_are_off_unless_asked_for() {
        let (flags, text) = split(&[]).unwrap();
        assert_eq!(flags, MsFlags::MS_NOSUID | MsFlags::MS_NODEV);
        assert!(text.is_empty());
        let options = all(&["suid", "dev", "noexec", "context=a:b"]);
        let (flags, text) = split(&options).unwrap();
        assert_eq!(flags, MsFlags::MS_NOEXEC);
        assert_eq!(text, ["context=a:b"]);
    }

    #[test]
    fn an_unknown_option_is_refused_by_name() {
        let refused = split(&all(&["fd=3"])).unwrap_err();
        assert!(refused.to_string().contains("fd=3"), "{refused}");
    }
}
