//! The help text of the program: its commands in the groups of the Go client.

use std::fmt::Write;

use clap::{Command, CommandFactory};

use super::Cli;

/// The groups, and the commands in each.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "ADMIN",
        &[
            "format", "config", "quota", "destroy", "gc", "fsck", "restore", "dump", "load",
            "version",
        ],
    ),
    ("INSPECTOR", &["status", "stats", "profile", "info", "summary"]),
    ("SERVICE", &["mount", "umount", "upgrade"]),
    ("TOOL", &["bench", "warmup", "rmr", "clone", "compact", "completion", "man"]),
];

/// Returns the description of the command line, as help shows it.
pub fn command() -> Command {
    let command = Cli::command();
    let mut commands = String::new();
    for (group, names) in GROUPS {
        // Writing to a string does not fail.
        let _ = writeln!(commands, "{group}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(commands, "  {name:<11} {about}");
        }
        commands.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}Options:\n{{options}}\n\n\
         Try 'jfs-mount COMMAND --help' for the options of a command, and examples.\n"
    );
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_every_name_is_a_command() {
        let mut grouped: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|found| !found.is_hide_set());
        let mut names: Vec<&str> = shown.map(Command::get_name).collect();
        grouped.sort_unstable();
        names.sort_unstable();
        assert_eq!(grouped, names);
    }

    #[test]
    fn help_shows_the_groups_and_the_options() {
        let help = command().render_help().to_string();
        for text in ["ADMIN:\n  format      Create a volume\n", "SERVICE:\n  mount ", "--verbose"] {
            assert!(help.contains(text), "{help}");
        }
        assert!(!help.contains("Commands:"), "{help}");
    }

    #[test]
    fn every_command_has_examples() {
        for command in Cli::command().get_subcommands() {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let name = command.get_name();
            assert!(text.starts_with("Example"), "{name}: {text}");
            assert!(text.contains(&format!("jfs-mount {name}")), "{name}: {text}");
        }
    }
}
