//! Options in a list, `writeback,cache-size=20G,noatime`, as /etc/fstab and volumes of Kubernetes have
//! them: those of the client among those of the kernel.

use std::ffi::OsString;

use anyhow::bail;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Args, Command, FromArgMatches};

use super::arguments::spelled;
use super::format::FormatArgs;
use super::mount::MountArgs;

/// For other programs that read the same list.
const FOREIGN: &[&str] = &[
    "_netdev",
    "auto",
    "background",
    "bg",
    "defaults",
    "group",
    "noauto",
    "nofail",
    "nouser",
    "owner",
    "remount",
    "rw",
    "user",
    "users",
];

/// Other names of options.
const RENAMED: &[(&str, &str)] = &[
    ("attrcacheto", "attr-cache"),
    ("entrycacheto", "entry-cache"),
    ("direntrycacheto", "dir-entry-cache"),
];

/// The list as words of a command line that takes `known` options: one for each of them, and those of
/// the kernel behind `-o`.
pub fn words<'a>(
    known: &[&Arg],
    options: impl IntoIterator<Item = &'a str>,
) -> anyhow::Result<Vec<String>> {
    let mut words = Vec::new();
    let mut kernel: Vec<&str> = Vec::new();
    let options = options.into_iter().flat_map(|list| list.split(','));
    for option in options.map(str::trim).filter(|option| !option.is_empty()) {
        match flag(known, option)? {
            Some(flag) => words.push(flag),
            None if is_foreign(option) => {}
            None => kernel.push(option),
        }
        // Both the client's word and FUSE's.
        if option == "debug" {
            kernel.push(option);
        }
    }
    if !kernel.is_empty() {
        words.extend(["-o".to_owned(), kernel.join(",")]);
    }
    Ok(words)
}

impl MountArgs {
    /// From lists, later ones before earlier ones. What is unknown is refused by name.
    pub fn from_lists<'a>(lists: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Self> {
        let command = Self::augment_args(Command::new("mount"))
            .no_binary_name(true)
            .args_override_self(true)
            .disable_help_flag(true);
        let known: Vec<&Arg> = command.get_arguments().collect();
        let words = words(&known, lists)?;
        // The first one stands for the program, which is not there.
        let words = std::iter::once(String::new()).chain(words).map(Into::into).collect();
        let mut words = spelled(&command, words);
        words.remove(0);
        let matches = command.try_get_matches_from(words).map_err(|error| plain(&error))?;
        Self::from_arg_matches(&matches).map_err(|error| plain(&error))
    }
}

impl FormatArgs {
    /// From options by their names, later ones before earlier ones. They come from a Secret, so what
    /// is wrong is told by the name of the option, or by its place in the list: what is no option may
    /// be a part of a key.
    pub fn from_pairs<'a>(
        pairs: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) -> anyhow::Result<Self> {
        let command = Self::augment_args(Command::new("format"))
            .no_binary_name(true)
            .args_override_self(true)
            .disable_help_flag(true);
        let known: Vec<&Arg> = command.get_arguments().collect();
        let mut words = vec![OsString::new()];
        for (at, (name, value)) in pairs.into_iter().enumerate() {
            let Some(arg) = known.iter().find(|arg| is_named(arg, name)) else {
                bail!("number {} is not an option of format", at + 1);
            };
            match value {
                Some(value) => words.push(format!("--{name}={value}").into()),
                None if arg.get_action().takes_values() => bail!("option {name} needs a value"),
                None => words.push(format!("--{name}").into()),
            }
        }
        let mut words = spelled(&command, words);
        words.remove(0);
        let matches = command.try_get_matches_from(words).map_err(|error| quiet(&error))?;
        Self::from_arg_matches(&matches).map_err(|error| quiet(&error))
    }
}

/// The options of a list: names, and values if they have one.
pub fn pairs(list: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let options = list.split(',').map(str::trim).filter(|option| !option.is_empty());
    options.map(|option| match option.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (option, None),
    })
}

/// What is wrong, in one line and without the usage of a command that nobody called.
fn plain(error: &clap::Error) -> anyhow::Error {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    anyhow::anyhow!("{}", first.strip_prefix("error: ").unwrap_or(first))
}

/// What is wrong, without the value that is.
fn quiet(error: &clap::Error) -> anyhow::Error {
    match error.get(ContextKind::InvalidArg) {
        // `--trash-days <TRASH_DAYS>`
        Some(ContextValue::String(arg)) => {
            let name = arg.split([' ', '=']).next().unwrap_or_default().trim_start_matches('-');
            anyhow::anyhow!("option {name}: its value makes no sense")
        }
        _ => anyhow::anyhow!("the options contradict each other"),
    }
}

/// The option of the command that an option of the list stands for.
fn flag(known: &[&Arg], option: &str) -> anyhow::Result<Option<String>> {
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    let renamed = RENAMED.iter().find(|(old, _)| *old == name);
    let name = renamed.map_or(name, |(_, new)| new);
    if is_foreign(name) {
        return Ok(None);
    }
    let Some(known) = known.iter().find(|arg| is_named(arg, name)) else { return Ok(None) };
    match value {
        Some(value) => Ok(Some(format!("--{name}={value}"))),
        None if known.get_action().takes_values() => bail!("-o {name} needs a value"),
        None => Ok(Some(format!("--{name}"))),
    }
}

fn is_named(arg: &Arg, name: &str) -> bool {
    arg.get_long() == Some(name)
        || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
}

fn is_foreign(option: &str) -> bool {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    FOREIGN.contains(&name) || name.starts_with("x-") || name == "comment"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_client_and_of_the_kernel_may_be_mixed() {
        let args = MountArgs::from_lists(["writeback,cache-size=1G,noatime", "cache-size=2G, ro"])
            .unwrap();
        assert!(args.cache.writeback && args.is_read_only());
        assert_eq!(args.cache.cache_size, 2 << 30);
        assert_eq!(args.fuse.options.more, ["noatime"]);
    }

    #[test]
    fn a_switch_in_a_list_may_say_which_way() {
        let args = MountArgs::from_lists(["writeback", "writeback=false", "subdir=a"]).unwrap();
        assert!(!args.cache.writeback);
        assert_eq!(args.meta.subdir.as_deref(), Some("a"));
    }

    #[test]
    fn what_is_wrong_with_a_list_is_one_line_that_names_it() {
        for (list, word) in
            [("colour=red", "colour"), ("cache-size=much", "much"), ("cache-size", "cache-size")]
        {
            let error = format!("{:#}", MountArgs::from_lists([list]).unwrap_err());
            assert!(error.contains(word) && !error.contains('\n'), "{list}: {error}");
        }
    }
}
