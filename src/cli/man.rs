//! `man`: writes the manual pages.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man;

use crate::cli::help;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Read the page of the program:
    jfs-mount man | man -l -
  Install the pages of all commands:
    jfs-mount man --out-dir /usr/local/share/man/man1")]
pub struct Pages {
    /// Write one page for each command into this folder, which is created if it is missing
    #[arg(long, value_name = "DIR")]
    out_dir: Option<PathBuf>,
}

impl Pages {
    pub fn run(&self) -> anyhow::Result<()> {
        let pages = pages()?;
        let Some(dir) = &self.out_dir else {
            let (_, first) = pages.first().context("there are no pages")?;
            io::stdout().write_all(first)?;
            return Ok(());
        };
        fs::create_dir_all(dir).with_context(|| format!("--out-dir {}", dir.display()))?;
        for (name, page) in pages {
            let path = dir.join(name);
            fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// Returns the names and texts of all pages, that of the program first.
fn pages() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut command = help::command().disable_help_subcommand(true);
    // So that the usage of a subcommand names the program too.
    command.build();
    let mut pages = Vec::new();
    add(&command, &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> anyhow::Result<()> {
    let (man, mut page) = (Man::new(command.clone()), Vec::new());
    man.render(&mut page)?;
    pages.push((man.get_filename(), page));
    let below = command.get_subcommands();
    for below in below.filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        add(below, pages)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_options_and_examples() {
        let pages = pages().unwrap();
        let page = |name: &str| {
            let found = pages.iter().find(|(file, _)| file == name);
            String::from_utf8(found.unwrap_or_else(|| panic!("{name}")).1.clone()).unwrap()
        };
        assert!(page("jfs-mount.1").contains("jfs\\-mount"));
        assert!(page("jfs-mount-gc.1").contains("compact"));
        assert!(page("jfs-mount-dump.1").contains("Examples"));
        assert!(page("jfs-mount-quota-set.1").contains("capacity"));
        assert!(pages.len() > 25);
    }
}
