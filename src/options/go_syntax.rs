//! Translates the option syntax of the Go client to that of clap.
//!
//! The Go client takes one dash or two for any option (`-cache-size`, `--d`), and flags may have a
//! value (`--writeback=false`).

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

/// Rewrites the words for `command`. Unknown options stay as they are.
pub fn to_clap_syntax(mut command: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let mut known: Vec<&Arg> = command.get_arguments().collect();
    let mut words = words.into_iter();
    let mut spelled: Vec<OsString> = words.next().into_iter().collect();
    while let Some(word) = words.next() {
        let Some(text) = word.to_str() else {
            spelled.push(word);
            continue;
        };
        if text == "--" {
            spelled.push(word);
            break;
        }
        if !text.starts_with('-') {
            if let Some(sub) = command.find_subcommand(text) {
                command = sub;
                known.extend(sub.get_arguments());
            }
            spelled.push(word);
            continue;
        }
        let (name, value) = match text.trim_start_matches('-').split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text.trim_start_matches('-'), None),
        };
        let Some(option) = known.iter().find(|arg| is_named(arg, name)) else {
            spelled.push(word);
            continue;
        };
        let dashed =
            if name.chars().count() == 1 { format!("-{name}") } else { format!("--{name}") };
        if !option.get_action().takes_values() {
            rewrite_flag(&mut spelled, option, dashed, value);
        } else if let Some(value) = value {
            spelled.push(format!("{dashed}={value}").into());
        } else {
            spelled.push(dashed.into());
            // The value may begin with a dash.
            spelled.extend(words.next());
        }
    }
    spelled.extend(words);
    spelled
}

fn rewrite_flag(spelled: &mut Vec<OsString>, option: &Arg, dashed: String, value: Option<&str>) {
    let on = match value {
        None => Some(true),
        Some(value) => parse_bool(value),
    };
    match on {
        Some(true) => spelled.push(dashed.into()),
        // The last one wins: drop the earlier ones.
        Some(false) if matches!(option.get_action(), ArgAction::SetTrue) => {
            spelled.retain(|word| !is_word_for(option, word));
        }
        _ => spelled.push(format!("{dashed}={}", value.unwrap_or_default()).into()),
    }
}

fn is_word_for(option: &Arg, word: &OsString) -> bool {
    let name = word.to_str().map(|word| word.trim_start_matches('-'));
    name.is_some_and(|name| word.to_str() != Some(name) && is_named(option, name))
}

fn is_named(option: &Arg, name: &str) -> bool {
    let mut letters = name.chars();
    if let (Some(letter), None) = (letters.next(), letters.next()) {
        return option.get_short() == Some(letter);
    }
    option.get_long() == Some(name)
        || option.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Args;

    use super::*;
    use crate::options::mount::MountArgs;

    fn command() -> Command {
        let mount = MountArgs::augment_args(Command::new("mount"));
        let set = Command::new("set").arg(Arg::new("path").long("path"));
        let verbose = Arg::new("verbose").long("verbose").visible_alias("debug");
        Command::new("jfs")
            .arg(verbose.action(ArgAction::SetTrue))
            .subcommand(mount)
            .subcommand(Command::new("quota").subcommand(set))
    }

    #[track_caller]
    fn becomes(given: &str, expected: &str) {
        let words = given.split(' ').map(OsString::from).collect();
        let words = to_clap_syntax(&command(), words);
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn one_dash_and_two_are_the_same() {
        becomes("jfs mount -cache-size 1G u m --d", "jfs mount --cache-size 1G u m -d");
        becomes("jfs -debug mount u m -writeback", "jfs --debug mount u m --writeback");
        becomes("jfs mount u m --o=ro -cache-dir=/a", "jfs mount u m -o=ro --cache-dir=/a");
        becomes("jfs quota set u -path /a", "jfs quota set u --path /a");
    }

    #[test]
    fn flags_may_have_a_value() {
        becomes("jfs mount --writeback=true u m", "jfs mount --writeback u m");
        becomes("jfs mount -d --writeback --d=0 --writeback=F u m", "jfs mount u m");
        becomes("jfs mount --writeback=maybe u m", "jfs mount --writeback=maybe u m");
    }

    #[test]
    fn values_and_unknown_words_are_unchanged() {
        becomes("jfs mount --subdir -writeback u m", "jfs mount --subdir -writeback u m");
        becomes("jfs mount -colour u m", "jfs mount -colour u m");
        becomes("jfs mount -- -d", "jfs mount -- -d");
    }
}
