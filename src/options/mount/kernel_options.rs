//! The options after `-o`, those of mount(8) and of the Go client.

use anyhow::{Context, bail};

use super::Warnings;

/// Flags of mount(8), passed to the kernel.
const FLAGS: &[&str] = &[
    "async",
    "dev",
    "dirsync",
    "exec",
    "noatime",
    "nodev",
    "nodiratime",
    "noexec",
    "nosuid",
    "relatime",
    "strictatime",
    "suid",
    "sync",
];

/// Security labels, which have a value.
const LABELS: &[&str] = &["context", "defcontext", "fscontext", "rootcontext"];

/// Options for other programs that read the same list; ignored.
const FOREIGN: &[&str] =
    &["_netdev", "auto", "defaults", "noauto", "nofail", "nonempty", "remount"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelOptions {
    pub allow_other: bool,
    pub allow_root: bool,
    pub read_only: bool,
    pub debug: bool,
    pub writeback_cache: bool,
    pub async_dio: bool,
    pub default_permissions: bool,
    pub max_read: Option<u32>,
    /// What `mount` and `df` show as the device.
    pub source: Option<String>,
    /// Passed to the kernel unchanged.
    pub more: Vec<String>,
}

impl KernelOptions {
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut writable = false;
        for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            writable |= option == "rw";
            options.take(option)?;
        }
        if writable && options.read_only {
            bail!("ro and rw exclude each other");
        }
        Ok(options)
    }

    fn take(&mut self, option: &str) -> anyhow::Result<()> {
        match option.split_once('=') {
            Some(("max_read", value)) => {
                let bytes = value.parse().with_context(|| format!("{option}: not a number"))?;
                self.max_read = Some(bytes);
            }
            Some(("fsname", value)) if !value.is_empty() => self.source = Some(value.to_owned()),
            Some((name, value)) if LABELS.contains(&name) && !value.is_empty() => {
                self.more.push(option.to_owned());
            }
            Some(_) => bail!("{option}: unknown option"),
            None => self.take_flag(option)?,
        }
        Ok(())
    }

    fn take_flag(&mut self, option: &str) -> anyhow::Result<()> {
        match option {
            "allow_other" => self.allow_other = true,
            // The kernel has no such option; JuiceFS allows everybody, too.
            "allow_root" => (self.allow_other, self.allow_root) = (true, true),
            "ro" => self.read_only = true,
            "rw" => {}
            "debug" => self.debug = true,
            "writeback_cache" => self.writeback_cache = true,
            "async_dio" => self.async_dio = true,
            "default_permissions" => self.default_permissions = true,
            flag if FLAGS.contains(&flag) => self.more.push(flag.to_owned()),
            flag if FOREIGN.contains(&flag) || flag.starts_with("x-") => {}
            _ => bail!("{option}: unknown option"),
        }
        Ok(())
    }

    pub fn check(&self, warnings: &mut Warnings) {
        if self.allow_root {
            warnings.add("-o allow_root allows all users, as allow_other does".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_client_and_of_the_kernel_are_separated() {
        let options = KernelOptions::parse(
            "allow_other, ro,debug,writeback_cache,async_dio,default_permissions,max_read=65536,\
             fsname=mine,noatime,context=a:b,nonempty,_netdev,x-systemd.automount,",
        )
        .unwrap();
        let expected = KernelOptions {
            allow_other: true,
            allow_root: false,
            read_only: true,
            debug: true,
            writeback_cache: true,
            async_dio: true,
            default_permissions: true,
            max_read: Some(65536),
            source: Some("mine".to_owned()),
            more: vec!["noatime".to_owned(), "context=a:b".to_owned()],
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn an_empty_list_is_the_default() {
        assert_eq!(KernelOptions::parse("").unwrap(), KernelOptions::default());
        assert_eq!(KernelOptions::parse("rw,defaults").unwrap(), KernelOptions::default());
    }

    #[test]
    fn unknown_and_contradictory_options_are_refused_by_name() {
        for (text, word) in [
            ("noatime,colour", "colour"),
            ("fd=3", "fd=3"),
            ("user_id=0", "user_id"),
            ("max_read=much", "max_read=much"),
            ("context=", "context"),
            ("ro,rw", "ro and rw"),
        ] {
            let error = format!("{:#}", KernelOptions::parse(text).unwrap_err());
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
