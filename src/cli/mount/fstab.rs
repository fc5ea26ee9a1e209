//! `--update-fstab`: writes a mount into /etc/fstab, so that it is mounted again at boot.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::{Context, bail};
use clap::Command;
use tracing::{info, warn};

use super::Mount;
use super::positional::Positional;
use crate::cli::meta_url;

const TABLE: &str = "/etc/fstab";
/// The program that mount(8) runs for file systems of type `juicefs`.
const HELPER: &str = "/sbin/mount.juicefs";

impl Mount {
    /// Writes the mount and its options, taken from the words of the command line, if `--update-fstab`
    /// was given. A failure is only logged, since the volume is mounted.
    pub fn update_fstab(&self, cli: &Command, words: &[OsString]) {
        if !self.args.process.update_fstab {
            return;
        }
        if !nix::unistd::geteuid().is_root() {
            return warn!("--update-fstab has no effect: it needs root");
        }
        match self.write_entry(cli, words) {
            Ok(()) => info!("the mount is in {TABLE}, and {HELPER} mounts it"),
            Err(error) => warn!("--update-fstab: {error:#}"),
        }
    }

    fn write_entry(&self, cli: &Command, words: &[OsString]) -> anyhow::Result<()> {
        install_helper(Path::new(HELPER)).context(HELPER)?;
        let Positional { meta_url, mount_point } = Positional::parse(&self.positional)?;
        let url = if let Some(url) = meta_url {
            absolute_url(url.expose())?
        } else {
            let dir = meta_url::embedded_folder(self.args.process.data_dir.as_deref())?;
            meta_url::embedded_url(&dir)?.expose().to_owned()
        };
        let options = self.option_list(cli, words)?;
        let mount_point = mount_point.to_str().context("MOUNTPOINT is not UTF-8")?;
        let entry =
            FstabEntry { url: &escape(&url), mount_point: &escape(mount_point), options: &options };
        let table = Path::new(TABLE);
        let before = fs::read_to_string(table).context(TABLE)?;
        let after = entry.put_into(&before);
        if after != before {
            replace(table, &after).context(TABLE)?;
        }
        Ok(())
    }

    /// Returns the given options as a comma-separated list for the table.
    fn option_list(&self, cli: &Command, words: &[OsString]) -> anyhow::Result<String> {
        let mut list = vec!["_netdev".to_owned(), "nofail".to_owned()];
        let mount = cli.find_subcommand("mount").context("no command mount")?;
        let mut words = words.iter().skip(1).filter_map(|word| word.to_str());
        while let Some(word) = words.next() {
            let Some(text) = word.strip_prefix('-') else { continue };
            let (name, value) = match text.trim_start_matches('-').split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (text.trim_start_matches('-'), None),
            };
            let named = |arg: &&clap::Arg| {
                arg.get_long() == Some(name)
                    || arg.get_short().map(String::from).as_deref() == Some(name)
            };
            let Some(option) = cli.get_arguments().chain(mount.get_arguments()).find(named) else {
                continue;
            };
            let value = match value {
                None if option.get_action().takes_values() => words.next(),
                value => value,
            };
            let name = option.get_long().unwrap_or(name);
            match (name, value) {
                ("update-fstab" | "background" | "data-dir", _) => {}
                ("o", Some(value)) => list.push(value.to_owned()),
                ("cache-dir", Some(_)) => {
                    list.push(format!("cache-dir={}", self.args.cache.dirs()?));
                }
                (name, Some(value)) if value.contains([',', ' ', '\t']) => {
                    bail!(
                        "--{name} {value}: /etc/fstab cannot hold a value with a comma or a blank"
                    )
                }
                (name, Some(value)) => list.push(format!("{name}={value}")),
                (name, None) => list.push(name.to_owned()),
            }
        }
        list.sort();
        Ok(list.join(","))
    }
}

/// A line of /etc/fstab, its fields escaped.
struct FstabEntry<'a> {
    url: &'a str,
    mount_point: &'a str,
    options: &'a str,
}

impl FstabEntry<'_> {
    /// Replaces the line for the same volume and mount point, or appends one if there is none.
    fn put_into(&self, table: &str) -> String {
        let Self { url, mount_point, options } = self;
        let line = format!("{url}  {mount_point}  juicefs  {options}  0 0");
        let is_same = |old: &str| {
            let fields: Vec<&str> = old.split_whitespace().collect();
            matches!(fields[..], [a, p, "juicefs", ..] if a == *url && p == *mount_point)
        };
        let mut lines: Vec<&str> = table.lines().collect();
        match lines.iter().rposition(|old| is_same(old)) {
            Some(at) => lines[at] = &line,
            None => lines.push(&line),
        }
        lines.join("\n") + "\n"
    }
}

/// Escapes blanks, which separate the fields of the table.
fn escape(text: &str) -> String {
    text.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011")
}

/// Makes the path of an SQLite URL absolute: mount(8) runs in another directory.
fn absolute_url(url: &str) -> anyhow::Result<String> {
    let Some(path) = url.strip_prefix("sqlite3://") else { return Ok(url.to_owned()) };
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (path, String::new()),
    };
    let path = std::path::absolute(path)?;
    Ok(format!("sqlite3://{}{query}", path.to_str().context("META-URL is not UTF-8")?))
}

fn install_helper(helper: &Path) -> io::Result<()> {
    if helper.try_exists()? {
        return Ok(());
    }
    // A dangling link is replaced.
    if helper.is_symlink() {
        fs::remove_file(helper)?;
    }
    symlink(std::env::current_exe()?, helper)
}

/// Replaces the table atomically: a host with half a table may not boot.
fn replace(table: &Path, text: &str) -> io::Result<()> {
    let temporary = table.with_extension("jfs.tmp");
    let mode = fs::metadata(table)?.permissions().mode();
    let written = fs::write(&temporary, text)
        .and_then(|()| fs::set_permissions(&temporary, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::File::open(&temporary)?.sync_all())
        .and_then(|()| fs::rename(&temporary, table));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "# comment\n/dev/vda / ext4 defaults 0 1\nredis://h/1  /mnt/a  juicefs  ro  0 0\n";

    #[test]
    fn a_line_is_replaced_or_added() {
        let entry = FstabEntry { url: "redis://h/1", mount_point: "/mnt/a", options: "nofail" };
        let once = entry.put_into(TABLE);
        assert_eq!(once, TABLE.replace("  ro  ", "  nofail  "));
        assert_eq!(entry.put_into(&once), once);
        let other = FstabEntry { mount_point: "/mnt/b", ..entry };
        assert_eq!(
            other.put_into(TABLE),
            format!("{TABLE}redis://h/1  /mnt/b  juicefs  nofail  0 0\n")
        );
        assert_eq!(other.put_into(""), "redis://h/1  /mnt/b  juicefs  nofail  0 0\n");
    }

    #[test]
    fn blanks_are_escaped_and_paths_are_absolute() {
        assert_eq!(escape("/a b\\c"), "/a\\040b\\134c");
        assert_eq!(absolute_url("redis://h/1").unwrap(), "redis://h/1");
        let url = absolute_url("sqlite3://a.db?_sync=1").unwrap();
        assert!(url.starts_with("sqlite3:///") && url.ends_with("/a.db?_sync=1"), "{url}");
    }

    #[test]
    fn replacing_the_table_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path().join("fstab");
        fs::write(&table, "old\n").unwrap();
        replace(&table, "new\n").unwrap();
        assert_eq!(fs::read_to_string(&table).unwrap(), "new\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
