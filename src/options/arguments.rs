//! Options as the Go client takes them, turned into options as clap does.
//!
//! There, one dash is as good as two (`-cache-size`, `--d`), and a switch may say which way
//! (`--writeback=false`).

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

/// The same words, spelled as `command` wants them. What is not known stays as it is.
pub fn spelled(mut command: &Command, words: Vec<OsString>) -> Vec<OsString> {
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
            switch(&mut spelled, option, dashed, value);
        } else if let Some(value) = value {
            spelled.push(format!("{dashed}={value}").into());
        } else {
            spelled.push(dashed.into());
            // It may begin with a dash.
            spelled.extend(words.next());
        }
    }
    spelled.extend(words);
    spelled
}

fn switch(spelled: &mut Vec<OsString>, option: &Arg, dashed: String, value: Option<&str>) {
    let on = match value {
        None => Some(true),
        Some(value) => truth(value),
    };
    match on {
        Some(true) => spelled.push(dashed.into()),
        // The last one counts.
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

fn truth(text: &str) -> Option<bool> {
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
        let loud = Arg::new("verbose").long("verbose").visible_alias("debug");
        Command::new("jfs")
            .arg(loud.action(ArgAction::SetTrue))
            .subcommand(mount)
            .subcommand(Command::new("quota").subcommand(set))
    }

    #[track_caller]
    fn becomes(given: &str, expected: &str) {
        let words = given.split(' ').map(OsString::from).collect();
        let words = spelled(&command(), words);
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn one_dash_is_as_good_as_two() {
        becomes("jfs mount -cache-size 1G u m --d", "jfs mount --cache-size 1G u m -d");
        becomes("jfs -debug mount u m -writeback", "jfs --debug mount u m --writeback");
        becomes("jfs mount u m --o=ro -cache-dir=/a", "jfs mount u m -o=ro --cache-dir=/a");
        becomes("jfs quota set u -path /a", "jfs quota set u --path /a");
    }

    #[test]
    fn a_switch_may_say_which_way() {
        becomes("jfs mount --writeback=true u m", "jfs mount --writeback u m");
        becomes("jfs mount -d --writeback --d=0 --writeback=F u m", "jfs mount u m");
        becomes("jfs mount --writeback=maybe u m", "jfs mount --writeback=maybe u m");
    }

    #[test]
    fn values_and_unknown_words_stay_as_they_are() {
        becomes("jfs mount --subdir -writeback u m", "jfs mount --subdir -writeback u m");
        becomes("jfs mount -colour u m", "jfs mount -colour u m");
        becomes("jfs mount -- -d", "jfs mount -- -d");
    }
}
