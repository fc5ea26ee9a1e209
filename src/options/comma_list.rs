//! Comma-separated options, `writeback,cache-size=20G,noatime`, as in /etc/fstab and in Kubernetes
//! volumes: options of the client mixed with those of the kernel.

use std::ffi::OsString;

use anyhow::bail;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Args, Command, FromArgMatches};

use super::format::FormatArgs;
use super::go_syntax::to_clap_syntax;
use super::mount::MountArgs;

/// Options for other programs that read the same list; ignored.
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

/// Alternative names of options.
const RENAMED: &[(&str, &str)] = &[
    ("attrcacheto", "attr-cache"),
    ("entrycacheto", "entry-cache"),
    ("direntrycacheto", "dir-entry-cache"),
];

/// Converts the lists to words of a command line with the options `known`: one word for each of them,
/// and the options of the kernel after `-o`.
pub fn to_words<'a>(
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
        // An option of both the client and FUSE.
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
    /// Parses lists; a later option overrides an earlier one. Unknown options are refused by name.
    pub fn from_lists<'a>(lists: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Self> {
        let command = Self::augment_args(Command::new("mount"))
            .no_binary_name(true)
            .args_override_self(true)
            .disable_help_flag(true);
        let known: Vec<&Arg> = command.get_arguments().collect();
        let words = to_words(&known, lists)?;
        // The first word takes the place of the program name.
        let words = std::iter::once(String::new()).chain(words).map(Into::into).collect();
        let mut words = to_clap_syntax(&command, words);
        words.remove(0);
        let matches = command.try_get_matches_from(words).map_err(|error| first_line(&error))?;
        Self::from_arg_matches(&matches).map_err(|error| first_line(&error))
    }
}

impl FormatArgs {
    /// Parses options from a Secret; a later option overrides an earlier one. Errors only give the name
    /// of an option, or its position if it is unknown: the text may be part of a key.
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
        let mut words = to_clap_syntax(&command, words);
        words.remove(0);
        let matches = command.try_get_matches_from(words).map_err(|error| without_value(&error))?;
        Self::from_arg_matches(&matches).map_err(|error| without_value(&error))
    }
}

/// Splits a list into names and optional values.
pub fn pairs(list: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let options = list.split(',').map(str::trim).filter(|option| !option.is_empty());
    options.map(|option| match option.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (option, None),
    })
}

/// Returns the first line of clap's message, without the usage of a command that was not run.
fn first_line(error: &clap::Error) -> anyhow::Error {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    anyhow::anyhow!("{}", first.strip_prefix("error: ").unwrap_or(first))
}

/// Returns a message without the wrong value, which may be a secret.
fn without_value(error: &clap::Error) -> anyhow::Error {
    match error.get(ContextKind::InvalidArg) {
        // `--trash-days <TRASH_DAYS>`
        Some(ContextValue::String(arg)) => {
            let name = arg.split([' ', '=']).next().unwrap_or_default().trim_start_matches('-');
            anyhow::anyhow!("option {name} has an invalid value")
        }
        _ => anyhow::anyhow!("the options contradict each other"),
    }
}

/// Returns the word for an option of the client, or `None` if it is not one.
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
    fn flags_in_a_list_may_have_a_value() {
        let args = MountArgs::from_lists(["writeback", "writeback=false", "subdir=a"]).unwrap();
        assert!(!args.cache.writeback);
        assert_eq!(args.meta.subdir.as_deref(), Some("a"));
    }

    #[test]
    fn errors_are_one_line_and_name_the_option() {
        for (list, word) in
            [("colour=red", "colour"), ("cache-size=much", "much"), ("cache-size", "cache-size")]
        {
            let error = format!("{:#}", MountArgs::from_lists([list]).unwrap_err());
            assert!(error.contains(word) && !error.contains('\n'), "{list}: {error}");
        }
    }
}
