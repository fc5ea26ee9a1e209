//! `completion`: prints a script that completes commands and options in a shell.

use std::io::{self, Write};

use clap::Args;
use clap_complete::Shell;

use crate::cli::help;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  In bash, for all users:
    jfs-mount completion bash > /usr/share/bash-completion/completions/jfs-mount
  In zsh, into a folder of $fpath:
    jfs-mount completion zsh > ~/.zfunc/_jfs-mount
  In fish:
    jfs-mount completion fish > ~/.config/fish/completions/jfs-mount.fish")]
pub struct Completion {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completion {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut help::command(), "jfs-mount", &mut script);
        io::stdout().write_all(&script)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shell_gets_the_commands_and_their_options() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut help::command(), "jfs-mount", &mut script);
            let script = String::from_utf8(script).unwrap();
            for word in ["jfs-mount", "umount", "put-back"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
