//! Noting a mount in /etc/fstab, so that it comes back with the host.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::{Context, bail};
use clap::Command;
use tracing::{info, warn};

use super::places::Places;
use super::{Mount, embedded};

const TABLE: &str = "/etc/fstab";
/// What mount(8) calls for the type in the table.
const HELPER: &str = "/sbin/mount.juicefs";

impl Mount {
    /// Does what `--update-fstab` says with the words of the command line; it may fail, and the mount
    /// is there all the same.
    pub fn update_fstab(&self, cli: &Command, words: &[OsString]) {
        if !self.args.general.update_fstab {
            return;
        }
        if !nix::unistd::geteuid().is_root() {
            return warn!("--update-fstab has no effect: it needs root");
        }
        match self.note(cli, words) {
            Ok(()) => info!("{TABLE} has the mount now, and mount(8) knows how"),
            Err(error) => warn!("--update-fstab: {error:#}"),
        }
    }

    fn note(&self, cli: &Command, words: &[OsString]) -> anyhow::Result<()> {
        install(Path::new(HELPER)).context(HELPER)?;
        let Places { meta, point } = Places::parse(&self.places)?;
        let address = if let Some(address) = meta {
            absolute(address.expose())?
        } else {
            let dir = embedded::folder(self.args.general.data_dir.as_deref())?;
            embedded::address(&dir)?.expose().to_owned()
        };
        let options = self.listed(cli, words)?;
        let point = point.to_str().context("MOUNTPOINT is not UTF-8")?;
        let line = Line { address: &escaped(&address), point: &escaped(point), options: &options };
        let table = Path::new(TABLE);
        let before = fs::read_to_string(table).context(TABLE)?;
        let after = line.put_into(&before);
        if after != before {
            replace(table, &after).context(TABLE)?;
        }
        Ok(())
    }

    /// The options that were said, as a list for the table.
    fn listed(&self, cli: &Command, words: &[OsString]) -> anyhow::Result<String> {
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
                    bail!("--{name} {value}: a comma or a blank cannot be in the table")
                }
                (name, Some(value)) => list.push(format!("{name}={value}")),
                (name, None) => list.push(name.to_owned()),
            }
        }
        list.sort();
        Ok(list.join(","))
    }
}

/// A line of the table.
struct Line<'a> {
    address: &'a str,
    point: &'a str,
    options: &'a str,
}

impl Line<'_> {
    /// In the place of the line for the same volume at the same point; at the end if there is none.
    fn put_into(&self, table: &str) -> String {
        let Self { address, point, options } = self;
        let line = format!("{address}  {point}  juicefs  {options}  0 0");
        let is_same = |old: &str| {
            let fields: Vec<&str> = old.split_whitespace().collect();
            matches!(fields[..], [a, p, "juicefs", ..] if a == *address && p == *point)
        };
        let mut lines: Vec<&str> = table.lines().collect();
        match lines.iter().rposition(|old| is_same(old)) {
            Some(at) => lines[at] = &line,
            None => lines.push(&line),
        }
        lines.join("\n") + "\n"
    }
}

/// The table has blanks between its fields.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011")
}

/// The table is read in other directories.
fn absolute(address: &str) -> anyhow::Result<String> {
    let Some(path) = address.strip_prefix("sqlite3://") else { return Ok(address.to_owned()) };
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (path, String::new()),
    };
    let path = std::path::absolute(path)?;
    Ok(format!("sqlite3://{}{query}", path.to_str().context("META-URL is not UTF-8")?))
}

fn install(helper: &Path) -> io::Result<()> {
    if helper.try_exists()? {
        return Ok(());
    }
    // A link to a program that is gone helps nobody.
    if helper.is_symlink() {
        fs::remove_file(helper)?;
    }
    symlink(std::env::current_exe()?, helper)
}

/// All or nothing: a host with half a table may not start.
fn replace(table: &Path, text: &str) -> io::Result<()> {
    let fresh = table.with_extension("jfs.tmp");
    let mode = fs::metadata(table)?.permissions().mode();
    let written = fs::write(&fresh, text)
        .and_then(|()| fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::File::open(&fresh)?.sync_all())
        .and_then(|()| fs::rename(&fresh, table));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
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
        let line = Line { address: "redis://h/1", point: "/mnt/a", options: "nofail" };
        let once = line.put_into(TABLE);
        assert_eq!(once, TABLE.replace("  ro  ", "  nofail  "));
        assert_eq!(line.put_into(&once), once);
        let other = Line { point: "/mnt/b", ..line };
        assert_eq!(
            other.put_into(TABLE),
            format!("{TABLE}redis://h/1  /mnt/b  juicefs  nofail  0 0\n")
        );
        assert_eq!(other.put_into(""), "redis://h/1  /mnt/b  juicefs  nofail  0 0\n");
    }

    #[test]
    fn blanks_are_escaped_and_paths_are_absolute() {
        assert_eq!(escaped("/a b\\c"), "/a\\040b\\134c");
        assert_eq!(absolute("redis://h/1").unwrap(), "redis://h/1");
        let address = absolute("sqlite3://a.db?_sync=1").unwrap();
        assert!(
            address.starts_with("sqlite3:///") && address.ends_with("/a.db?_sync=1"),
            "{address}"
        );
    }

    #[test]
    fn the_table_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path().join("fstab");
        fs::write(&table, "old\n").unwrap();
        replace(&table, "new\n").unwrap();
        assert_eq!(fs::read_to_string(&table).unwrap(), "new\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
