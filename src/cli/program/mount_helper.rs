//! `mount.juicefs`: the helper that mount(8) runs for lines of /etc/fstab, with all options after `-o`.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, bail};
use clap::{Arg, Command};

use crate::options::comma_list;

/// Returns whether the program was run under the name of the helper.
pub fn is_helper(program: Option<&OsString>) -> bool {
    let name = program.and_then(|program| Path::new(program).file_name());
    name.is_some_and(|name| name == "mount.juicefs" || name == "mount.jfs")
}

/// What mount(8) requests.
pub enum HelperAction {
    /// The words of the equivalent `jfs-mount` command.
    Mount(Vec<OsString>),
    /// A fake mount (`-f`): everything but the mount itself.
    Nothing,
}

/// Translates `mount.juicefs SPEC DIR [-sfnv] [-N NS] [-t TYPE] [-o OPTIONS]` to words of `jfs-mount`.
pub fn translate(cli: &Command, words: &[OsString]) -> anyhow::Result<HelperAction> {
    let mut positional = Vec::new();
    let mut lists = Vec::new();
    let (mut fake, mut verbose) = (false, false);
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("-o") => lists.push(rest.next().context("-o needs options")?),
            Some("-t" | "-N") => drop(rest.next()),
            Some(flags) if flags.starts_with('-') && flags.len() > 1 => {
                if let Some(unknown) = flags[1..].chars().find(|flag| !"sfnv".contains(*flag)) {
                    bail!("unknown option -{unknown}");
                }
                fake |= flags.contains('f');
                verbose |= flags.contains('v');
            }
            _ => positional.push(word.clone()),
        }
    }
    if positional.len() != 2 {
        bail!("usage: mount.juicefs META-URL MOUNTPOINT [-o OPTIONS]");
    }
    if fake {
        return Ok(HelperAction::Nothing);
    }
    let mut translated: Vec<OsString> = vec!["jfs-mount".into(), "mount".into(), "-d".into()];
    translated.extend(verbose.then(|| "-v".into()));
    let lists: Option<Vec<&str>> = lists.iter().map(|list| list.to_str()).collect();
    let mount = cli.find_subcommand("mount");
    let known: Vec<&Arg> =
        cli.get_arguments().chain(mount.into_iter().flat_map(Command::get_arguments)).collect();
    let words = comma_list::to_words(&known, lists.context("-o: not UTF-8")?)?;
    translated.extend(words.into_iter().map(OsString::from));
    translated.extend(positional);
    Ok(HelperAction::Mount(translated))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn translated(words: &str) -> anyhow::Result<String> {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        Ok(match translate(&Cli::command(), &words)? {
            HelperAction::Nothing => String::new(),
            HelperAction::Mount(words) => {
                let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
                words.join(" ")
            }
        })
    }

    #[test]
    fn the_helper_is_recognized_by_its_name() {
        for name in ["/sbin/mount.juicefs", "mount.jfs"] {
            assert!(is_helper(Some(&name.into())), "{name}");
        }
        assert!(!is_helper(Some(&"/usr/bin/jfs-mount".into())) && !is_helper(None));
    }

    #[test]
    fn listed_options_become_options_of_the_command() {
        let line = "/sbin/mount.juicefs redis://h/1 /mnt -o \
                    rw,_netdev,nofail,x-systemd.automount,writeback,cache-size=1G,attrcacheto=2,\
                    noatime,allow_other";
        assert_eq!(
            translated(line).unwrap(),
            "jfs-mount mount -d --writeback --cache-size=1G --attr-cache=2 -o noatime,allow_other \
             redis://h/1 /mnt"
        );
        assert_eq!(
            translated("mount.juicefs u /m -n -s -v -t juicefs").unwrap(),
            "jfs-mount mount -d -v u /m"
        );
        assert_eq!(
            translated("mount.juicefs u /m -o debug").unwrap(),
            "jfs-mount mount -d --debug -o debug u /m"
        );
    }

    #[test]
    fn a_fake_mount_mounts_nothing() {
        assert_eq!(translated("mount.juicefs u /m -sfn").unwrap(), "");
    }

    #[test]
    fn errors_name_the_wrong_option() {
        for (line, word) in [
            ("mount.juicefs u /m -o cache-size", "cache-size"),
            ("mount.juicefs u /m -x", "-x"),
            ("mount.juicefs u", "MOUNTPOINT"),
            ("mount.juicefs u /m -o", "-o"),
        ] {
            let error = translated(line).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
